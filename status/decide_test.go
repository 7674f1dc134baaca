package status

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
)

var (
	noon  = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	steps = []job.Step{
		job.StepNone, job.StepWaiting, job.StepDue, job.StepDispatched, job.StepRunning, job.StepCancelling,
		job.StepSucceeded, job.StepFailed, job.StepCancelled, job.StepSkipped,
	}
	// Those that are decided on: a start sets its row, and a dispatched one follows.
	ending = []wirev1.StatusKind{
		wirev1.StatusKind_STATUS_KIND_SKIPPED, wirev1.StatusKind_STATUS_KIND_SUCCEEDED, wirev1.StatusKind_STATUS_KIND_FAILED,
		wirev1.StatusKind_STATUS_KIND_RELEASED, wirev1.StatusKind_STATUS_KIND_LOST, wirev1.StatusKind_STATUS_KIND_SNOOZED, wirev1.StatusKind_STATUS_KIND_CANCELLED,
	}
)

const attempts = 3

func newJob(recurring bool, state job.State) *job.Job {
	s := schedule.Schedule{Kind: schedule.Once, At: noon}
	if recurring {
		s = schedule.Schedule{Kind: schedule.Every, Period: time.Minute, Anchor: noon}
	}
	return &job.Job{
		ID: uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057"), Namespace: "default", Version: 1, State: state, Kind: "k", Queue: "default",
		QueueNamespace: job.SharedNamespace, Priority: job.Normal, CreatedAt: noon.Add(-time.Hour), UpdatedAt: noon.Add(-time.Hour),
		Spec: job.Spec{Schedule: s, Retry: job.RetryPolicy{MaxAttempts: attempts}},
	}
}

func timerOf(j *job.Job) store.Timer {
	return store.NewTimer(j, schedule.Occurrence{At: noon, Civil: "2026-06-01T12:00:00Z"}, noon)
}

// expected is what the table of the design says of a status, written down a second time.
func expected(kind wirev1.StatusKind, t *store.Timer, j *job.Job, retriable bool) job.Event {
	switch kind {
	case wirev1.StatusKind_STATUS_KIND_SUCCEEDED:
		return job.EventSucceeded
	case wirev1.StatusKind_STATUS_KIND_SKIPPED:
		return job.EventSkip
	case wirev1.StatusKind_STATUS_KIND_CANCELLED:
		return job.EventStopped
	case wirev1.StatusKind_STATUS_KIND_RELEASED, wirev1.StatusKind_STATUS_KIND_SNOOZED:
		return job.EventRequeue
	case wirev1.StatusKind_STATUS_KIND_LOST:
		if t.Step == job.StepDispatched && t.Dispatch-int64(t.Attempt) < 5 {
			return job.EventRequeue
		}
		retriable = true
	}
	if retriable && j != nil && j.State != job.Deleted && t.Attempt < attempts {
		return job.EventRetry
	}
	return job.EventFailed
}

// Every step with every status, job state, attempt and kind of schedule: what becomes of it is what job.Transitions says, and nothing besides.
func TestDecideIsTheStateMachine(t *testing.T) {
	t.Parallel()
	now := noon.Add(10 * time.Second)
	n := 0
	for _, step := range steps {
		for _, kind := range ending {
			for _, state := range []job.State{job.Active, job.Paused, job.Completed, job.Deleted, "gone"} {
				for _, attempt := range []int32{1, attempts} {
					for _, flags := range []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} {
						retriable, recurring, followed, often := flags&1 != 0, flags&2 != 0, flags&4 != 0, flags&8 != 0
						def := newJob(recurring, job.Active)
						row := timerOf(def)
						row.Step, row.Attempt, row.Followed, row.Dispatch = step, attempt, followed, int64(attempt)
						if often {
							row.Dispatch += 5
						}
						j := newJob(recurring, state)
						if state == "gone" {
							j = nil
						}
						e := &event{
							ticket: &wirev1.Ticket{Version: row.Version}, sender: "x",
							status: &wirev1.Status{Kind: kind, Retriable: retriable, Reason: "because", Message: "word", StartedAt: noon.UnixMicro(), EndedAt: now.UnixMicro()},
						}
						name := fmt.Sprintf("%v, %v, job %s, attempt %d, retriable %v, recurring %v, followed %v, often %v", step, kind, state, attempt, retriable, recurring, followed, often)
						judge(t, name, e, row, j, now, retriable)
						n++
					}
				}
			}
		}
	}
	t.Logf("%d cases", n)
}

