package crdb

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/store"
)

// planned are the statements whose plans must not depend on statistics, with the table that they must reach by an index.
var planned = []struct{ name, text, index string }{
	{"submit", submitPlain, ""}, {"submit with payload", submitFull, ""}, {"look up refused", lookupJobs, "jobs_pkey"},
	{"read due", readDue, "timers_pkey"}, {"mark", mark, "timers_pkey"}, {"mark alone", markAlone, "timers_listed"}, {"as read", asRead, "timers_pkey"},
	{"marked", marked, "timers_pkey"}, {"in flight", readInFlight, "timers_pkey"}, {"timers by key", readTimers, "timers_pkey"},
	{"lock timers", lockTimers, "timers_pkey"}, {"set timers", setTimers, "timers_pkey"}, {"delete timers", deleteTimers, "timers_pkey"},
	{"listed timers", listedTimers, "timers_listed"}, {"live by key", liveProbed, "timers_pkey"}, {"live listed", liveListed, "timers_listed"},
	{"lock rows", lockRows, "timers_pkey"}, {"start", startRows, "timers_pkey"}, {"follow", followRows, "timers_pkey"}, {"end", endRows, "timers_pkey"},
	{"lock jobs", lockJobs, "jobs_pkey"}, {"set jobs", setJobs, "jobs_pkey"}, {"read job", readJob, "jobs_pkey"}, {"read jobs", readJobs, "jobs_pkey"}, {"broken series", brokenSeries, "jobs_sweep"},
	{"last runs", lastRuns, "runs_pkey"}, {"list runs", listRuns, "runs_pkey"}, {"list failures", listFailures, "runs_failed"},
	{"attempts", runAttempts, "runs_pkey"}, {"list skips", listSkips, "skips_pkey"}, {"old runs", oldRuns, "runs_ended"}, {"old skips", oldSkips, "skips_at"},
	{"old jobs", oldJobs, "jobs_pkey"}, {"lock old jobs", lockOldJobs, "jobs_pkey"}, {"delete runs", deleteRuns, "runs_pkey"},
	{"delete skips", deleteSkips, "skips_pkey"}, {"lock job", lockJob, "jobs_pkey"}, {"insert timers", insertTimers, ""}, {"insert runs", insertRuns, ""},
	{"insert skips", insertSkips, ""}, {"set payloads", setPayloads, ""},
}

var scans = regexp.MustCompile(`Seq Scan|Hash Join|Merge Join|Hash (Anti|Semi|Left)`)

// walks tells whether an index is read without a condition.
func walks(plan string) bool {
	lines := strings.Split(plan, "\n")
	for i, line := range lines {
		if strings.Contains(line, "Index Scan") && !strings.Contains(line, "Bitmap") || strings.Contains(line, "Index Only Scan") {
			if i+1 == len(lines) || !strings.Contains(lines[i+1], "Index Cond") {
				return true
			}
		}
	}
	return false
}

// wholeKey is what a look-up of a timer must be.
var wholeKey = regexp.MustCompile(`Index Cond: \(\((t\.)?shard = ANY \(ARRAY\[u\.shard\]\)\) AND \((t\.)?bucket = u\.bucket\) AND \((t\.)?due_at = u\.due_at\) AND \((t\.)?run_id = u\.run_id\)\)`)

