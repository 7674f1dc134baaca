package control

import (
	"fmt"
	"time"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/store"
)

// Update changes a job's definition. Version must be the one stored; apply writes the new definition into a copy of the job. Whether the payload has
// changed is for the caller to say: the locked job need not have it.
//
//   - Runs in flight go on by the old definition.
//   - Runs that were handed out before and wait for another attempt, triggered runs, and occurrences that are due already keep their time and follow
//     the new definition.
//   - The next occurrence of a recurring job is computed from now where the schedule has changed.
//   - The run of a one-time job that was not handed out moves to its new time. Where it was, a changed time makes another run.
func Update(j *job.Job, timers []store.Timer, now time.Time, version int64, apply func(*job.Job), ended Ended) (Decision, error) {
	if err := gone(j); err != nil {
		return Decision{}, err
	}
	if j.Version != version {
		return Decision{}, fmt.Errorf("job %s has version %d, not %d: %w", j.ID, j.Version, version, store.ErrVersion)
	}
	var d Decision
	d.Job = bumped(j, now)
	apply(d.Job)
	changed := !sameSchedule(j.Spec.Schedule, d.Job.Spec.Schedule)

	for _, was := range timers {
		t := was
		if changed && series(j, &t) && !fresh(&t) {
			// The recorder will not follow it any more: what the old schedule owes after it is accounted for here.
			d.skip(j, t.ScheduledAt, now, now, ReasonUpdated)
			t.Followed = true
		}
		if t.Step.InFlight() {
			d.keepInFlight(j, was, t, changed)
			continue
		}
		scheduled := t.Origin == job.FromSchedule && fresh(&t)
		// What an older schedule left over when it was changed is owed still, and what came after it is accounted for.
		leftOver := j.Spec.Recurring() && !series(j, &t)
		switch {
		case !scheduled, !changed, leftOver:
			d.Set = append(d.Set, relist(follow(t, d.Job), j, changed))
		case j.Spec.Recurring() && overdue(&t, now) && t.Step == job.StepWaiting:
			d.Remove = append(d.Remove, t.TimerKey)
			d.skip(j, t.ScheduledAt.Add(-time.Microsecond), now, now, ReasonPaused)
		case j.Spec.Recurring() && overdue(&t, now):
			// It is what the old schedule owes; the rest of that is accounted for here, and the new schedule begins now.
			d.skip(j, t.ScheduledAt, now, now, ReasonUpdated)
			t = follow(t, d.Job)
			t.Recurring, t.Followed = d.Job.Spec.Recurring(), true
			d.Set = append(d.Set, t)
		default:
			d.Remove = append(d.Remove, t.TimerKey)
			d.skipJittered(j, &t, now, ReasonUpdated)
		}
	}
	if changed {
		if err := d.putFirst(timers, now, ended); err != nil {
			return Decision{}, err
		}
	}
	d.settle(timers, now, ended)
	return d, nil
}

// putFirst makes the run that a changed schedule asks for first.
func (d *Decision) putFirst(timers []store.Timer, now time.Time, ended Ended) error {
	if d.Job.Spec.Recurring() {
		d.putNext(now, now, d.taken(timers, ended))
		return nil
	}
	at := d.Job.Spec.Schedule.At
	run := job.RunID(d.Job.ID, job.FromSchedule, at, "")
	if d.stays(timers, run) {
		return nil // the very run that the schedule asks for was handed out
	}
	if ended != nil && ended(run) {
		return ErrRanBefore
	}
	t := store.NewTimer(d.Job, schedule.Occurrence{At: at}, now)
	d.Job.DueAt = t.DueAt
	d.put(t)
	return nil
}

// keepInFlight leaves a run alone, but for two things: where jobs.due_at and the schedule will no longer lead to its row, it must be in the index by
// job; and where the job no longer recurs, nothing follows it.
func (d *Decision) keepInFlight(j *job.Job, was, t store.Timer, changed bool) {
	kept := relist(t, j, changed)
	kept.Recurring = t.Recurring && d.Job.Spec.Recurring()
	if !changed && kept.Recurring && kept.Origin == job.FromSchedule {
		kept.Version = d.Job.Version // see carryOn
	}
	if kept != was {
		d.Set = append(d.Set, kept)
	}
}

// relist puts a row that outlives the schedule it was made by into the index by job.
func relist(t store.Timer, j *job.Job, changed bool) store.Timer {
	if changed && !j.Spec.Recurring() {
		t.Listed = true
	}
	return t
}

func sameSchedule(a, b schedule.Schedule) bool {
	return a.Kind == b.Kind && a.At.Equal(b.At) && a.Period == b.Period && a.Anchor.Equal(b.Anchor) && a.Spec == b.Spec && a.Zone == b.Zone &&
		a.Start.Equal(b.Start) && a.End.Equal(b.End) && a.Jitter == b.Jitter
}