func judge(t *testing.T, name string, e *event, row store.Timer, j *job.Job, now time.Time, retriable bool) {
	t.Helper()
	said, before := proto.CloneOf(e.status), row
	var jobBefore job.Job
	if j != nil {
		jobBefore = *j
	}
	ev := expected(e.status.Kind, &row, j, retriable)
	got := decide(e, &row, j, now)
	if again := decide(e, &row, j, now); !cmp.Equal(got, again) {
		t.Fatalf("%s: decided twice, it differs: %s", name, cmp.Diff(got, again))
	}
	if !proto.Equal(said, e.status) || before != row || j != nil && !cmp.Equal(jobBefore, *j) {
		t.Fatalf("%s: deciding changed what it was given", name)
	}
	to, allowed := job.Next(row.Step, ev)
	// What waits is not a planner's to decide on.
	if !allowed || row.Step == job.StepWaiting {
		if d := cmp.Diff(store.Change{Put: []store.Timer{row}}, got); d != "" {
			t.Errorf("%s: refused, it must go back as it was: %s", name, d)
		}
		return
	}
	var same, others []store.Timer
	for _, p := range got.Put {
		if p.RunID == row.RunID {
			same = append(same, p)
		} else {
			others = append(others, p)
		}
	}
	// The next occurrence: once, of the definition that the row is of, and only when the run ends.
	follow := to.Terminal() && row.Recurring && !row.Followed && j != nil && (j.State == job.Active || j.State == job.Paused)
	if want := map[bool]int{true: 1}[follow]; len(others) != want {
		t.Errorf("%s: %d next occurrences, want %d", name, len(others), want)
	}
	for _, o := range others {
		step := map[bool]job.Step{true: job.StepWaiting, false: job.StepDue}[j.State == job.Paused]
		if !o.ScheduledAt.Equal(noon.Add(time.Minute)) || o.Step != step || o.Dispatch != 0 || o.Attempt != 1 {
			t.Errorf("%s: the next occurrence is %+v", name, o)
		}
	}
	if to.Terminal() {
		if len(same) != 0 {
			t.Errorf("%s: it has ended, and is put back", name)
		}
		skipped := to == job.StepSkipped && row.Recurring
		if skipped && (len(got.Skips) != 1 || len(got.Runs) != 0 || got.Skips[0].Count != 1 || !got.Skips[0].ThroughAt.Equal(noon)) {
			t.Errorf("%s: want one skip: %+v", name, got)
		}
		if !skipped && (len(got.Runs) != 1 || len(got.Skips) != 0 || !got.Runs[0].Final || got.Runs[0].Step != to || got.Runs[0].Attempt != row.Attempt) {
			t.Errorf("%s: want one final row of %v: %+v", name, to, got)
		}
		return
	}
	want := row.Attempt
	if ev == job.EventRetry {
		want++
		if len(got.Runs) != 1 || got.Runs[0].Final || got.Runs[0].Step != job.StepFailed || got.Runs[0].Attempt != row.Attempt {
			t.Errorf("%s: want one row of a failed attempt: %+v", name, got.Runs)
		}
	} else if len(got.Runs) != 0 {
		t.Errorf("%s: the attempt goes on, and is in history", name)
	}
	wantStep := job.StepDue
	if j != nil && j.State == job.Paused {
		wantStep = job.StepWaiting
	}
	if len(same) != 1 || same[0].Step != wantStep || same[0].Attempt != want || same[0].Attempt > attempts || same[0].Dispatch != row.Dispatch || same[0].DueAt.Before(now) ||
		same[0].Followed != row.Followed {
		t.Errorf("%s: want it %v at attempt %d: %+v", name, wantStep, want, same)
	}
}

