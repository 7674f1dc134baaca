package control_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/waterclock-io/waterclock/api/control"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/store"
)

// anyJob draws a job with timers as they can stand in a store.
func anyJob(t *rapid.T) (*job.Job, []store.Timer) {
	j := hourly()
	if rapid.Bool().Draw(t, "one-time") {
		j = onceAt(hour(rapid.IntRange(8, 14).Draw(t, "at")))
	}
	if rapid.Bool().Draw(t, "paused") {
		j = paused(j)
	}
	steps := []job.Step{job.StepDue, job.StepDispatched, job.StepRunning, job.StepCancelling}
	if j.State == job.Paused {
		steps[0] = job.StepWaiting
	}
	var timers []store.Timer
	add := func(tm store.Timer) {
		if !slices.ContainsFunc(timers, func(o store.Timer) bool { return o.RunID == tm.RunID }) {
			timers = append(timers, tm)
		}
	}
	step := func() job.Step { return rapid.SampledFrom(steps).Draw(t, "step") }
	if j.Spec.Recurring() {
		for range rapid.IntRange(0, 3).Draw(t, "earlier") {
			tm := retrying(at(j, hour(rapid.IntRange(5, 7).Draw(t, "hour")), step()))
			tm.Followed = true
			add(tm)
		}
		if rapid.Bool().Draw(t, "left over by an earlier update") {
			tm := at(j, hour(rapid.IntRange(5, 7).Draw(t, "left")), steps[0])
			tm.Followed = true
			add(tm)
		}
		// One row at most carries the series on, and it is the latest.
		switch rapid.IntRange(0, 2).Draw(t, "carrier") {
		case 1:
			tm := at(j, hour(rapid.IntRange(10, 12).Draw(t, "next")), steps[0])
			tm.DueAt = tm.DueAt.Add(rapid.SampledFrom([]time.Duration{0, 40 * time.Minute}).Draw(t, "jitter"))
			add(tm)
		case 2:
			add(retrying(at(j, hour(rapid.IntRange(8, 10).Draw(t, "not followed")), step())))
		}
	} else if rapid.Bool().Draw(t, "alive") {
		tm := at(j, j.Spec.Schedule.At, step())
		if rapid.Bool().Draw(t, "retry") {
			tm = retrying(tm)
		}
		add(tm)
	}
	for range rapid.IntRange(0, 2).Draw(t, "triggers") {
		active := *j
		active.State = job.Active
		tm := store.NewTrigger(&active, uuid.NewString(), hour(rapid.IntRange(5, 10).Draw(t, "trigger")), hour(10))
		tm.Step = step()
		if tm.Step.InFlight() {
			tm.Dispatch = 1
		}
		add(tm)
	}
	return j, timers
}

// apply is what a store does with a change.
func apply(t *rapid.T, timers []store.Timer, c store.Change) []store.Timer {
	out := slices.Clone(timers)
	find := func(k store.TimerKey) int {
		return slices.IndexFunc(out, func(o store.Timer) bool { return o.Compare(k) == 0 })
	}
	for _, k := range c.Remove {
		i := find(k)
		if i < 0 {
			t.Fatalf("removes a row that is not there: %v", k)
		}
		out = slices.Delete(out, i, i+1)
	}
	for _, s := range c.Set {
		i := find(s.TimerKey)
		if i < 0 {
			t.Fatalf("sets a row that is not there: %v", s)
		}
		out[i] = s
	}
	for _, p := range c.Put {
		if find(p.TimerKey) < 0 {
			out = append(out, p)
		}
	}
	return out
}

func TestProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		j, before := anyJob(t)
		op := rapid.SampledFrom([]string{"update", "same update", "pause", "resume", "delete", "cancel all", "cancel one", "trigger"}).Draw(t, "op")
		var d control.Decision
		var err error
		switch op {
		case "update":
			d, err = control.Update(j, before, now, j.Version, func(c *job.Job) {
				c.Kind = "http"
				c.Spec.Schedule = rapid.SampledFrom([]schedule.Schedule{
					{Kind: schedule.Every, Period: 90 * time.Minute, Anchor: hour(0)},
					{Kind: schedule.Every, Period: 30 * time.Second, Anchor: hour(0)},
					{Kind: schedule.Once, At: hour(11)}, {Kind: schedule.Once, At: hour(9)},
					{Kind: schedule.Cron, Spec: "0 * * * *", Zone: "UTC"},
				}).Draw(t, "schedule")
			}, nil)
		case "same update":
			d, err = control.Update(j, before, now, j.Version, func(c *job.Job) { c.Kind = "http" }, nil)
		case "pause":
			d, err = control.Pause(j, before, now, "bob", "note")
		case "resume":
			d, err = control.Resume(j, before, now, nil)
		case "delete":
			d, err = control.Delete(j, before, now)
		case "cancel all":
			d, err = control.Cancel(j, before, now, uuid.Nil, nil)
		case "cancel one":
			if len(before) == 0 {
				t.Skip()
			}
			d, err = control.Cancel(j, before, now, rapid.SampledFrom(before).Draw(t, "run").RunID, nil)
		case "trigger":
			d, err = control.Trigger(j, before, now, "n", nil)
		}
		if err != nil {
			if errors.Is(err, control.ErrCompleted) || errors.Is(err, control.ErrPaused) {
				return
			}
			t.Fatal(err)
		}
		held(t, op, j, before, d)
	})
}

// held checks what must hold after any decision.
func held(t *rapid.T, op string, j *job.Job, before []store.Timer, d control.Decision) {
	after := apply(t, before, d.Change)
	version := j.Version
	state := j.State
	if d.Job != nil {
		version, state = d.Job.Version, d.Job.State
	}
	seen := map[uuid.UUID]bool{}
	for _, tm := range after {
		if seen[tm.RunID] {
			t.Fatalf("%s: two rows of run %s", op, tm.RunID)
		}
		seen[tm.RunID] = true
		// A one-time run at a time that the series before it owed is asked for by name.
		asked := d.Job != nil && !d.Job.Spec.Recurring() && tm.Dispatch == 0
		if tm.Origin == job.FromSchedule && !asked && covered(d.Skips, tm.ScheduledAt) {
			t.Fatalf("%s: the occurrence of %s is skipped, and has a row: %+v", op, tm.ScheduledAt, tm)
		}
		if (state == job.Paused || state == job.Deleted) && tm.Step == job.StepDue {
			t.Fatalf("%s: a due timer survives in a %s job: %+v", op, state, tm)
		}
		if state == job.Active && tm.Step == job.StepWaiting {
			t.Fatalf("%s: a timer of an active job waits: %+v", op, tm)
		}
	}
	for _, p := range d.Put {
		if p.Version != version {
			t.Fatalf("%s: put with version %d, job has %d", op, p.Version, version)
		}
	}
	finals := map[uuid.UUID]int{}
	for _, r := range d.Runs {
		if !r.Final || !r.Step.Terminal() || seen[r.RunID] {
			t.Fatalf("%s: history row %+v of a run that is not over", op, r)
		}
		finals[r.RunID]++
	}
	for _, b := range before {
		gone := !seen[b.RunID]
		started := b.Dispatch > 0 || b.Attempt > 1 || b.Origin == job.FromTrigger
		if gone && started && finals[b.RunID] != 1 {
			t.Fatalf("%s: %d final rows of a removed run %+v", op, finals[b.RunID], b)
		}
		if finals[b.RunID] > 1 || (!gone && finals[b.RunID] > 0) {
			t.Fatalf("%s: %d final rows, gone %t", op, finals[b.RunID], gone)
		}
		for _, a := range after {
			if a.RunID == b.RunID && (a.Dispatch < b.Dispatch || a.Attempt < b.Attempt) {
				t.Fatalf("%s: the fencing token or attempt of a run went back: %+v to %+v", op, b, a)
			}
		}
		// Nothing that was owed may vanish without a word.
		owed := !b.DueAt.After(now) || (b.Origin == job.FromSchedule && j.Spec.Recurring() && !b.ScheduledAt.After(now))
		if gone && owed && finals[b.RunID] == 0 && !covered(d.Skips, b.ScheduledAt) && (op != "update" || j.Spec.Recurring()) {
			t.Fatalf("%s: overdue run %+v is gone without a trace", op, b)
		}
	}
}

func covered(skips []store.SkipRow, at time.Time) bool {
	return slices.ContainsFunc(skips, func(s store.SkipRow) bool { return !at.Before(s.NominalAt) && !at.After(s.ThroughAt) })
}
