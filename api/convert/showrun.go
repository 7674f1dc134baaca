package convert

import (
	"fmt"
	"strings"
	"time"

	"github.com/waterclock-io/waterclock/job"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
)

// View is what the looks of a live run depend on beside its row.
type View struct {
	// Now is database time.
	Now time.Time
	// Offers tells whether a live executor of a queue offers a kind; nil where that is not known.
	Offers func(queueNamespace, queue, kind string) bool
}

// Live shows a run that has not ended. One that is over its time and that no executor can take is shown as waiting, with the reason.
func (v View) Live(t *store.Timer) *waterclockv1.Run {
	out := &waterclockv1.Run{
		JobId:         t.JobID.String(),
		RunId:         t.RunID.String(),
		Namespace:     t.Namespace,
		Origin:        origins[t.Origin],
		State:         runState(t.Step, t.Attempt),
		ScheduledTime: Time(t.ScheduledAt),
		DueTime:       Time(t.DueAt),
		Kind:          t.Kind,
		Queue:         t.Queue,
		Priority:      waterclockv1.Priority(t.Priority),
		Attempt:       t.Attempt,
		Dispatch:      t.Dispatch,
		Executor:      t.Executor,
		StartTime:     Time(t.StartedAt),
		WaitReason:    t.WaitReason,
		CivilTime:     t.Civil,
	}
	if t.LastError != "" {
		out.Outcome = &waterclockv1.Outcome{Message: t.LastError}
	}
	if reason := v.blocked(t); reason != "" {
		out.WaitReason = reason
		if t.Step == job.StepDue {
			out.State = waterclockv1.RunState_RUN_STATE_WAITING
		}
	}
	return out
}

func (v View) blocked(t *store.Timer) string {
	stands := (t.Step == job.StepDue && !t.DueAt.After(v.Now)) || t.Step == job.StepDispatched
	if !stands || v.Offers == nil || v.Offers(t.QueueNamespace, t.Queue, t.Kind) {
		return ""
	}
	return fmt.Sprintf("no executor offers kind %q on queue %q", t.Kind, t.Queue)
}

// Ended shows a run by the history row of its last attempt.
func Ended(r *store.RunRow) *waterclockv1.Run {
	out := &waterclockv1.Run{
		JobId:         r.JobID.String(),
		RunId:         r.RunID.String(),
		Namespace:     r.Namespace,
		Origin:        origins[r.Origin],
		State:         runState(r.Step, r.Attempt),
		ScheduledTime: Time(r.ScheduledAt),
		DueTime:       Time(r.DueAt),
		Kind:          r.Kind,
		Queue:         r.Queue,
		Priority:      waterclockv1.Priority(r.Priority),
		Attempt:       r.Attempt,
		Dispatch:      r.Dispatch,
		Executor:      r.Executor,
		StartTime:     Time(r.StartedAt),
		EndTime:       Time(r.EndedAt),
		Outcome:       outcome(r),
		CivilTime:     r.Civil,
	}
	if r.Step == job.StepSkipped {
		out.SkippedCount, out.SkippedThrough = 1, out.ScheduledTime
	}
	setRunTime(out, r)
	return out
}

// Skipped shows what a skip row stands for: occurrences that were not run.
func Skipped(j *job.Job, s *store.SkipRow) *waterclockv1.Run {
	out := &waterclockv1.Run{
		JobId:         j.ID.String(),
		RunId:         job.RunID(j.ID, job.FromSchedule, s.NominalAt, "").String(),
		Namespace:     j.Namespace,
		Origin:        waterclockv1.RunOrigin_RUN_ORIGIN_SCHEDULE,
		State:         waterclockv1.RunState_RUN_STATE_SKIPPED,
		ScheduledTime: Time(s.NominalAt),
		Kind:          j.Kind,
		Queue:         j.Queue,
		Priority:      waterclockv1.Priority(j.Priority),
		EndTime:       Time(s.At),
		Outcome:       &waterclockv1.Outcome{Reason: s.Reason},

		SkippedCount: s.Count, SkippedThrough: Time(s.ThroughAt),
	}
	if s.Count > 1 {
		out.Outcome.Message = fmt.Sprintf("%d occurrences, the last at %s", s.Count, s.ThroughAt.UTC().Format(time.RFC3339Nano))
	}
	return out
}

// WithAttempts adds the attempts that have ended, first to last.
func WithAttempts(run *waterclockv1.Run, rows []store.RunRow) *waterclockv1.Run {
	for i := range rows {
		r := &rows[i]
		run.Attempts = append(run.Attempts, &waterclockv1.Attempt{
			Attempt:   r.Attempt,
			Dispatch:  r.Dispatch,
			Executor:  r.Executor,
			StartTime: Time(r.StartedAt),
			EndTime:   Time(r.EndedAt),
			State:     runState(r.Step, r.Attempt),
			Outcome:   outcome(r),
		})
		setRunTime(run, r)
	}
	return run
}

func setRunTime(run *waterclockv1.Run, r *store.RunRow) {
	if !r.StartedAt.IsZero() && r.EndedAt.After(r.StartedAt) {
		run.RunTime = showDuration(r.EndedAt.Sub(r.StartedAt))
	}
}

func outcome(r *store.RunRow) *waterclockv1.Outcome {
	return &waterclockv1.Outcome{Reason: r.Reason, Message: r.Message, Code: r.Code, Result: r.Result, ResultRef: r.ResultRef, LogRef: r.LogRef}
}

var origins = map[job.Origin]waterclockv1.RunOrigin{
	job.FromSchedule: waterclockv1.RunOrigin_RUN_ORIGIN_SCHEDULE,
	job.FromTrigger:  waterclockv1.RunOrigin_RUN_ORIGIN_TRIGGER,
}

// runState relies on the enum carrying the names of job.RunState.
func runState(s job.Step, attempt int32) waterclockv1.RunState {
	name := "RUN_STATE_" + strings.ToUpper(string(job.StateOf(s, attempt)))
	return waterclockv1.RunState(waterclockv1.RunState_value[name])
}

// HasEnded tells whether a run will not change any more.
func HasEnded(s waterclockv1.RunState) bool {
	return s >= waterclockv1.RunState_RUN_STATE_SUCCEEDED && s <= waterclockv1.RunState_RUN_STATE_SKIPPED
}
