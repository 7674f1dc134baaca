// Package checker holds the history of a fault run against what must always hold.
//
// It is pure: what clients were told, what the jobs themselves wrote, what the API shows at the end and what is left in SQL and JetStream go in, violations
// come out. It starts nothing, reads no clock and opens no connection; package chaos/harness gathers a History and calls Check.
//
// All times are of one machine's clock, which is also that of the database.
package checker

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/waterclock-io/waterclock/job/schedule"
)

// Heartbeat is how long after an acknowledged cancel, pause or delete a start is still excused.
const Heartbeat = 3 * time.Second

// clockSlack is how far the estimate of database time that a planner goes by may be off on one machine.
const clockSlack = 5 * time.Millisecond

// The invariants, by their numbers in the design; names are what a report prints.
var names = map[int]string{
	1: "every acknowledged submit is findable, each occurrence has exactly one terminal outcome",
	2: "occurrences are those of the schedule, less recorded skips, and of the triggers",
	3: "no two attempts of a run at once, no dispatch twice, none after a higher one",
	4: "no start before its time, none after an acknowledged cancel, pause or delete",
	5: "attempts are at most the maximum",
	6: "a namespace never sees or changes another",
	7: "with a free slot no due run waits longer than the bound",
	8: "history never changes, one final row per run",
	9: "everything due is terminal and the streams are drained after the faults",
}

// Violation is one thing that must not have happened.
type Violation struct {
	Invariant int
	JobID     string
	RunID     string
	Detail    string
}

func (v Violation) String() string {
	return fmt.Sprintf("invariant %d (%s): job %s run %s: %s", v.Invariant, names[v.Invariant], v.JobID, v.RunID, v.Detail)
}

// ChangeKind is what a client asked of a job after its submit.
type ChangeKind string

// The kinds of change.
const (
	Cancel ChangeKind = "cancel"
	Pause  ChangeKind = "pause"
	Resume ChangeKind = "resume"
	Update ChangeKind = "update"
	Delete ChangeKind = "delete"
	// Trigger asks for a run beside the schedule.
	Trigger ChangeKind = "trigger"
)

// Change is an acknowledged request. It took effect at some moment between its first try and its answer.
type Change struct {
	Kind      ChangeKind
	RunID     string // cancel: the run that was named; trigger: the run that the answer named
	Requested time.Time
	Answered  time.Time
	Schedule  schedule.Schedule // update: the new one
}

// Job is an acknowledged submit.
type Job struct {
	ID          string
	Namespace   string // empty where there is but one
	Queue       string // as History.Slots has it; empty means default
	Number      int    // what its command writes
	Answered    time.Time
	Schedule    schedule.Schedule
	MaxAttempts int32
	// Fails is how many of its first attempts fail by themselves.
	Fails   int32
	Overlap string // allow, else forbid
	CatchUp string // as it was asked for; nothing is held against it
	// Doomed: its command kills the executor under it, every time.
	Doomed bool
	// Changes are in the order of their answers; a job has one client, which asks for a pause and its resume one after the other.
	Changes []Change
	// Unsure are changes that were asked for and not acknowledged: each may have had its effect once, or not.
	Unsure []Change

	// What GetJob and ListRuns gave at the end.
	Found     bool
	CreatedAt time.Time
	Runs      []Run
}

// Run is a row of ListRuns, with the attempts of GetRun.
type Run struct {
	ID        string
	Origin    string // schedule or trigger
	State     string // succeeded, failed, cancelled, skipped, or one of a run that goes on
	Reason    string
	Scheduled time.Time
	Attempts  []Attempt
	EndedAt   time.Time // zero while it goes on
	// Of a skip: the last occurrence it stands for, and how many.
	Through time.Time
	Count   int64
}

// Ended tells whether the run is terminal.
func (r *Run) Ended() bool {
	return r.State == "succeeded" || r.State == "failed" || r.State == "cancelled" || r.State == "skipped"
}

// Attempt is a row of history as the API shows it.
type Attempt struct {
	RunID    string
	Attempt  int32
	Dispatch int64
	State    string
	Reason   string
	Code     int32
	Executor string
	Started  time.Time
	EndedAt  time.Time
}

// Stream is what is left in a JetStream stream, or for a consumer.
type Stream struct {
	Name     string
	Messages uint64
}

// Timer is a row that is left in SQL.
type Timer struct {
	JobID    string
	RunID    string
	Step     string
	DueAt    time.Time
	Attempt  int32
	Dispatch int64
}

// Left is what remains after the time that work has to come to its end. Everything in it is due: the harness lets no job outlive its load.
type Left struct {
	Timers  []Timer
	Streams []Stream
	// Endless are active series that have no future run.
	Endless []string
}

// History is all that is known of a fault run.
type History struct {
	Jobs []Job
	Work []Line
	// Seen are rows of history that were read while faults went on.
	Seen []Attempt
	Left Left

	// Disturbed are the times in which a fault lasted, each until what it hit was up again. Recovery comes on top.
	Disturbed []Window
	// Lost are those of them in which NATS lost what it had, or had back what was deleted: what was taken back can begin. Beside invariant 4, Excused counts that.
	Lost []Window
	// Slots are how many runs all executors that serve a queue may work on at once. A queue of a namespace is "namespace/queue", the shared one "default".
	// Of a queue that is missing nothing is said.
	Slots map[string]int
	// Foreign are answers to clients of one namespace about jobs and runs of another, and their lists.
	Foreign []ForeignCall
	// Poison are messages that nobody can take, and where they ended.
	Poison []Poison
}

func newCheck(h *History) *check {
	c := &check{h: h, runs: map[string]*Run{}, jobOf: map[string]*Job{}, sessions: sessions(h.Work), of: map[string][]session{}, excused: map[ChangeKind]int{}}
	for _, s := range c.sessions {
		c.of[s.RunID] = append(c.of[s.RunID], s)
	}
	for i := range h.Jobs {
		j := &h.Jobs[i]
		for k := range j.Runs {
			c.runs[j.Runs[k].ID], c.jobOf[j.Runs[k].ID] = &j.Runs[k], j
		}
	}
	return c
}

// Check returns what must not have happened, ordered by invariant and job.
func Check(h *History) []Violation {
	c := newCheck(h)
	for i := range h.Jobs {
		j := &h.Jobs[i]
		if !j.Found {
			c.add(1, j.ID, "", "acknowledged at %s and not found", stamp(j.Answered))
			continue
		}
		c.outcomes(j)
		c.successes(j)
		c.occurrences(j)
		c.triggers(j)
		c.rows(j)
		c.unasked(j)
		c.holds(j)
	}
	c.work()
	c.waits()
	c.foreign()
	c.poison()
	c.seen()
	c.left()
	slices.SortStableFunc(c.found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Invariant, b.Invariant), cmp.Compare(a.JobID, b.JobID), cmp.Compare(a.RunID, b.RunID), cmp.Compare(a.Detail, b.Detail))
	})
	return c.found
}

type check struct {
	h        *History
	runs     map[string]*Run
	jobOf    map[string]*Job
	sessions []session
	of       map[string][]session // by run
	found    []Violation
	excused  map[ChangeKind]int
}

func (c *check) add(invariant int, jobID, runID, format string, args ...any) {
	c.found = append(c.found, Violation{invariant, jobID, runID, fmt.Sprintf(format, args...)})
}

func stamp(t time.Time) string { return t.UTC().Format("15:04:05.000000") }