func TestLossesBeforeTheStart(t *testing.T) {
	t.Parallel()
	j := newJob(false, job.Active)
	row := timerOf(j)
	var attemptsSeen []int32
	var final []store.RunRow
	for len(final) == 0 && row.Dispatch < 100 {
		row.Step = job.StepDispatched
		row.Dispatch++
		attemptsSeen = append(attemptsSeen, row.Attempt)
		c := decide(&event{ticket: &wirev1.Ticket{Version: 1}, status: &wirev1.Status{Kind: wirev1.StatusKind_STATUS_KIND_LOST, Reason: "lost"}}, &row, j, noon)
		for _, r := range c.Runs {
			if r.Final {
				final = append(final, r)
			}
		}
		if len(c.Put) == 1 {
			row = c.Put[0]
		}
	}
	// Five are free; from then on each costs an attempt.
	if d := cmp.Diff([]int32{1, 1, 1, 1, 1, 1, 2, 3}, attemptsSeen); d != "" {
		t.Errorf("attempts (-want +got):\n%s", d)
	}
	if len(final) != 1 || final[0].Step != job.StepFailed || final[0].Reason != "lost" {
		t.Errorf("it ended as %+v", final)
	}
}

func TestTotalDeadline(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		now   time.Duration // after the nominal time
		delay time.Duration
		made  time.Duration
		retry bool
	}{
		"time enough":                   {now: time.Minute, delay: time.Second, retry: true},
		"just enough":                   {now: 10*time.Minute - time.Second - time.Microsecond, delay: time.Second, retry: true},
		"just too late":                 {now: 10*time.Minute - time.Second, delay: time.Second},
		"over":                          {now: time.Hour, delay: time.Second},
		"the policy's wait is too long": {now: 10*time.Minute - 400*time.Millisecond},
		"counted from the making":       {now: time.Hour, delay: time.Second, made: 55 * time.Minute, retry: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(false, job.Active)
			j.Spec.TotalDeadline, j.CreatedAt = 10*time.Minute, noon.Add(c.made)
			row := timerOf(j)
			row.Step, row.Dispatch = job.StepRunning, 1
			e := &event{ticket: &wirev1.Ticket{Version: 1}, status: &wirev1.Status{Kind: wirev1.StatusKind_STATUS_KIND_FAILED, Retriable: true, Reason: "exit", Message: "exit code 3", Delay: c.delay.Microseconds()}}
			got := decide(e, &row, j, noon.Add(c.now))
			if retry := len(got.Put) == 1; retry != c.retry {
				t.Fatalf("another attempt: %v, want %v", retry, c.retry)
			}
			if !c.retry && (got.Runs[0].Reason != "deadline" || got.Runs[0].Message != "no time for another attempt within the total deadline: exit code 3") {
				t.Errorf("it ended as %+v", got.Runs[0])
			}
		})
	}
}

