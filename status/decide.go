package status

import (
	"time"

	"github.com/waterclock-io/waterclock/job"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
)

// freeLosses is how many hand-overs of a run may be lost before it started, over its life, without costing an attempt. A loss before the start is nobody's
// fault; but a command that kills its executor within the first half second looks just so, and must come to an end too.
const freeLosses = 5

// event is one status whose ticket was found good.
type event struct {
	ticket *wirev1.Ticket
	status *wirev1.Status
	// message is the place of the message that brought it, in its batch.
	message int
	id      string // of this event, for the dead letters
	sender  string
}

// report says what an event asks of the store.
func (e *event) report() store.Report {
	r := store.Report{
		Key:   store.TimerKey{Shard: int32(e.ticket.Shard), DueAt: micros(e.ticket.DueAt), RunID: [16]byte(e.ticket.RunId)}, //nolint:gosec // made by us
		JobID: [16]byte(e.ticket.JobId), Dispatch: e.ticket.Dispatch,
	}
	switch e.status.Kind {
	case wirev1.StatusKind_STATUS_KIND_STARTED:
		r.Kind, r.StartedAt, r.Executor = store.ReportStart, micros(e.status.StartedAt), e.sender
	case wirev1.StatusKind_STATUS_KIND_DISPATCHED:
		r.Kind, r.NeedJob = store.ReportFollow, true
	case wirev1.StatusKind_STATUS_KIND_SUCCEEDED:
		r.Kind, r.NeedJob = store.ReportEnd, e.ticket.Recurring // whose series may not have been followed yet
	default:
		r.Kind, r.NeedJob = store.ReportEnd, true
	}
	return r
}

// decide says what becomes of a run: what is written to history, and which rows follow. It is pure; t is the row as it was taken away (nil for dispatched),
// j the definition as it is now (nil where it is not needed or is gone), now is database time.
func decide(e *event, t *store.Timer, j *job.Job, now time.Time) store.Change {
	if e.status.Kind == wirev1.StatusKind_STATUS_KIND_DISPATCHED {
		return followOn(t, j, t.ScheduledAt, now)
	}
	ev, why := classify(e, t, j, now)
	to, ok := job.Next(t.Step, ev)
	if !ok || outdated(e, t) {
		// The row is there with this dispatch, but somebody speaks out of turn, or decided by what the row was: nothing becomes of it, and it goes back.
		return store.Change{Put: []store.Timer{*t}}
	}
	if to == job.StepSkipped {
		return skip(e, t, j, now)
	}
	if to.Terminal() {
		row := history(e, t, to, true, now)
		if why != "" && to == job.StepFailed {
			row.Reason, row.Message = "deadline", why+": "+row.Message
		}
		return join(store.Change{Runs: []store.RunRow{row}}, followEnd(t, j, now))
	}
	if ev != job.EventRetry {
		delay := time.Duration(e.status.Delay) * time.Microsecond
		back := store.Again(*t, j, now.Add(delay), t.Attempt)
		// Once it has begun it is in time, however late and often it comes back.
		if back.StartedAt = t.StartedAt; back.StartedAt.IsZero() && e.status.StartedAt > 0 {
			back.StartedAt = micros(e.status.StartedAt)
		}
		return store.Change{Put: []store.Timer{back}}
	}
	next := store.Again(*t, j, now.Add(retryDelay(e.status, t, j)), t.Attempt+1)
	next.LastError = e.status.Message
	return store.Change{
		Runs: []store.RunRow{history(e, t, job.StepFailed, false, now)},
		Put:  []store.Timer{next},
	}
}

// classify turns a status into an event of the state machine: whether a failure leaves attempts, and whether a loss costs one. The text, where not empty, is
// what the total deadline has to do with it.
func classify(e *event, t *store.Timer, j *job.Job, now time.Time) (job.Event, string) {
	s := e.status
	retriable := s.Retriable
	switch s.Kind {
	case wirev1.StatusKind_STATUS_KIND_SUCCEEDED:
		return job.EventSucceeded, ""
	case wirev1.StatusKind_STATUS_KIND_SKIPPED:
		return job.EventSkip, ""
	case wirev1.StatusKind_STATUS_KIND_CANCELLED:
		return job.EventStopped, ""
	case wirev1.StatusKind_STATUS_KIND_RELEASED, wirev1.StatusKind_STATUS_KIND_SNOOZED:
		return job.EventRequeue, ""
	case wirev1.StatusKind_STATUS_KIND_LOST:
		if t.Step == job.StepDispatched && t.Dispatch-int64(t.Attempt) < freeLosses {
			return job.EventRequeue, ""
		}
		retriable = true
	}
	if !retriable || j == nil || j.State == job.Deleted || t.Attempt >= j.Spec.Retry.Attempts() {
		return job.EventFailed, ""
	}
	if d := j.Spec.TotalDeadline; d > 0 && !now.Add(retryDelay(s, t, j)).Before(j.DeadlineBase(t.ScheduledAt).Add(d)) {
		return job.EventFailed, "no time for another attempt within the total deadline"
	}
	return job.EventRetry, ""
}

