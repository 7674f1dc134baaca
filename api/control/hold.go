package control

import (
	"slices"
	"time"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// Pause holds a job: what is due waits in place, what an executor has got goes on, and the rest of what was handed out is taken back. A paused job keeps who paused
// it first, unless a new note is given.
func Pause(j *job.Job, timers []store.Timer, now time.Time, by, note string) (Decision, error) {
	if err := gone(j); err != nil {
		return Decision{}, err
	}
	if over(j, timers) {
		return Decision{}, ErrCompleted
	}
	if p := j.Pause; j.State == job.Paused && p != nil && (note == "" || note == p.Note) {
		return Decision{TakeBack: dispatched(timers)}, nil // who repeats it may not have got all of them back
	}
	d := Decision{TakeBack: dispatched(timers)}
	d.Job = bumped(j, now)
	d.Job.State = job.Paused
	d.Job.Pause = &job.Pause{By: by, At: now, Note: note}
	for _, t := range timers {
		switch t.Step {
		case job.StepDue:
			to, err := step(&t, job.EventHold)
			if err != nil {
				return Decision{}, err
			}
			t = follow(t, d.Job)
			t.Step, t.WaitReason = to, store.WaitPaused
			d.Set = append(d.Set, t)
		case job.StepWaiting:
			d.Set = append(d.Set, follow(t, d.Job))
		default:
			d.carryOn(t)
		}
	}
	return d, nil
}

// dispatched are the timers that were handed out and have not begun, as far as SQL knows.
func dispatched(timers []store.Timer) []store.Timer {
	return slices.DeleteFunc(slices.Clone(timers), func(t store.Timer) bool { return t.Step != job.StepDispatched })
}

// Resume lets a paused job go on. Occurrences of a recurring job that fell due meanwhile are skipped; every other run that is over its time is due now.
func Resume(j *job.Job, timers []store.Timer, now time.Time, ended Ended) (Decision, error) {
	if err := gone(j); err != nil {
		return Decision{}, err
	}
	if j.State != job.Paused {
		return Decision{}, nil
	}
	var d Decision
	d.Job = bumped(j, now)
	d.Job.State, d.Job.Pause = job.Active, nil
	var missed *store.Timer // the earliest
	carried := false        // a live timer carries the series on
	for _, t := range timers {
		if t.Step.InFlight() {
			d.carryOn(t)
			carried = carried || series(j, &t)
		}
		if t.Step != job.StepWaiting {
			continue
		}
		to, err := step(&t, job.EventClear)
		if err != nil {
			return Decision{}, err
		}
		switch {
		case series(j, &t) && fresh(&t) && overdue(&t, now):
			if missed == nil || t.ScheduledAt.Before(missed.ScheduledAt) {
				missed = &t
			}
			d.Remove = append(d.Remove, t.TimerKey)
		case overdue(&t, now):
			// Behind the planners' place nobody would find it: it comes back under a key of now.
			carried = carried || series(j, &t)
			again := store.Again(t, d.Job, now, t.Attempt)
			again.Step = to
			d.Remove = append(d.Remove, t.TimerKey)
			d.put(again)
		default:
			carried = carried || series(j, &t)
			t = follow(t, d.Job)
			t.Step, t.WaitReason = to, ""
			d.Set = append(d.Set, t)
		}
	}
	if missed != nil {
		d.skip(j, missed.ScheduledAt.Add(-time.Microsecond), now, now, ReasonPaused)
	}
	if j.Spec.Recurring() && !carried {
		d.putNext(now, now, d.taken(timers, ended))
	}
	d.settle(timers, now, ended)
	return d, nil
}

// carryOn gives a run of a series that is in flight the version of the changed job: the recorder makes what follows it only where the definition is the row's.
func (d *Decision) carryOn(t store.Timer) {
	if t.Recurring && t.Origin == job.FromSchedule {
		t.Version = d.Job.Version
		d.Set = append(d.Set, t)
	}
}

// putNext adds the occurrence of the changed job that follows an instant, if there is one.
func (d *Decision) putNext(after, now time.Time, taken Ended) {
	if occ, ok := next(d.Job, after, taken); ok {
		d.put(store.NewTimer(d.Job, occ, now))
	}
}