func TestSeriesGoesOn(t *testing.T) {
	t.Parallel()
	row := func(j *job.Job) *store.Timer {
		r := timerOf(j)
		r.Step, r.Dispatch = job.StepDispatched, 1
		return &r
	}
	told := func(kind wirev1.StatusKind) *event {
		return &event{ticket: &wirev1.Ticket{Version: 1}, status: &wirev1.Status{Kind: kind}}
	}
	j := newJob(true, job.Active)
	c := decide(told(wirev1.StatusKind_STATUS_KIND_DISPATCHED), row(j), j, noon)
	if len(c.Put) != 1 || !c.Put[0].ScheduledAt.Equal(noon.Add(time.Minute)) || len(c.Runs) != 0 {
		t.Errorf("dispatched: %+v", c)
	}
	// A skip that stands for many goes on after the last.
	skip := told(wirev1.StatusKind_STATUS_KIND_SKIPPED)
	skip.status.SkipThrough, skip.status.SkipCount, skip.status.Reason = noon.Add(5*time.Minute-time.Microsecond).UnixMicro(), 5, "missed"
	due := row(j)
	due.Step, due.Dispatch = job.StepDue, 0
	c = decide(skip, due, j, noon.Add(5*time.Minute))
	if len(c.Put) != 1 || !c.Put[0].ScheduledAt.Equal(noon.Add(5*time.Minute)) || len(c.Skips) != 1 || c.Skips[0].Count != 5 {
		t.Errorf("skipped: %+v", c)
	}
	// While the job is paused the next one waits.
	held := newJob(true, job.Paused)
	if c := decide(told(wirev1.StatusKind_STATUS_KIND_DISPATCHED), row(j), held, noon); len(c.Put) != 1 || c.Put[0].Step != job.StepWaiting {
		t.Errorf("dispatched, and then paused: %+v", c)
	}
	// A planner that decided by what a row was before it was paused and resumed is not heard.
	stale := row(j)
	stale.Step, stale.Dispatch, stale.Version = job.StepDue, 0, 3
	if c := decide(skip, stale, held, noon); len(c.Put) != 1 || c.Put[0] != *stale || len(c.Skips) != 0 {
		t.Errorf("a skip of an older version: %+v", c)
	}
	// What was changed meanwhile, or is deleted, is not followed by what it was.
	for name, change := range map[string]func(*job.Job){
		"changed": func(j *job.Job) { j.Version++ }, "deleted": func(j *job.Job) { j.State = job.Deleted },
	} {
		other := newJob(true, job.Active)
		change(other)
		for _, kind := range []wirev1.StatusKind{wirev1.StatusKind_STATUS_KIND_DISPATCHED, wirev1.StatusKind_STATUS_KIND_SUCCEEDED, wirev1.StatusKind_STATUS_KIND_SKIPPED} {
			r := row(j)
			if kind == wirev1.StatusKind_STATUS_KIND_SKIPPED {
				r.Step = job.StepDue
			}
			if c := decide(told(kind), r, other, noon); len(c.Put) != 0 || c.Job != nil {
				t.Errorf("%s, %v: %+v", name, kind, c)
			}
		}
	}
	// The last occurrence completes its job, however it ends.
	last := newJob(true, job.Active)
	last.Spec.Schedule.End = noon.Add(time.Minute)
	for _, kind := range []wirev1.StatusKind{wirev1.StatusKind_STATUS_KIND_SUCCEEDED, wirev1.StatusKind_STATUS_KIND_FAILED, wirev1.StatusKind_STATUS_KIND_SKIPPED} {
		r := row(last)
		if kind == wirev1.StatusKind_STATUS_KIND_SKIPPED {
			r.Step = job.StepDue
		}
		if c := decide(told(kind), r, last, noon); c.Job == nil || c.Job.State != job.Completed || len(c.Put) != 0 {
			t.Errorf("last, %v: %+v", kind, c)
		}
	}
}

// What had begun and comes back says when, so that it is not taken for one that could not start in time; how it ends later says nothing of that.
func TestWhatHadBegunSaysSo(t *testing.T) {
	t.Parallel()
	j := newJob(false, job.Active)
	began := noon.Add(time.Second)
	for _, c := range []struct {
		kind    wirev1.StatusKind
		reason  string
		started int64
		want    time.Time
	}{
		{wirev1.StatusKind_STATUS_KIND_SNOOZED, "snoozed", began.UnixMicro(), began},
		{wirev1.StatusKind_STATUS_KIND_RELEASED, "drained", began.UnixMicro(), began},
		{wirev1.StatusKind_STATUS_KIND_RELEASED, "surplus", 0, time.Time{}},
		{wirev1.StatusKind_STATUS_KIND_LOST, "lost", 0, time.Time{}},
	} {
		row := timerOf(j)
		row.Step, row.Dispatch = job.StepDispatched, 1
		e := &event{status: &wirev1.Status{Kind: c.kind, Reason: c.reason, StartedAt: c.started}, ticket: &wirev1.Ticket{Version: 1}}
		back := decide(e, &row, j, noon.Add(time.Minute))
		if len(back.Put) != 1 || !back.Put[0].StartedAt.Equal(c.want) {
			t.Fatalf("%s: %+v, want a row that began at %s", c.reason, back, c.want)
		}
		again := back.Put[0]
		again.Step, again.Dispatch = job.StepDispatched, 2
		e = &event{status: &wirev1.Status{Kind: wirev1.StatusKind_STATUS_KIND_RELEASED, Reason: "surplus"}, ticket: &wirev1.Ticket{Version: 1}}
		if back := decide(e, &again, j, noon.Add(time.Minute)); len(back.Put) != 1 || !back.Put[0].StartedAt.Equal(c.want) {
			t.Errorf("%s, then given back: %+v, want a row that began at %s", c.reason, back, c.want)
		}
		again.Dispatch = 9
		e = &event{status: &wirev1.Status{Kind: wirev1.StatusKind_STATUS_KIND_LOST, Reason: "lost"}, ticket: &wirev1.Ticket{Version: 1}}
		if lost := decide(e, &again, j, noon.Add(time.Hour)); len(lost.Runs) != 1 || !lost.Runs[0].StartedAt.IsZero() {
			t.Errorf("%s, then lost: %+v", c.reason, lost)
		}
	}
}