func TestPlansWhateverTheStatistics(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	s := open(t, dsn, Options{MaxConns: 2, ReadConns: 1})
	// What statistics know when they are taken; each connection plans anew.
	for _, state := range []string{"nothing", "one job", "many due and none dispatched"} {
		switch state {
		case "one job":
			fill(t, s, 1)
		case "many due and none dispatched":
			fill(t, s, 20_000)
		}
		conn := rawConn(t, dsn)
		run(t, conn, "ANALYZE")
		for name, value := range settings(postgres, Options{}, false) {
			run(t, conn, fmt.Sprintf("SET %s = '%s'", name, value))
		}
		for _, p := range planned {
			plan := explain(t, conn, p.text)
			switch {
			case scans.MatchString(plan):
				t.Errorf("%s, statistics of %s: a scan\n%s", p.name, state, plan)
			case !strings.Contains(plan, p.index):
				t.Errorf("%s, statistics of %s: not by %s\n%s", p.name, state, p.index, plan)
			case walks(plan):
				t.Errorf("%s, statistics of %s: a walk along a whole index\n%s", p.name, state, plan)
			case strings.Contains(p.text, sameKey) && !wholeKey.MatchString(plan):
				t.Errorf("%s, statistics of %s: not by the whole key\n%s", p.name, state, plan)
			}
		}
		if plan := explain(t, conn, submitFull); strings.Count(plan, "hashed SubPlan") != 2 {
			t.Errorf("submit, statistics of %s: new jobs are not looked up by hash\n%s", state, plan)
		}
		if plan := explain(t, conn, readDue); !regexp.MustCompile(`Index Cond: .*shard = u.shard.*bucket >= u.bucket.*ROW\(bucket.*bucket <= .*due_at < `).MatchString(plan) {
			t.Errorf("read due, statistics of %s: the range is not bounded on both sides\n%s", state, plan)
		}
	}
}

// explain returns the generic plan of a statement, the one that a prepared statement runs by.
func explain(t *testing.T, conn *pgx.Conn, text string) string {
	t.Helper()
	params := 0
	for strings.Contains(text, fmt.Sprintf("$%d", params+1)) {
		params++
	}
	run(t, conn, "PREPARE p AS "+text)
	defer run(t, conn, "DEALLOCATE p")
	rows, err := conn.Query(t.Context(), "EXPLAIN EXECUTE p ("+strings.TrimSuffix(strings.Repeat("NULL, ", params), ", ")+")", pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatalf("explain %s: %v", text, err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("explain %s: %v", text, err)
	}
	return strings.Join(lines, "\n")
}

// The tables that grow.
const grown = "'jobs', 'payloads', 'timers', 'runs', 'skips'"

func TestNoCallScansATable(t *testing.T) {
	t.Parallel()
	for _, level := range []Isolation{ReadCommitted, Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			dsn := newDatabase(t)
			first := open(t, dsn, Options{})
			jobs, timers := fill(t, first, 3000)
			conn := rawConn(t, dsn)
			run(t, conn, "ANALYZE") // no row is dispatched, no history
			before := countScans(t, conn)
			s, err := Open(t.Context(), dsn+"&application_name="+secondStore, Options{Isolation: level})
			if err != nil {
				t.Fatal(err)
			}
			useAll(t, s, jobs, timers)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			// Sessions report what they did as they end.
			for sessions(t, conn) > 0 {
				if !pause(t.Context(), 10*time.Millisecond) {
					t.Fatal("sessions did not end")
				}
			}
			if after := countScans(t, conn); after != before {
				t.Errorf("%d sequential scans of tables that grow", after-before)
			}
		})
	}
}

