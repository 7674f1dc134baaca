package checker

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job/schedule"
)

var zero = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// at is a moment of the history, in seconds after its beginning.
func at(seconds float64) time.Time {
	return zero.Add(time.Duration(seconds * float64(time.Second))).Truncate(time.Microsecond)
}

// ran adds a run that did its work at once, with its lines.
func ran(h *History, j *Job, id string, scheduled, started float64) {
	j.Runs = append(j.Runs, Run{
		ID: id, Origin: "schedule", State: "succeeded", Reason: "ok", Scheduled: at(scheduled), EndedAt: at(started + 0.1),
		Attempts: []Attempt{{RunID: id, Attempt: 1, Dispatch: 1, State: "succeeded", Reason: "ok", Started: at(started), EndedAt: at(started + 0.1)}},
	})
	worked(h, id, 1, 1, 100, started, 0.1, true)
}

func worked(h *History, id string, attempt int32, dispatch int64, group int, from, long float64, end bool) {
	l := Line{Kind: Start, RunID: id, Attempt: attempt, Dispatch: dispatch, Group: group, At: at(from)}
	h.Work = append(h.Work, l)
	l.Kind, l.At = Alive, at(from+long)
	if end {
		l.Kind = End
	}
	h.Work = append(h.Work, l)
}

// The jobs of the clean history, by their place in it.
const (
	once = iota
	series
	retried
	cancelled
	paused
	moved
	deleted
	triggered
	jittered
	late
)

