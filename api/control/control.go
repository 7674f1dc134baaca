// Package control decides what becomes of a job and its runs when somebody updates, pauses, resumes, deletes, triggers or cancels.
//
// Its functions are pure: they take the job and its timers as store.Jobs.ChangeJob has locked them, and database time, and return what to write and
// whom to tell after the commit. The api handlers call them; nothing here talks to a store or to executors. Which step follows which is asked of
// job.Next, never written down a second time.
package control

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/store"
)

// Reasons that history and skips carry for what is decided here.
const (
	ReasonCancelled = "cancelled"
	ReasonDeleted   = "deleted"
	ReasonPaused    = "paused"
	ReasonUpdated   = "updated"
)

// The refusals beside those of package store.
var (
	ErrPaused    = errors.New("the job is paused; resume it first")
	ErrCompleted = errors.New("the job is completed: nothing of it will run again")
	ErrRanBefore = errors.New("the job has had a run at this time, which has ended")
)

// Decision is what to write and whom to tell.
type Decision struct {
	store.Change
	// Withdraw are runs that were handed out and must stop: their message is to be deleted, their executor told. As they were before the change.
	Withdraw []store.Timer
	// TakeBack are runs that were handed out and shall not begin: what no executor has got yet is to be taken back. They stay as they are in SQL, and come back
	// to wait when their planner says so.
	TakeBack []store.Timer
	// Cancelled are the runs that this decision cancels or asks to stop, for the answer to the user.
	Cancelled []uuid.UUID
}

// Ended tells whether a run of the job has ended already, by its id: history knows, and a run must never be made a second time.
type Ended func(run uuid.UUID) bool

// fresh tells whether a run was never handed out. Any other must keep its row's count of dispatches, its attempt and its id until it ends.
func fresh(t *store.Timer) bool { return t.Dispatch == 0 && t.Attempt <= 1 }

// series tells whether a timer is the one that carries a recurring series on: its next occurrence is made when the recorder hears that it was handed out, or
// by whoever removes it before.
func series(j *job.Job, t *store.Timer) bool {
	return j.Spec.Recurring() && t.Recurring && t.Origin == job.FromSchedule && !t.Followed
}

func overdue(t *store.Timer, now time.Time) bool { return !t.DueAt.After(now) }

// step asks the state machine; that it refuses means that this package is wrong, and then the change must not happen.
func step(t *store.Timer, e job.Event) (job.Step, error) {
	to, ok := job.Next(t.Step, e)
	if !ok {
		return 0, fmt.Errorf("run %s cannot take %q in step %s", t.RunID, e, t.Step)
	}
	return to, nil
}

// touched returns a copy of the job as changed now.
func touched(j *job.Job, now time.Time) *job.Job {
	c := *j
	c.UpdatedAt = now
	return &c
}

// bumped returns a copy of the job with the next version.
func bumped(j *job.Job, now time.Time) *job.Job {
	c := touched(j, now)
	c.Version++
	return c
}

// follow returns a timer that keeps its key and its history, and belongs to the job as it is now.
func follow(t store.Timer, j *job.Job) store.Timer {
	listed, stepNow, reason := t.Listed, t.Step, t.WaitReason
	t = store.Again(t, j, t.DueAt, t.Attempt)
	t.Listed, t.Step, t.WaitReason = listed, stepNow, reason
	return t
}

// next returns the first occurrence after an instant whose run is not taken.
func next(j *job.Job, after time.Time, taken Ended) (schedule.Occurrence, bool) {
	for {
		occ, ok := j.Spec.Schedule.Next(after)
		if !ok || !taken(job.RunID(j.ID, job.FromSchedule, occ.At, "")) {
			return occ, ok
		}
		after = occ.At
	}
}

// put adds a timer, unless the same run is live: a row that is removed and made again under the same key is replaced in place.
func (d *Decision) put(t store.Timer) {
	if i := slices.IndexFunc(d.Remove, func(k store.TimerKey) bool { return k.Compare(t.TimerKey) == 0 }); i >= 0 {
		d.Remove = slices.Delete(d.Remove, i, i+1)
		d.Set = append(d.Set, t)
		return
	}
	d.Put = append(d.Put, t)
}

// skip accounts for the occurrences in (after, until] of a schedule as not run.
func (d *Decision) skip(j *job.Job, after, until, now time.Time, reason string) {
	occ, ok := j.Spec.Schedule.Next(after)
	if !ok || occ.At.After(until) {
		return
	}
	n, last := j.Spec.Schedule.Count(after, until, maxCounted)
	d.Skips = append(d.Skips, store.SkipRow{JobID: j.ID, NominalAt: occ.At, ThroughAt: last.At, Count: int64(n), Reason: reason, At: now})
}

// skipJittered accounts for an occurrence that is removed between its nominal time and the later one that its jitter gave it.
func (d *Decision) skipJittered(j *job.Job, t *store.Timer, now time.Time, reason string) {
	if series(j, t) && !t.ScheduledAt.After(now) {
		d.skip(j, t.ScheduledAt.Add(-time.Microsecond), now, now, reason)
	}
}

// maxCounted is more occurrences than a schedule has in 30 years at one a second.
const maxCounted = 1 << 30

// settle marks a recurring job completed where nothing carries its series on and it has no further occurrence, and active where that is not so. The last run may
// still be in flight, as when the recorder completes a job.
func (d *Decision) settle(timers []store.Timer, now time.Time, ended Ended) {
	if d.Job == nil || (d.Job.State != job.Active && d.Job.State != job.Completed) {
		return
	}
	d.Job.State = job.Active // also that of an ended one-time job in its row; see job.State
	if !d.Job.Spec.Recurring() || slices.ContainsFunc(d.Put, func(t store.Timer) bool { return series(d.Job, &t) }) {
		return
	}
	for _, t := range timers {
		if i := slices.IndexFunc(d.Set, func(o store.Timer) bool { return o.RunID == t.RunID }); i >= 0 {
			t = d.Set[i]
		}
		if series(d.Job, &t) && d.stays(timers, t.RunID) {
			return
		}
	}
	// Nothing carries it on, and yet a further occurrence: the sweep makes it. That is not the end of the series.
	if _, more := next(d.Job, now, d.taken(timers, ended)); !more {
		d.Job.State = job.Completed
	}
}

// taken adds to the ended runs those that stay alive: neither may be made again.
func (d *Decision) taken(timers []store.Timer, ended Ended) Ended {
	return func(run uuid.UUID) bool {
		if slices.Contains(d.Cancelled, run) || (ended != nil && ended(run)) {
			return true
		}
		return d.stays(timers, run)
	}
}

// stays tells whether a run is live and remains so.
func (d *Decision) stays(timers []store.Timer, run uuid.UUID) bool {
	return slices.ContainsFunc(timers, func(t store.Timer) bool {
		return t.RunID == run && !slices.ContainsFunc(d.Remove, func(k store.TimerKey) bool { return k.Compare(t.TimerKey) == 0 })
	})
}

// over tells whether nothing of a job will run again.
func over(j *job.Job, timers []store.Timer) bool {
	return len(timers) == 0 && (j.State == job.Completed || !j.Spec.Recurring())
}

func gone(j *job.Job) error {
	if j.State == job.Deleted {
		return fmt.Errorf("job %s is deleted: %w", j.ID, store.ErrNotFound)
	}
	return nil
}
