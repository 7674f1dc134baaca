package control

import (
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// TriggerRunID returns the id of the run that a request triggers. A repeated request must find the id of the first, so the nominal time in it is not that
// of the request, which nobody remembers, but the time at which the job was made, which never changes. What the run shows as its nominal time is the
// moment of the trigger all the same.
func TriggerRunID(j *job.Job, nonce string) uuid.UUID {
	return job.RunID(j.ID, job.FromTrigger, j.CreatedAt.Truncate(time.Microsecond), nonce)
}

// Trigger makes a run of the job that is due now. Where the request has made its run before, nothing changes. A run of it that has ended must be looked
// up by the caller before, and is refused here with ErrRanBefore.
func Trigger(j *job.Job, timers []store.Timer, now time.Time, nonce string, ended Ended) (Decision, error) {
	if err := gone(j); err != nil {
		return Decision{}, err
	}
	id := TriggerRunID(j, nonce)
	if new(Decision).stays(timers, id) {
		return Decision{}, nil
	}
	if ended != nil && ended(id) {
		return Decision{}, ErrRanBefore
	}
	if j.State == job.Paused {
		return Decision{}, ErrPaused
	}
	t := store.NewTrigger(j, nonce, j.CreatedAt, now)
	t.ScheduledAt = now.Truncate(time.Microsecond)
	var d Decision
	// Written so that a repeated request that looked at history before this one sees that something has happened since.
	d.Job = touched(j, now)
	d.put(t)
	return d, nil
}
