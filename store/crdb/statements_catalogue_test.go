package crdb

import (
	"regexp"
	"strings"
)

// entry is a statement that the package sends.
type entry struct {
	// name is that of its text in the source, or what it is called where it has none there.
	name string
	// text is the whole of it, or its beginning.
	text string
	// use and by are what it is for, and who calls it when.
	use, by string
}

// catalogue is every statement, in the order of the way of a job. TestEveryStatementIsListed holds it against the source.
var catalogue = []entry{
	{"submitPlain", submitPlain, "jobs and their first timers", "api: a submit; those that wait share one"},
	{"submitFull", submitFull, "the same with payloads", "api: a submit where one has a payload"},
	{"lookupJobs", lookupJobs, "what a submit found there", "api: a submit that was refused"},
	{"shared queues", "SELECT q.name FROM queues AS q", "whose queue it is", "api: kept for some seconds"},
	{"readDue", readDue, "what is due soon", "planner: once or twice a second, and at a nudge"},
	{"mark", mark, "hand out", "planner: a batch that is due"},
	{"markAlone", markAlone, "hand out, unless an earlier run goes on", "planner: as mark, series that forbid overlap"},
	{"asRead", asRead, "overlap, or changed?", "planner: after markAlone left some"},
	{"marked", marked, "was it marked?", "planner: the answer to a mark was lost"},
	{"lockJobs", lockJobs, "jobs of reports that need them", "recorder: failures, and all of series"},
	{"lockRows", lockRows, "rows of starts and follows", "recorder: a batch with one of these"},
	{"startRows", startRows, "to running", "recorder: runs longer than half a second"},
	{"followRows", followRows, "the next occurrence is made", "recorder: series, at a hand-over"},
	{"endRows", endRows, "take ended rows away", "recorder: each batch with an end"},
	{"now", "SELECT " + sqlNow, "database time", "recorder, api: under the locks; each role's clock"},
	{"setJobs", setJobs, "change jobs", "api: a change; recorder: a series that ends"},
	{"insertTimers", insertTimers, "retries, next occurrences", "recorder; api: a change"},
	{"insertRuns", insertRuns, "history", "recorder: each end; api: a cancel"},
	{"insertSkips", insertSkips, "occurrences not run", "recorder; api: resume, delete"},
	{"setPayloads", setPayloads, "change payloads", "api: an update of the payload"},
	{"drop payloads", "DELETE FROM payloads WHERE", "payload gone", "api: an update to none; recorder: retention"},
	{"readJob", readJob, "a job", "api: a read of a job, each change"},
	{"readJobs", readJobs, "jobs without payloads", "api: each read of a run"},
	{"lockJob", lockJob, "a job, to change it", "api: a change; planner: a mend"},
	{"listedTimers", listedTimers, "live rows by index", "api: each read and change"},
	{"lockTimers", lockTimers, "live rows, to change them", "api: a change"},
	{"readTimers", readTimers, "live rows by key", "api: reads; planner: the watch, after a lease"},
	{"setTimers", setTimers, "change live rows", "api: cancel of what runs, pause, update"},
	{"deleteTimers", deleteTimers, "take live rows away", "api: cancel of what is due, update, delete"},
	{"lastRuns", lastRuns, "last ended runs", "api: a job without a live row; planner: a mend"},
	{"runAttempts", runAttempts, "ended attempts of a run", "api: a run; update, trigger"},
	{"listRuns", listRuns, "ended runs of a job", "api: a list; each change looks at the last 200"},
	{"listSkips", listSkips, "skips of a job", "api: a list of runs; planner: a mend"},
	{"listFailures", listFailures, "failed runs of a namespace", "api: a list"},
	{"list jobs", listText, "a page of jobs; a text per set of filters", "api: a list"},
	{"liveProbed", liveProbed, "which have a live row, by key", "api: a list by state; recorder: retention"},
	{"liveListed", liveListed, "the same by index", "api: a list by state; recorder: retention"},
	{"readInFlight", readInFlight, "what is handed out", "planner: a shard taken; each shard every 20 s"},
	{"renew", renew, "I am alive", "planner: each second"},
	{"readMembers", readMembers, "who is", "planner: each second"},
	{"forget", forget, "old members", "planner: one was silent for 30 s"},
	{"readShards", readShards, "who owns what", "planner: every 10 s"},
	{"claimShards", claimShards, "own shards", "planner: every 10 s"},
	{"readClaimed", readClaimed, "what it owns now", "planner: every 10 s"},
	{"checkpoint", checkpoint, "how far it has planned", "planner: every 15 s"},
	{"leave", "DELETE FROM members WHERE member_id", "a member goes", "planner: its stop"},
	{"lockOwned", lockOwned, "its shards", "planner: its stop"},
	{"disown", "UPDATE shards SET owner = ''", "let go of them", "planner: its stop"},
	{"brokenSeries", brokenSeries, "series without a next occurrence", "planner: each shard every 10 min"},
	{"namespace of job", "SELECT namespace FROM jobs WHERE", "whose it is", "planner: a mend"},
	{"save stream", "UPDATE streams SET last_seq", "how far RUNS has come", "planner: every 10 s"},
	{"next generation", "INSERT INTO streams ", "RUNS anew", "planner: RUNS was lost"},
	{"read stream", "SELECT " + streamColumns + " FROM streams WHERE name", "which generation", "planner: RUNS was lost"},
	{"read streams", "SELECT " + streamColumns + " FROM streams ORDER", "which generations", "planner: at its start, a stream is gone"},
	{"oldRuns", oldRuns, "history past its keeping time", "recorder: every 10 min, 1000 at once"},
	{"deleteRuns", deleteRuns, "delete it", "recorder: as oldRuns"},
	{"oldSkips", oldSkips, "skips past theirs", "recorder: as oldRuns"},
	{"deleteSkips", deleteSkips, "delete them", "recorder: as oldRuns"},
	{"oldJobs", oldJobs, "jobs nothing can come of", "recorder: as oldRuns"},
	{"lockOldJobs", lockOldJobs, "still so?", "recorder: as oldRuns"},
	{"delete jobs", "DELETE FROM jobs WHERE", "delete them", "recorder: as oldRuns"},
	{"cluster", "SELECT store_id, key FROM cluster", "identity", "each role: its start"},
	{"make cluster", "INSERT INTO cluster ", "identity", "open"},
	{"count shards", "SELECT count(*) FROM shards", "how many", "open"},
	{"ping", "UPDATE cluster SET pings", "can it be written?", "/readyz"},
	{"create key", "INSERT INTO api_keys ", "credential", "operator"},
	{"list keys", "SELECT " + keyColumns + " FROM api_keys WHERE $1", "credentials", "operator; the start of a server on the network"},
	{"read key", "SELECT " + keyColumns + " FROM api_keys WHERE key_id", "credential", "api: kept for some seconds"},
	{"revoke key", "UPDATE api_keys SET revoked_at", "credential", "operator"},
	{"begin", "BEGIN", "", "calls of several statements"},
	{"commit", "COMMIT", "", "calls of several statements"},
}

