package control_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/api/control"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/store"
)

var (
	now   = time.Date(2026, 11, 21, 10, 30, 0, 0, time.UTC)
	jobID = uuid.MustParse("11111111-2222-4333-8444-555555555555")
)

func hourly() *job.Job {
	return &job.Job{
		ID: jobID, Namespace: "acme", Version: 3, State: job.Active, Kind: "exec", Queue: "default", QueueNamespace: "_", Priority: job.Normal,
		Spec:      job.Spec{Schedule: schedule.Schedule{Kind: schedule.Every, Period: time.Hour, Anchor: now.Truncate(24 * time.Hour)}},
		CreatedAt: now.Add(-24 * time.Hour), UpdatedAt: now.Add(-24 * time.Hour),
	}
}

func onceAt(at time.Time) *job.Job {
	j := hourly()
	j.Spec.Schedule = schedule.Schedule{Kind: schedule.Once, At: at}
	j.DueAt = at
	return j
}

// at makes a timer of the job's schedule in a step.
func at(j *job.Job, nominal time.Time, s job.Step) store.Timer {
	was := *j
	was.State = job.Active
	t := store.NewTimer(&was, schedule.Occurrence{At: nominal}, nominal)
	t.Step = s
	if s == job.StepWaiting {
		t.WaitReason = store.WaitPaused
	}
	if s.InFlight() {
		t.Dispatch = 1
	}
	if s == job.StepCancelling {
		t.CancelAt = now.Add(-time.Second)
	}
	return t
}

func retrying(t store.Timer) store.Timer {
	t.Attempt, t.Dispatch, t.Listed = 2, 1, true
	return t
}

// text tells a decision in short lines: what happens to which nominal time.
func text(d control.Decision) []string {
	var out []string
	clock := func(t time.Time) string { return t.UTC().Format("02T15:04") }
	if d.Job != nil {
		out = append(out, fmt.Sprintf("job v%d %s", d.Job.Version, d.Job.State))
	}
	for _, k := range d.Remove {
		out = append(out, "remove due "+clock(k.DueAt))
	}
	row := func(verb string, t store.Timer) {
		listed := ""
		if t.Listed {
			listed = " listed"
		}
		out = append(out, fmt.Sprintf("%s %s due %s %s v%d a%d d%d%s", verb, clock(t.ScheduledAt), clock(t.DueAt), t.Step, t.Version, t.Attempt, t.Dispatch, listed))
	}
	for _, t := range d.Put {
		row("put", t)
	}
	for _, t := range d.Set {
		row("set", t)
	}
	for _, r := range d.Runs {
		out = append(out, fmt.Sprintf("run %s %s %s final=%t", clock(r.ScheduledAt), r.Step, r.Reason, r.Final))
	}
	for _, s := range d.Skips {
		out = append(out, fmt.Sprintf("skip %s..%s ×%d %s", clock(s.NominalAt), clock(s.ThroughAt), s.Count, s.Reason))
	}
	for _, t := range d.Withdraw {
		out = append(out, "withdraw "+clock(t.ScheduledAt))
	}
	return out
}

func hour(h int) time.Time { return now.Truncate(24 * time.Hour).Add(time.Duration(h) * time.Hour) }

