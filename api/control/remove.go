package control

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// Delete removes a job: what has not started is gone, what runs is asked to stop, history stays. Deleting twice changes nothing, and asks
// once more what still runs to stop.
func Delete(j *job.Job, timers []store.Timer, now time.Time) (Decision, error) {
	var d Decision
	if j.State == job.Deleted {
		d.Withdraw = slices.DeleteFunc(slices.Clone(timers), func(t store.Timer) bool { return !t.Step.InFlight() })
		return d, nil
	}
	d.Job = bumped(j, now)
	d.Job.State, d.Job.Pause = job.Deleted, nil
	reason := ReasonDeleted
	if j.State == job.Paused {
		reason = ReasonPaused
	}
	var last time.Time // nominal, of the occurrences that fell due
	for _, t := range timers {
		// An occurrence still to come is not owed to anybody once its series is gone: it leaves no trace.
		if series(j, &t) && fresh(&t) && !overdue(&t, now) {
			d.Remove = append(d.Remove, t.TimerKey)
			d.skipJittered(j, &t, now, reason)
			continue
		}
		if series(j, &t) && t.ScheduledAt.After(last) {
			last = t.ScheduledAt
		}
		if err := d.cancel(t, now, ReasonDeleted); err != nil {
			return Decision{}, err
		}
	}
	if !last.IsZero() {
		d.skip(j, last, now, now, reason)
	}
	return d, nil
}

// Cancel ends one run that has not started, or asks a running one to stop; with the zero id every run of the job, save occurrences of a recurring job
// that are still to come. A run that is not among the timers makes it store.ErrNotFound; whether it has ended is for the caller to look up.
func Cancel(j *job.Job, timers []store.Timer, now time.Time, run uuid.UUID, ended Ended) (Decision, error) {
	var d Decision
	found := run == uuid.Nil
	var carry *store.Timer // the latest of the removed ones that carried the series on
	for _, t := range timers {
		if run != uuid.Nil && t.RunID != run {
			continue
		}
		found = true
		carries := series(j, &t)
		if run == uuid.Nil && carries && fresh(&t) && !overdue(&t, now) {
			continue
		}
		if err := d.cancel(t, now, ReasonCancelled); err != nil {
			return Decision{}, err
		}
		if carries && !d.stays(timers, t.RunID) && (carry == nil || t.ScheduledAt.After(carry.ScheduledAt)) {
			carry = &t
		}
	}
	if !found {
		return Decision{}, store.ErrNotFound
	}
	if carry == nil || j.State == job.Deleted {
		return d, nil
	}
	// The job is written, with its version as it was, so that whoever looked at its history before this cancel sees that the series has moved.
	d.Job = touched(j, now)
	carriedOn := slices.ContainsFunc(timers, func(t store.Timer) bool { return series(j, &t) && d.stays(timers, t.RunID) })
	if !carriedOn {
		d.putNext(carry.ScheduledAt, now, d.taken(timers, ended))
	}
	d.settle(timers, now, ended)
	return d, nil
}

// cancel ends or asks to stop one run, by the state machine.
func (d *Decision) cancel(t store.Timer, now time.Time, reason string) error {
	to, err := step(&t, job.EventCancel)
	if err != nil {
		return err
	}
	d.Cancelled = append(d.Cancelled, t.RunID)
	if t.Step.InFlight() {
		d.Withdraw = append(d.Withdraw, t)
	}
	if to.Terminal() {
		d.Remove = append(d.Remove, t.TimerKey)
		d.Runs = append(d.Runs, t.History(to, true, reason, now))
		return nil
	}
	if t.Step == to {
		return nil // said again
	}
	t.Step, t.CancelAt = to, now
	d.Set = append(d.Set, t)
	return nil
}