// listText is how the statements of ListJobs begin.
const listText = "SELECT j.job_id, j.namespace, j.name, j.shard, j.version, j.state, j.kind, j.queue, j.queue_namespace, j.priority, j.spec, j.body_hash, j.due_at, " +
	"j.paused_by, j.paused_at, j.pause_note, j.created_at, j.updated_at FROM jobs AS j WHERE j.namespace = $1 AND j.created_at <= $2"

// nameOf is the entry of a text: the one that is the longest beginning of it. Empty where there is none.
func nameOf(text string) (name string) {
	longest := 0
	for _, e := range catalogue {
		if len(e.text) > longest && strings.HasPrefix(text, e.text) {
			name, longest = e.name, len(e.text)
		}
	}
	return name
}

// beginnings are texts of the source that are not sent as they are, and why: parts of others, what opens a database, and what only errors need.
var beginnings = map[string]string{
	"markAny":          "part of mark and markAlone",
	"submitJobs":       "part of submitPlain and submitFull",
	"SELECT version()": "sent once by Open, to know the database",
	"SELECT COALESCE(max(version_id), 0) FROM schema_version WHERE is_applied": "migration",
	"CREATE TABLE IF NOT EXISTS schema_lock ":                                  "migration",
	"INSERT INTO schema_lock ":                                                 "migration",
	"UPDATE schema_lock ":                                                      "migration",
	"ROLLBACK":                                                                 "a transaction that failed",
}

var (
	costs = regexp.MustCompile(` +\(cost=[^)]*\)`)
	verb  = regexp.MustCompile(`^(SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|DROP|TRUNCATE|BEGIN|COMMIT|ROLLBACK|SAVEPOINT|SET|SHOW|EXPLAIN|LOCK|COPY)\b`)
	index = regexp.MustCompile(`(?:Scan (?:Backward )?using (\w+)|Bitmap Index Scan on (\w+))`)
)

func explainable(text string) bool { return text != "BEGIN" && text != "COMMIT" }
