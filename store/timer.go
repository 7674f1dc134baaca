package store

import (
	"time"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
)

// NewTimer makes the timer of an occurrence of a job that its schedule asked for. Its due time is the nominal time plus the job's jitter, and not before
// now: a row that appears behind the planners' place would be found late. Where the job is paused the timer waits.
func NewTimer(j *job.Job, occ schedule.Occurrence, now time.Time) Timer {
	t := newTimer(j, job.FromSchedule, occ.At, "", now)
	t.DueAt = later(t.ScheduledAt.Add(j.Spec.Schedule.JitterFor(j.ID, occ.At)), now)
	t.Recurring = j.Spec.Recurring()
	t.Listed = t.Recurring
	if t.Recurring {
		t.Civil = occ.Civil
	}
	return t
}

// NewTrigger makes the timer of a run that somebody asked for beside the schedule. The nonce tells requests apart.
func NewTrigger(j *job.Job, nonce string, nominal, now time.Time) Timer {
	t := newTimer(j, job.FromTrigger, nominal, nonce, now)
	t.Listed = true
	return t
}

func newTimer(j *job.Job, origin job.Origin, nominal time.Time, nonce string, now time.Time) Timer {
	nominal = nominal.Truncate(time.Microsecond)
	step, reason := job.StepDue, ""
	if j.State == job.Paused {
		step, reason = job.StepWaiting, WaitPaused
	}
	return Timer{
		TimerKey:       TimerKey{Shard: j.Shard, DueAt: later(nominal, now), RunID: job.RunID(j.ID, origin, nominal, nonce)},
		JobID:          j.ID,
		Namespace:      j.Namespace,
		QueueNamespace: j.QueueNamespace,
		Queue:          j.Queue,
		Priority:       j.Priority,
		Kind:           j.Kind,
		Step:           step,
		Origin:         origin,
		ScheduledAt:    nominal,
		Attempt:        1,
		Version:        j.Version,
		WaitReason:     reason,
	}
}

// WaitPaused is the wait reason of a run whose job is paused.
const WaitPaused = "the job is paused"

// Again makes the row of a run that comes back: due at another time and so under another key, listed because jobs.due_at no longer leads to it.
// Job may be nil where the definition cannot have changed; else the run follows the definition as it is now.
func Again(t Timer, j *job.Job, dueAt time.Time, attempt int32) Timer {
	t.DueAt = dueAt.Truncate(time.Microsecond)
	t.Attempt = attempt
	t.Step, t.WaitReason = job.StepDue, ""
	t.DispatchedAt, t.StartedAt, t.Executor = time.Time{}, time.Time{}, ""
	t.Listed = true
	if j != nil {
		t.Version, t.Priority, t.Queue, t.QueueNamespace, t.Kind = j.Version, j.Priority, j.Queue, j.QueueNamespace, j.Kind
		if j.State == job.Paused {
			t.Step, t.WaitReason = job.StepWaiting, WaitPaused
		}
	}
	return t
}

// History makes the history row of an attempt of t that ended at a time. Callers add what the executor reported.
func (t *Timer) History(step job.Step, final bool, reason string, endedAt time.Time) RunRow {
	return RunRow{
		JobID: t.JobID, RunID: t.RunID, Namespace: t.Namespace, Queue: t.Queue, Priority: t.Priority, Kind: t.Kind, Origin: t.Origin,
		ScheduledAt: t.ScheduledAt, Civil: t.Civil, DueAt: t.DueAt, Attempt: t.Attempt, Dispatch: t.Dispatch, Executor: t.Executor,
		StartedAt: t.StartedAt, EndedAt: endedAt.Truncate(time.Microsecond), Step: step, Final: final, Reason: reason,
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		a = b
	}
	return a.Truncate(time.Microsecond)
}