// useAll calls what reads or writes tables that grow.
func useAll(t *testing.T, s *Store, jobs []*job.Job, timers []store.Timer) {
	t.Helper()
	ctx := t.Context()
	try := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	j, far := jobs[0], time.Now().Add(24*time.Hour)
	m := store.Mark{ID: 1, Generation: 1}
	var reports []store.Report
	for i := range 500 {
		m.Items = append(m.Items, store.MarkItem{Key: timers[i].TimerKey, Version: 1, Forbid: i%2 == 0, JobID: timers[i].JobID, ScheduledAt: timers[i].ScheduledAt})
		kind := []store.ReportKind{store.ReportStart, store.ReportFollow, store.ReportEnd, store.ReportEnd}[i%4]
		reports = append(reports, store.Report{Kind: kind, Key: timers[i].TimerKey, JobID: timers[i].JobID, Dispatch: 1, NeedJob: i%8 > 3})
	}
	try(s.Submit(ctx, []store.Submission{{Job: j}}))
	try(s.MarkDispatched(ctx, m))
	try(s.MarkDispatched(ctx, m))
	try(s.Marked(ctx, m))
	var from []store.ShardCursor
	for i := range s.Traits().Shards {
		from = append(from, store.ShardCursor{Shard: i})
	}
	try(s.ReadDue(ctx, from, far, 100))
	try(s.ReadInFlight(ctx, from, far, 10))
	try(s.Record(ctx, reports, func(_ int, tm *store.Timer, _ *job.Job, now time.Time) store.Change {
		return store.Change{Runs: []store.RunRow{tm.History(job.StepFailed, true, "", now)}, Put: []store.Timer{store.Again(*tm, nil, far, 2)}}
	}))
	try(s.ReadTimers(ctx, []store.TimerKey{timers[1].TimerKey}))
	try(s.BrokenSeries(ctx, 0, far, uuid.UUID{}, 10))
	try(s.Job(ctx, j.Namespace, j.ID))
	try(s.JobNamespace(ctx, j.ID))
	for _, q := range []store.JobQuery{{}, {State: job.Active, Queue: "q"}, {State: job.Completed, Kind: "k"}, {Labels: map[string]string{"a": "b"}, NamePrefix: "x"}} {
		q.Namespace, q.Limit = j.Namespace, 10
		try(s.ListJobs(ctx, q))
	}
	try(s.Timers(ctx, jobs[:100]))
	try(s.LastRuns(ctx, []uuid.UUID{j.ID}))
	try(s.ListRuns(ctx, j.ID, store.RunPosition{}, 10))
	try(s.ListFailures(ctx, j.Namespace, store.RunPosition{}, 10))
	try(s.ListSkips(ctx, j.ID, time.Time{}, 10))
	try(s.RunAttempts(ctx, j.ID, timers[0].RunID))
	_, _, err := s.ChangeJob(ctx, j.Namespace, j.ID, func(j *job.Job, ts []store.Timer, now time.Time) (store.Change, error) {
		return store.Change{
			Job: j, PayloadChanged: true, Set: ts, Runs: []store.RunRow{{JobID: j.ID, ScheduledAt: now, EndedAt: now}},
			Skips: []store.SkipRow{{JobID: j.ID, NominalAt: now, ThroughAt: now, Count: 1, At: now}},
		}, nil
	})
	try(nil, err)
	try(s.Purge(ctx, far, 100, nil))
	try(s.Purge(ctx, far, 100_000, nil))
}

func countScans(t *testing.T, conn *pgx.Conn) (n int64) {
	t.Helper()
	err := conn.QueryRow(t.Context(), "SELECT COALESCE(sum(seq_scan), 0)::int8 FROM pg_stat_user_tables WHERE relname IN ("+grown+")").Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

const secondStore = "second"

func sessions(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", secondStore).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// fill stores jobs, every tenth a series, with a payload for every third.
func fill(tb testing.TB, s *Store, n int) ([]*job.Job, []store.Timer) {
	tb.Helper()
	base := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	var jobs []*job.Job
	var timers []store.Timer
	var subs []store.Submission
	for i := range n {
		id := uuid.New()
		at := base.Add(time.Duration(i) * time.Millisecond)
		sched := schedule.Schedule{Kind: schedule.Once, At: at}
		if i%10 == 0 {
			sched = schedule.Schedule{Kind: schedule.Every, Period: time.Minute, Anchor: at}
		}
		j := &job.Job{
			ID: id, Namespace: "ns", Shard: job.ShardOf(id, s.shards), Version: 1, State: job.Active, Kind: "k", Queue: "q", QueueNamespace: "_",
			Priority: job.Normal, Spec: job.Spec{Schedule: sched}, DueAt: at, CreatedAt: base, UpdatedAt: base,
		}
		if i%3 == 0 {
			j.Payload = []byte("payload")
		}
		tm := store.NewTimer(j, schedule.Occurrence{At: at}, at)
		jobs, timers = append(jobs, j), append(timers, tm)
		if subs = append(subs, store.Submission{Job: j, Timer: &tm}); len(subs) == 1000 || i == n-1 {
			if _, err := s.Submit(tb.Context(), subs); err != nil {
				tb.Fatal(err)
			}
			subs = nil
		}
	}
	return jobs, timers
}

func rawConn(tb testing.TB, dsn string) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func run(tb testing.TB, conn *pgx.Conn, text string) {
	tb.Helper()
	if _, err := conn.Exec(tb.Context(), text, pgx.QueryExecModeSimpleProtocol); err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
}