// retryDelay is how long the next attempt waits: what the handler asked for, else what the job's policy says.
func retryDelay(s *wirev1.Status, t *store.Timer, j *job.Job) time.Duration {
	if s.Delay > 0 {
		return time.Duration(s.Delay) * time.Microsecond
	}
	return j.Spec.Retry.Backoff(t.RunID, t.Attempt)
}

// history makes the row of an attempt. A run that was being cancelled and ends otherwise than by succeeding is cancelled, for the reason it was asked to stop.
func history(e *event, t *store.Timer, to job.Step, final bool, now time.Time) store.RunRow {
	s := e.status
	r := t.History(to, final, s.Reason, now)
	if t.Step == job.StepDispatched {
		r.StartedAt = time.Time{} // what a row that was snoozed says of the hand-over before
	}
	if s.EndedAt > 0 {
		r.EndedAt = micros(s.EndedAt)
	}
	if s.StartedAt > 0 && s.Kind != wirev1.StatusKind_STATUS_KIND_LOST {
		r.StartedAt = micros(s.StartedAt)
	}
	if s.Kind != wirev1.StatusKind_STATUS_KIND_LOST {
		r.Executor = e.sender
	}
	r.Message, r.Code, r.Result, r.ResultRef, r.LogRef = s.Message, s.Code, s.Result, s.ResultRef, s.LogRef
	if to == job.StepCancelled {
		r.Reason = "cancelled"
		if t.WaitReason != "" {
			r.Reason = t.WaitReason
		}
	}
	return r
}

// skip accounts for an occurrence that its policy did not run, and for those that it stands for.
func skip(e *event, t *store.Timer, j *job.Job, now time.Time) store.Change {
	if t.Origin != job.FromSchedule || !t.Recurring {
		return store.Change{Runs: []store.RunRow{history(e, t, job.StepSkipped, true, now)}}
	}
	through, count := t.ScheduledAt, int64(1)
	if e.status.SkipCount > 0 {
		through, count = micros(e.status.SkipThrough), e.status.SkipCount
	}
	c := store.Change{Skips: []store.SkipRow{{
		JobID: t.JobID, NominalAt: t.ScheduledAt, ThroughAt: through, Count: count, Reason: e.status.Reason, At: now,
	}}}
	return join(c, followOn(t, j, through, now))
}

// followEnd makes the next occurrence at the end of a run, in case nobody said that it was handed out.
func followEnd(t *store.Timer, j *job.Job, now time.Time) store.Change {
	if !t.Recurring || t.Origin != job.FromSchedule {
		return store.Change{}
	}
	return followOn(t, j, t.ScheduledAt, now)
}

// followOn makes the occurrence of a series after a moment, where that has not been done; while the job is paused it waits. Where the definition is not that
// of the row any more, whoever changed it saw to what follows. A series that has no further occurrence is completed.
func followOn(t *store.Timer, j *job.Job, after, now time.Time) store.Change {
	if j == nil || !j.Spec.Recurring() || (j.State != job.Active && j.State != job.Paused) {
		return store.Change{}
	}
	occ, more := j.Spec.Schedule.Next(after)
	switch {
	case !more && j.State == job.Active:
		done := *j
		done.State, done.UpdatedAt = job.Completed, now
		return store.Change{Job: &done}
	case !more, t.Followed, j.Version != t.Version:
		return store.Change{}
	default:
		return store.Change{Put: []store.Timer{store.NewTimer(j, occ, now)}}
	}
}

// outdated tells whether a planner decided on a row that was not handed out, and the row is not as it was then: paused, resumed or updated since. It is
// decided on anew.
func outdated(e *event, t *store.Timer) bool {
	return !t.Step.InFlight() && (t.Step != job.StepDue || t.Version != e.ticket.Version)
}

func join(a, b store.Change) store.Change {
	a.Put = append(a.Put, b.Put...)
	a.Runs = append(a.Runs, b.Runs...)
	a.Skips = append(a.Skips, b.Skips...)
	if b.Job != nil {
		a.Job = b.Job
	}
	return a
}

func micros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