// clean is a history as it should be, with one job of each sort.
func clean() *History {
	h := &History{Jobs: make([]Job, 10), Slots: map[string]int{"default": 2}}
	for i, id := range []string{"once", "series", "retried", "cancelled", "paused", "moved", "deleted", "triggered", spreadID, "late"} {
		h.Jobs[i] = Job{ID: id, Namespace: "a", Found: true, Answered: at(0.1), CreatedAt: at(0), MaxAttempts: 3, Schedule: schedule.Schedule{Kind: schedule.Once, At: at(1)}}
	}
	every := func(from, to float64) schedule.Schedule {
		return schedule.Schedule{Kind: schedule.Every, Period: time.Second, Anchor: at(from), End: at(to)}
	}
	skip := func(j *Job, id, reason string, from, through float64, n int64) {
		j.Runs = append(j.Runs, Run{ID: id, Origin: "schedule", State: "skipped", Reason: reason, Scheduled: at(from), EndedAt: at(through + 0.2), Through: at(through), Count: n})
	}

	ran(h, &h.Jobs[once], "r-once", 1, 1.02)

	s := &h.Jobs[series] // 1, 2 and 3 skipped, 4
	s.Schedule = every(1, 4.5)
	ran(h, s, "r-1", 1, 1.01)
	skip(s, "r-2", "missed", 2, 3.999999, 2)
	ran(h, s, "r-4", 4, 4.3)

	r := &h.Jobs[retried] // killed in its first attempt, failed, then done
	r.Runs = []Run{{ID: "r-retried", Origin: "schedule", State: "succeeded", Scheduled: at(1), Attempts: []Attempt{
		{RunID: "r-retried", Attempt: 1, Dispatch: 1, State: "failed", Reason: "lost"}, {RunID: "r-retried", Attempt: 2, Dispatch: 3, State: "succeeded"},
	}}}
	worked(h, "r-retried", 1, 1, 1, 1, 1, false)
	worked(h, "r-retried", 1, 2, 2, 2.5, 0.5, true)
	worked(h, "r-retried", 2, 3, 3, 3.5, 0.5, true)

	c := &h.Jobs[cancelled] // a start within the heartbeat is excused
	c.Changes = []Change{{Kind: Cancel, RunID: "r-cancelled", Requested: at(1), Answered: at(1.1)}}
	c.Runs = []Run{{ID: "r-cancelled", Origin: "schedule", State: "cancelled", Scheduled: at(1), Attempts: []Attempt{{RunID: "r-cancelled", Attempt: 1, Dispatch: 1, State: "cancelled"}}}}
	worked(h, "r-cancelled", 1, 1, 1, 2, 0.1, false)

	p := &h.Jobs[paused]
	p.Schedule = every(1, 9.5)
	p.Changes = []Change{{Kind: Pause, Requested: at(1.2), Answered: at(1.3)}, {Kind: Resume, Requested: at(7.2), Answered: at(7.3)}}
	ran(h, p, "p-1", 1, 1.01)
	skip(p, "p-2", "paused", 2, 7, 6)
	ran(h, p, "p-8", 8, 8.01)
	ran(h, p, "p-9", 9, 9.01)

	m := &h.Jobs[moved] // 1, 2, then from 3.5 on
	m.Schedule = every(1, 4.9)
	m.Changes = []Change{{Kind: Update, Requested: at(2.4), Answered: at(2.6), Schedule: every(2.5, 4.9)}}
	ran(h, m, "m-1", 1, 1.01)
	ran(h, m, "m-2", 2, 2.01)
	ran(h, m, "m-3", 3.5, 3.51)
	ran(h, m, "m-4", 4.5, 4.51)

	d := &h.Jobs[deleted]
	d.Schedule = every(1, 9.5)
	d.Changes = []Change{{Kind: Delete, Requested: at(2.2), Answered: at(2.3)}}
	ran(h, d, "d-1", 1, 1.01)
	ran(h, d, "d-2", 2, 2.01)

	t := &h.Jobs[triggered] // once at its time, once when asked for
	t.Changes = []Change{{Kind: Trigger, RunID: "t-asked", Requested: at(2), Answered: at(2.1)}}
	ran(h, t, "t-1", 1, 1.01)
	ran(h, t, "t-asked", 2.05, 2.2)
	t.Runs[1].Origin = "trigger"

	v := &h.Jobs[jittered]
	v.Schedule = every(1, 2.5)
	v.Schedule.Jitter = 500 * time.Millisecond
	for i, id := range []string{"v-1", "v-2"} {
		when := float64(i + 1)
		ran(h, v, id, when, when+v.Schedule.JitterFor(uuid.MustParse(v.ID), at(when)).Seconds()+0.01)
	}

	// Late in every way that is excused: a fault, and its recovery; both slots taken; a pause; and then not for long.
	l := &h.Jobs[late]
	l.Queue, l.Schedule.At = "a/slow", at(100)
	h.Slots["a/slow"] = 1
	h.Disturbed = []Window{{at(101), at(105)}}
	l.Changes = []Change{{Kind: Pause, Requested: at(117.5), Answered: at(117.6)}, {Kind: Resume, Requested: at(130), Answered: at(130.1)}}
	worked(h, "t-asked", 1, 2, 200, 133, 20, false) // of another queue, and yet it may take the slot
	ran(h, l, "l-1", 100, 155)

	h.Foreign = []ForeignCall{
		{Namespace: "b", Call: "CancelRun", JobID: "once", RunID: "r-once", Requested: at(0.5), Code: "not_found"},
		{Namespace: "b", Call: "DeleteJob", JobID: "cancelled", Requested: at(0.5), Code: "not_found"},
		{Namespace: "a", Call: "ListJobs", Listed: []string{"once", "series"}, Code: "ok"},
		{Namespace: "b", Call: "ListJobs", Listed: []string{"nobody's"}, Code: "ok"},
	}
	h.Poison = []Poison{{What: "garbage", Want: "dead.submit.a", Ended: []string{"dead.submit.a"}, Reason: "no JSON"}, {What: "a status of nobody"}}
	h.Seen = []Attempt{h.Jobs[once].Runs[0].Attempts[0], h.Jobs[retried].Runs[0].Attempts[0]}
	h.Left.Streams = []Stream{{Name: "RUNS-1"}}
	return h
}

// spreadID is a real id: jitter is drawn from it.
const spreadID = "72240e32-00a6-5a97-bcc2-37fb9239072f"

func TestCleanHistoryPasses(t *testing.T) {
	t.Parallel()
	for _, v := range Check(clean()) {
		t.Error(v)
	}
}

// A cancel or a pause is not acknowledged before the run is out of reach of executors, so only a NATS that has lost it excuses what begins. That is counted.
func TestStartsOfWhatNATSLostAreExcused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		after      ChangeKind
		lost       Window
		violations int
		excused    int
	}{
		{"pause", Pause, Window{at(1.5), at(4)}, 0, 1},
		{"pause, lost long before", Pause, Window{at(-9), at(-6)}, 1, 0},
		{"pause, lost long after the answer", Pause, Window{at(4.5), at(9)}, 1, 0},
		{"cancel", Cancel, Window{at(1.5), at(4)}, 0, 1},
		{"cancel, lost long before", Cancel, Window{at(-9), at(-6)}, 1, 0},
	} {
		h := clean()
		if tt.after == Pause {
			j := &h.Jobs[cancelled]
			j.Changes[0].Kind, j.Runs[0].State = Pause, "succeeded"
			j.Runs[0].Attempts = []Attempt{{RunID: "r-cancelled", Attempt: 1, Dispatch: 2, State: "succeeded"}}
		}
		worked(h, "r-cancelled", 1, 2, 2, 4.9, 0.1, tt.after == Pause)
		h.Lost = []Window{tt.lost}
		if v, n := Check(h), Excused(h); len(v) != tt.violations || n[tt.after] != tt.excused {
			t.Errorf("%s: %v, and excused: %v", tt.name, v, n)
		}
	}
}