// model is one row of SQL, with the guards of the store.
type model struct {
	t       *rapid.T
	j       *job.Job
	rows    map[store.TimerKey]store.Timer
	history []store.RunRow
	tickets []*wirev1.Ticket
	now     time.Time
}

func (m *model) mark() {
	for k, row := range m.rows {
		if to, ok := job.Next(row.Step, job.EventDispatch); ok {
			row.Step, row.Dispatch = to, row.Dispatch+1
			m.rows[k] = row
			m.tickets = append(m.tickets, &wirev1.Ticket{RunId: row.RunID[:], DueAt: row.DueAt.UnixMicro(), Dispatch: row.Dispatch})
		}
	}
}

func (m *model) cancel() {
	for k, row := range m.rows {
		to, ok := job.Next(row.Step, job.EventCancel)
		switch {
		case ok && to.Terminal():
			delete(m.rows, k)
			m.history = append(m.history, row.History(to, true, "cancelled", m.now))
		case ok:
			row.Step = to
			m.rows[k] = row
		}
	}
}

func (m *model) status(ticket *wirev1.Ticket, s *wirev1.Status) {
	k := store.TimerKey{DueAt: micros(ticket.DueAt), RunID: uuid.UUID(ticket.RunId)}
	row, ok := m.rows[k]
	if !ok || row.Dispatch != ticket.Dispatch {
		return
	}
	if s.Kind == wirev1.StatusKind_STATUS_KIND_STARTED {
		if row.Step == job.StepDispatched {
			row.Step = job.StepRunning
			m.rows[k] = row
		}
		return
	}
	c := decide(&event{ticket: ticket, status: s, sender: "x"}, &row, m.j, m.now)
	delete(m.rows, k)
	for _, p := range c.Put {
		m.rows[p.TimerKey] = p
	}
	m.history = append(m.history, c.Runs...)
}

// Whatever is said of a run, in whatever order and however often: it ends once, and within its attempts.
func TestAnySequenceEndsOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &model{t: t, j: newJob(false, job.Active), rows: map[store.TimerKey]store.Timer{}, now: noon}
		row := timerOf(m.j)
		m.rows[row.TimerKey] = row
		kinds := append([]wirev1.StatusKind{wirev1.StatusKind_STATUS_KIND_STARTED}, ending...)
		for range rapid.IntRange(1, 80).Draw(t, "events") {
			m.now = m.now.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "wait")) * time.Second)
			switch act := rapid.IntRange(0, 19).Draw(t, "act"); {
			case act == 0:
				m.cancel()
			case act < 7:
				m.mark()
			case len(m.tickets) > 0:
				m.status(rapid.SampledFrom(m.tickets).Draw(t, "ticket"), &wirev1.Status{
					Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Retriable: rapid.Bool().Draw(t, "retriable"), Delay: rapid.SampledFrom([]int64{0, 1, 1e6}).Draw(t, "delay"),
				})
			}
			m.check()
		}
	})
}

func (m *model) check() {
	finals := 0
	for _, r := range m.history {
		if r.Final {
			finals++
		}
		if r.Attempt > attempts {
			m.t.Fatalf("attempt %d of %d is in history", r.Attempt, attempts)
		}
	}
	seen := map[int32]bool{}
	for _, r := range m.history {
		if seen[r.Attempt] {
			m.t.Fatalf("attempt %d ended twice: %+v", r.Attempt, m.history)
		}
		seen[r.Attempt] = true
	}
	if finals > 1 || finals+len(m.rows) != 1 {
		m.t.Fatalf("%d ends and %d rows: %+v", finals, len(m.rows), m.history)
	}
	for _, r := range m.rows {
		if r.Attempt > attempts || r.Step.Terminal() {
			m.t.Fatalf("a row at attempt %d, %v", r.Attempt, r.Step)
		}
	}
	if d := cmp.Diff(newJob(false, job.Active), m.j, cmpopts.EquateEmpty()); d != "" {
		m.t.Fatalf("the job was changed:\n%s", d)
	}
}