func paused(j *job.Job) *job.Job {
	j.State, j.Pause = job.Paused, &job.Pause{By: "ann", At: now.Add(-time.Hour), Note: "why"}
	return j
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	update := func(f func(*job.Job)) func(*job.Job, []store.Timer) (control.Decision, error) {
		return func(j *job.Job, ts []store.Timer) (control.Decision, error) {
			return control.Update(j, ts, now, j.Version, f, nil)
		}
	}
	reprioritise := update(func(j *job.Job) { j.Priority = job.High })
	reschedule := update(func(j *job.Job) {
		j.Spec.Schedule = schedule.Schedule{Kind: schedule.Every, Period: 2 * time.Hour, Anchor: hour(0)}
	})
	moveTo := func(h int) func(*job.Job, []store.Timer) (control.Decision, error) {
		return update(func(j *job.Job) { j.Spec.Schedule = schedule.Schedule{Kind: schedule.Once, At: hour(h)} })
	}
	pause := func(j *job.Job, ts []store.Timer) (control.Decision, error) {
		return control.Pause(j, ts, now, "bob", "stop")
	}
	resume := func(j *job.Job, ts []store.Timer) (control.Decision, error) { return control.Resume(j, ts, now, nil) }
	remove := func(j *job.Job, ts []store.Timer) (control.Decision, error) { return control.Delete(j, ts, now) }
	cancelAll := func(j *job.Job, ts []store.Timer) (control.Decision, error) {
		return control.Cancel(j, ts, now, uuid.Nil, nil)
	}
	cancelFirst := func(j *job.Job, ts []store.Timer) (control.Decision, error) {
		return control.Cancel(j, ts, now, ts[0].RunID, nil)
	}

	h := hourly()
	o := onceAt(hour(12))
	for name, c := range map[string]struct {
		job    *job.Job
		timers []store.Timer
		do     func(*job.Job, []store.Timer) (control.Decision, error)
		want   []string
	}{
		"update keeps the next":             {h, []store.Timer{at(h, hour(11), job.StepDue)}, reprioritise, []string{"job v4 active", "set 21T11:00 due 21T11:00 due v4 a1 d0 listed"}},
		"update recomputes the next":        {h, []store.Timer{at(h, hour(11), job.StepDue)}, reschedule, []string{"job v4 active", "remove due 21T11:00", "put 21T12:00 due 21T12:00 due v4 a1 d0 listed"}},
		"update leaves flights":             {h, []store.Timer{at(h, hour(10), job.StepRunning), at(h, hour(11), job.StepDue)}, reschedule, []string{"job v4 active", "remove due 21T11:00", "put 21T12:00 due 21T12:00 due v4 a1 d0 listed", "set 21T10:00 due 21T10:00 running v3 a1 d1 listed"}},
		"update keeps retries":              {h, []store.Timer{retrying(at(h, hour(9), job.StepDue))}, reprioritise, []string{"job v4 active", "set 21T09:00 due 21T09:00 due v4 a2 d1 listed"}},
		"update keeps what is owed":         {h, []store.Timer{at(h, hour(10), job.StepDue)}, reschedule, []string{"job v4 active", "put 21T12:00 due 21T12:00 due v4 a1 d0 listed", "set 21T10:00 due 21T10:00 due v4 a1 d0 listed"}},
		"update of paused skips the missed": {paused(hourly()), []store.Timer{at(h, hour(8), job.StepWaiting)}, reschedule, []string{"job v4 paused", "remove due 21T08:00", "put 21T12:00 due 21T12:00 waiting v4 a1 d0 listed", "skip 21T08:00..21T10:00 ×3 paused"}},
		"update moves a one-time run":       {o, []store.Timer{at(o, hour(12), job.StepDue)}, moveTo(15), []string{"job v4 active", "remove due 21T12:00", "put 21T15:00 due 21T15:00 due v4 a1 d0"}},
		"update of a running one-time":      {o, []store.Timer{at(o, hour(10), job.StepRunning)}, moveTo(15), []string{"job v4 active", "put 21T15:00 due 21T15:00 due v4 a1 d0", "set 21T10:00 due 21T10:00 running v3 a1 d1 listed"}},
		"update of an ended one-time":       {o, nil, moveTo(15), []string{"job v4 active", "put 21T15:00 due 21T15:00 due v4 a1 d0"}},
		"update of an ended, same time":     {o, nil, moveTo(12), []string{"job v4 active"}},
		"update to one-time":                {h, []store.Timer{at(h, hour(11), job.StepDue)}, moveTo(15), []string{"job v4 active", "remove due 21T11:00", "put 21T15:00 due 21T15:00 due v4 a1 d0"}},
		"pause":                             {h, []store.Timer{at(h, hour(9), job.StepRunning), at(h, hour(11), job.StepDue)}, pause, []string{"job v4 paused", "set 21T09:00 due 21T09:00 running v4 a1 d1 listed", "set 21T11:00 due 21T11:00 waiting v4 a1 d0 listed"}},
		"resume in time":                    {paused(hourly()), []store.Timer{at(h, hour(11), job.StepWaiting)}, resume, []string{"job v4 active", "set 21T11:00 due 21T11:00 due v4 a1 d0 listed"}},
		"resume late":                       {paused(hourly()), []store.Timer{at(h, hour(7), job.StepWaiting)}, resume, []string{"job v4 active", "remove due 21T07:00", "put 21T11:00 due 21T11:00 due v4 a1 d0 listed", "skip 21T07:00..21T10:00 ×4 paused"}},
		"resume a late one-time":            {paused(onceAt(hour(9))), []store.Timer{at(onceAt(hour(9)), hour(9), job.StepWaiting)}, resume, []string{"job v4 active", "remove due 21T09:00", "put 21T09:00 due 21T10:30 due v4 a1 d0 listed"}},
		"resume a late retry":               {paused(hourly()), []store.Timer{retrying(at(h, hour(9), job.StepWaiting)), at(h, hour(11), job.StepWaiting)}, resume, []string{"job v4 active", "remove due 21T09:00", "put 21T09:00 due 21T10:30 due v4 a2 d1 listed", "set 21T11:00 due 21T11:00 due v4 a1 d0 listed"}},
		"resume of active":                  {h, []store.Timer{at(h, hour(11), job.StepDue)}, resume, nil},
		"delete the next":                   {h, []store.Timer{at(h, hour(11), job.StepDue)}, remove, []string{"job v4 deleted", "remove due 21T11:00"}},
		"delete an overdue":                 {h, []store.Timer{at(h, hour(8), job.StepDue)}, remove, []string{"job v4 deleted", "remove due 21T08:00", "run 21T08:00 cancelled deleted final=true", "skip 21T09:00..21T10:00 ×2 deleted"}},
		"delete a one-time":                 {o, []store.Timer{at(o, hour(12), job.StepDue)}, remove, []string{"job v4 deleted", "remove due 21T12:00", "run 21T12:00 cancelled deleted final=true"}},
		"delete a retry":                    {h, []store.Timer{retrying(at(h, hour(11), job.StepDue))}, remove, []string{"job v4 deleted", "remove due 21T11:00", "run 21T11:00 cancelled deleted final=true"}},
		"delete dispatched":                 {h, []store.Timer{at(h, hour(10), job.StepDispatched)}, remove, []string{"job v4 deleted", "remove due 21T10:00", "run 21T10:00 cancelled deleted final=true", "withdraw 21T10:00"}},
		"delete running":                    {h, []store.Timer{at(h, hour(10), job.StepRunning)}, remove, []string{"job v4 deleted", "set 21T10:00 due 21T10:00 cancelling v3 a1 d1 listed", "withdraw 21T10:00"}},
		"delete cancelling":                 {h, []store.Timer{at(h, hour(10), job.StepCancelling)}, remove, []string{"job v4 deleted", "withdraw 21T10:00"}},
		"cancel all spares the next":        {h, []store.Timer{at(h, hour(10), job.StepRunning), at(h, hour(11), job.StepDue)}, cancelAll, []string{"set 21T10:00 due 21T10:00 cancelling v3 a1 d1 listed", "withdraw 21T10:00"}},
		"cancel the next puts one more":     {h, []store.Timer{at(h, hour(11), job.StepDue)}, cancelFirst, []string{"job v3 active", "remove due 21T11:00", "put 21T12:00 due 21T12:00 due v3 a1 d0 listed", "run 21T11:00 cancelled cancelled final=true"}},
		"cancel a one-time":                 {o, []store.Timer{at(o, hour(12), job.StepDue)}, cancelAll, []string{"remove due 21T12:00", "run 21T12:00 cancelled cancelled final=true"}},
		"cancel dispatched makes its next":  {h, []store.Timer{at(h, hour(10), job.StepDispatched)}, cancelFirst, []string{"job v3 active", "remove due 21T10:00", "put 21T11:00 due 21T11:00 due v3 a1 d0 listed", "run 21T10:00 cancelled cancelled final=true", "withdraw 21T10:00"}},
		"cancel of paused keeps it waiting": {paused(hourly()), []store.Timer{at(h, hour(11), job.StepWaiting)}, cancelFirst, []string{"job v3 paused", "remove due 21T11:00", "put 21T12:00 due 21T12:00 waiting v3 a1 d0 listed", "run 21T11:00 cancelled cancelled final=true"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := fmt.Sprintf("%+v %+v", *c.job, c.timers)
			d, err := c.do(c.job, c.timers)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, text(d)); diff != "" {
				t.Error(diff)
			}
			if fmt.Sprintf("%+v %+v", *c.job, c.timers) != before {
				t.Error("the arguments were changed")
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	h := hourly()
	next := []store.Timer{at(h, hour(11), job.StepDue)}
	deleted := hourly()
	deleted.State = job.Deleted
	noop := func(*job.Job) {}
	ended := func(uuid.UUID) bool { return true }
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"update of another version": {second(control.Update(h, next, now, 2, noop, nil)), store.ErrVersion},
		"update of deleted":         {second(control.Update(deleted, nil, now, 3, noop, nil)), store.ErrNotFound},
		"update back to an ended time": {second(control.Update(onceAt(hour(12)), nil, now, 3, func(j *job.Job) {
			j.Spec.Schedule.At = hour(14)
		}, ended)), control.ErrRanBefore},
		"pause of deleted":     {second(control.Pause(deleted, nil, now, "", "")), store.ErrNotFound},
		"pause of completed":   {second(control.Pause(onceAt(hour(9)), nil, now, "", "")), control.ErrCompleted},
		"resume of deleted":    {second(control.Resume(deleted, nil, now, nil)), store.ErrNotFound},
		"delete of deleted":    {second(control.Delete(deleted, nil, now)), nil},
		"trigger of paused":    {second(control.Trigger(paused(hourly()), nil, now, "n", nil)), control.ErrPaused},
		"trigger of deleted":   {second(control.Trigger(deleted, nil, now, "n", nil)), store.ErrNotFound},
		"trigger run before":   {second(control.Trigger(h, nil, now, "n", ended)), control.ErrRanBefore},
		"cancel of an unknown": {second(control.Cancel(h, next, now, uuid.New(), nil)), store.ErrNotFound},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: got %v, want %v", name, c.err, c.want)
		}
	}
}

func second(_ control.Decision, err error) error { return err }

func TestTriggerAgainIsTheSameRun(t *testing.T) {
	t.Parallel()
	h := hourly()
	first, err := control.Trigger(h, nil, now, "n", nil)
	if err != nil || len(first.Put) != 1 {
		t.Fatal(first, err)
	}
	run := first.Put[0]
	if run.RunID != control.TriggerRunID(h, "n") || !run.ScheduledAt.Equal(now) || !run.DueAt.Equal(now) || run.Origin != job.FromTrigger {
		t.Errorf("%+v", run)
	}
	again, err := control.Trigger(h, first.Put, now.Add(time.Hour), "n", nil)
	if err != nil || len(again.Put) != 0 || again.Job != nil {
		t.Errorf("again: %v %v", text(again), err)
	}
	if control.TriggerRunID(h, "other") == run.RunID {
		t.Error("another nonce is another run")
	}
}

func TestPauseAgainKeepsWhoPaused(t *testing.T) {
	t.Parallel()
	j := paused(hourly())
	ts := []store.Timer{at(j, hour(11), job.StepWaiting)}
	d, err := control.Pause(j, ts, now, "bob", "")
	if err != nil || d.Job != nil {
		t.Errorf("without a note: %v %v", text(d), err)
	}
	d, err = control.Pause(j, ts, now, "bob", "another reason")
	if err != nil || d.Job.Pause.By != "bob" || !strings.Contains(d.Job.Pause.Note, "another") {
		t.Errorf("with a note: %+v %v", d.Job, err)
	}
}

func TestCancelledOccurrenceDoesNotComeBack(t *testing.T) {
	t.Parallel()
	h := hourly()
	next := at(h, hour(11), job.StepDue)
	ended := func(run uuid.UUID) bool { return run == next.RunID }
	after := at(h, hour(12), job.StepDue)
	d, err := control.Update(h, []store.Timer{after}, now, 3, func(j *job.Job) { j.Spec.Schedule.Jitter = time.Second }, ended)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(d.Put, d.Set...) {
		if p.RunID == next.RunID {
			t.Error("the cancelled occurrence was made again")
		}
	}
}

// An occurrence that waits while its schedule is changed twice is run, and what the second schedule made meanwhile is not skipped because of it.
func TestTwoUpdatesWhileAnOccurrenceWaits(t *testing.T) {
	t.Parallel()
	j := hourly()
	first := at(j, hour(10), job.StepDue)
	every := func(period time.Duration, anchor time.Time) func(*job.Job) {
		return func(c *job.Job) {
			c.Spec.Schedule = schedule.Schedule{Kind: schedule.Every, Period: period, Anchor: anchor}
		}
	}
	d, err := control.Update(j, []store.Timer{first}, now, j.Version, every(2*time.Hour, now.Add(time.Minute)), nil)
	if err != nil || len(d.Set) != 1 || len(d.Put) != 1 {
		t.Fatalf("the first update: %v %v", text(d), err)
	}
	left, second := d.Set[0], d.Put[0]
	d, err = control.Update(d.Job, []store.Timer{left, second}, now.Add(2*time.Minute), d.Job.Version, every(3*time.Hour, now.Add(time.Hour)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Skips) > 0 || len(d.Remove) > 0 || len(d.Put) != 1 || len(d.Set) != 2 {
		t.Errorf("two occurrences wait, and the second update decides %v", text(d))
	}
}

// A series whose last occurrence is cancelled ahead of its time is completed: nothing of it will run.
func TestCancelOfTheLastOccurrenceCompletesItsSeries(t *testing.T) {
	t.Parallel()
	j := hourly()
	j.Spec.Schedule.End = hour(11).Add(time.Minute)
	last := at(j, hour(11), job.StepDue)
	d, err := control.Cancel(j, []store.Timer{last}, now, last.RunID, nil)
	if err != nil || d.Job == nil || d.Job.State != job.Completed {
		t.Errorf("%v %v", text(d), err)
	}
	// Nor does what was cancelled let the series go on after a pause.
	d, err = control.Resume(paused(j), nil, now, func(run uuid.UUID) bool { return run == last.RunID })
	if err != nil || d.Job == nil || d.Job.State != job.Completed {
		t.Errorf("%v %v", text(d), err)
	}
}