// Each doctored history breaks the one invariant that it is meant to, and no other.
func TestEachInvariantIsSeen(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		breaks int
		doctor func(h *History)
	}{
		{"job is gone", 1, func(h *History) {
			h.Jobs[once].Found = false
			h.Jobs[once].Runs, h.Work, h.Seen = nil, without(h.Work, "r-once"), h.Seen[1:]
		}},
		{"run is gone", 1, func(h *History) { h.Jobs[once].Runs, h.Work, h.Seen = nil, without(h.Work, "r-once"), h.Seen[1:] }},
		{"work of an unknown run", 1, func(h *History) { worked(h, "nobody", 1, 1, 1, 2, 1, true) }},
		{"run beside a skip", 1, func(h *History) { ran(h, &h.Jobs[series], "r-2", 2, 2.01) }},
		{"two runs of one occurrence", 1, func(h *History) { ran(h, &h.Jobs[series], "r-4b", 4, 4.4) }},
		{"success without work", 1, func(h *History) { h.Work = without(h.Work, "r-once") }},
		{"gap", 2, func(h *History) { h.Jobs[series].Runs, h.Work = h.Jobs[series].Runs[:2], without(h.Work, "r-4") }},
		{"gap at the end of an update", 2, func(h *History) { h.Jobs[moved].Runs, h.Work = h.Jobs[moved].Runs[:3], without(h.Work, "m-4") }},
		{"extra occurrence", 2, func(h *History) { ran(h, &h.Jobs[series], "extra", 1.5, 1.6) }},
		{"occurrence of the old schedule", 2, func(h *History) { ran(h, &h.Jobs[moved], "extra", 3, 3.1) }},
		{"occurrence after a delete", 2, func(h *History) { ran(h, &h.Jobs[deleted], "extra", 4, 4.1) }},
		{"one-time job at another time", 2, func(h *History) { ran(h, &h.Jobs[once], "extra", 2, 2.1) }},
		{"skip counts wrong", 2, func(h *History) { h.Jobs[series].Runs[1].Count = 3 }},
		{"attempts overlap", 3, func(h *History) { worked(h, "r-retried", 1, 1, 1, 1, 1.7, false) }},
		{"a dispatch twice", 3, func(h *History) { worked(h, "r-retried", 2, 3, 9, 5, 0.1, true) }},
		{"an older dispatch later", 3, func(h *History) { worked(h, "r-retried", 1, 2, 9, 5, 0.1, true) }},
		{"too early", 4, func(h *History) { h.Work = without(h.Work, "r-once"); worked(h, "r-once", 1, 1, 1, 0.9, 0.1, true) }},
		{"start after a cancel", 4, func(h *History) { worked(h, "r-cancelled", 1, 2, 2, 4.2, 0.1, false) }},
		{"start in a pause", 4, func(h *History) { worked(h, "p-1", 1, 2, 2, 5, 0.1, true) }},
		{"start after a delete", 4, func(h *History) { worked(h, "d-2", 1, 2, 2, 5.4, 0.1, true) }},
		{"too many attempts are worked on", 5, func(h *History) { worked(h, "r-retried", 4, 4, 4, 5, 0.1, true) }},
		{"too many attempts in history", 5, func(h *History) { h.Jobs[retried].Runs[0].Attempts[1].Attempt = 4 }},
		{"a success that was to fail", 1, func(h *History) { h.Jobs[retried].Fails = 2 }},
		{"two skips of one occurrence", 1, func(h *History) { h.Jobs[series].Runs = append(h.Jobs[series].Runs, h.Jobs[series].Runs[1]) }},
		{"given up with attempts left", 5, func(h *History) {
			h.Jobs[retried].Runs[0].State, h.Jobs[retried].Runs[0].Attempts[1].State = "failed", "failed"
		}},
		{"cancelled by nobody", 2, func(h *History) {
			r := &h.Jobs[triggered].Runs[1]
			r.State, r.Attempts[0].State = "cancelled", "cancelled"
		}},
		{"skipped for a pause that nobody asked for", 2, func(h *History) { h.Jobs[series].Runs[1].Reason = "paused" }},
		{"a doomed job succeeds", 1, func(h *History) { h.Jobs[once].Doomed = true }},
		{"a triggered run is gone", 2, func(h *History) {
			h.Jobs[triggered].Changes[0].RunID = "t-other"
			h.Jobs[triggered].Unsure = []Change{{Kind: Trigger}}
		}},
		{"a run that nobody triggered", 2, func(h *History) { h.Jobs[triggered].Changes = nil }},
		{"a trigger makes two runs", 2, func(h *History) {
			ran(h, &h.Jobs[triggered], "t-extra", 3, 3.1)
			h.Jobs[triggered].Runs[2].Origin = "trigger"
		}},
		{"before its jitter", 4, func(h *History) { h.Work = without(h.Work, "v-2"); worked(h, "v-2", 1, 1, 1, 2.001, 0.1, true) }},
		{"another namespace is answered", 6, func(h *History) { h.Foreign[0].Code = "ok" }},
		{"another namespace learns that it exists", 6, func(h *History) { h.Foreign[0].Code = "failed_precondition" }},
		{"another namespace lists it", 6, func(h *History) { h.Foreign[3].Listed = []string{"series"} }},
		{"another namespace cancels it", 6, func(h *History) {
			h.Jobs[once].Runs[0].State, h.Jobs[once].Runs[0].Attempts[0].State = "cancelled", "cancelled"
			h.Seen = h.Seen[1:]
		}},
		{"another namespace triggers it", 6, func(h *History) {
			h.Foreign[0].Call = "TriggerJob"
			ran(h, &h.Jobs[once], "extra", 3, 3.1)
			h.Jobs[once].Runs[1].Origin = "trigger"
		}},
		{"waits beside free slots", 7, func(h *History) { h.Work = without(h.Work, "l-1"); worked(h, "l-1", 1, 1, 1, 158, 0.1, true) }},
		{"waits in quiet times", 7, func(h *History) { h.Disturbed = nil }},
		{"waits beside one of two slots", 7, func(h *History) { h.Slots["a/slow"] = 2 }},
		{"waits after its resume", 7, func(h *History) {
			h.Jobs[late].Changes[0].Requested, h.Jobs[late].Changes[1].Answered = at(116), at(119)
		}},
		{"poison is nowhere", 9, func(h *History) { h.Poison[0].Ended = nil }},
		{"poison ends elsewhere", 9, func(h *History) { h.Poison[0].Ended = []string{"dead.status"} }},
		{"poison has no reason", 9, func(h *History) { h.Poison[0].Reason = "" }},
		{"what is to be passed over ends somewhere", 9, func(h *History) { h.Poison[1].Ended = []string{"dead.status"} }},
		{"two final rows", 8, func(h *History) { h.Jobs[once].Runs = append(h.Jobs[once].Runs, h.Jobs[once].Runs[0]) }},
		{"history changes", 8, func(h *History) { h.Seen[0].Code = 7 }},
		{"history goes", 8, func(h *History) { h.Seen[0].Attempt = 2 }},
		{"attempt after the final one", 8, func(h *History) { h.Jobs[retried].Runs[0].Attempts[0].State = "cancelled" }},
		{"run goes on", 9, func(h *History) { h.Jobs[cancelled].Runs[0].State = "running" }},
		{"row is left", 9, func(h *History) { h.Left.Timers = []Timer{{RunID: "r-once", Step: "dispatched"}} }},
		{"message is left", 9, func(h *History) { h.Left.Streams[0].Messages = 1 }},
		{"series without a future", 9, func(h *History) { h.Left.Endless = []string{"series"} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := clean()
			tt.doctor(h)
			got := map[int]bool{}
			for _, v := range Check(h) {
				got[v.Invariant] = true
				if v.Invariant != tt.breaks {
					t.Log(v)
				}
			}
			if diff := cmp.Diff(map[int]bool{tt.breaks: true}, got); diff != "" {
				t.Errorf("invariants broken (-want +got):\n%s", diff)
			}
		})
	}
}

// without drops the lines of a run.
func without(lines []Line, run string) []Line {
	var out []Line
	for _, l := range lines {
		if l.RunID != run {
			out = append(out, l)
		}
	}
	return out
}
