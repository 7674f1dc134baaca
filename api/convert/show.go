package convert

import (
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
)

// Spec shows a definition as its owner may send it back. A payload that was given as JSON comes back as the bytes of its text.
func Spec(j *job.Job) *waterclockv1.JobSpec {
	s := &waterclockv1.JobSpec{
		Kind:           j.Kind,
		Schedule:       showSchedule(j.Spec.Schedule),
		Name:           j.Name,
		Queue:          j.Queue,
		Priority:       waterclockv1.Priority(j.Priority),
		AttemptTimeout: showDuration(j.Spec.AttemptTimeout),
		TotalDeadline:  showDuration(j.Spec.TotalDeadline),
		StartDeadline:  showDuration(j.Spec.StartDeadline),
		CatchUp:        keyOf(catchUps, j.Spec.CatchUp),
		Overlap:        keyOf(overlaps, j.Spec.Overlap),
		Labels:         j.Spec.Labels,
	}
	if len(j.Payload) > 0 {
		s.Input = &waterclockv1.JobSpec_Payload{Payload: j.Payload}
	}
	if r := j.Spec.Retry; r != (job.RetryPolicy{}) {
		s.Retry = &waterclockv1.RetryPolicy{
			MaxAttempts: r.MaxAttempts, InitialBackoff: showDuration(r.InitialBackoff), MaxBackoff: showDuration(r.MaxBackoff), Multiplier: r.Multiplier,
		}
	}
	return s
}

func showSchedule(s schedule.Schedule) *waterclockv1.Schedule {
	out := &waterclockv1.Schedule{Start: Time(s.Start), End: Time(s.End), Jitter: showDuration(s.Jitter)}
	switch s.Kind {
	case schedule.Once:
		out.Kind = &waterclockv1.Schedule_Once{Once: &waterclockv1.Once{At: Time(s.At)}}
	case schedule.Every:
		out.Kind = &waterclockv1.Schedule_Every{Every: &waterclockv1.Every{Period: showDuration(s.Period), Anchor: Time(s.Anchor)}}
	case schedule.Cron:
		out.Kind = &waterclockv1.Schedule_Cron{Cron: &waterclockv1.Cron{Spec: s.Spec, Zone: s.Zone}}
	}
	return out
}

// Job shows a job with its live timers, as read at the same moment.
func Job(j *job.Job, timers []store.Timer) *waterclockv1.Job {
	out := &waterclockv1.Job{
		JobId:      j.ID.String(),
		Namespace:  j.Namespace,
		Spec:       Spec(j),
		Version:    j.Version,
		State:      jobState(j, len(timers) > 0),
		CreateTime: Time(j.CreatedAt),
		UpdateTime: Time(j.UpdatedAt),
	}
	if p := j.Pause; p != nil {
		out.Pause = &waterclockv1.Pause{By: p.By, At: Time(p.At), Note: p.Note}
	}
	var next time.Time
	for _, t := range timers {
		if t.Step == job.StepDue && (next.IsZero() || t.DueAt.Before(next)) {
			next = t.DueAt
		}
	}
	out.NextDueTime = Time(next)
	return out
}

// jobState tells completed from active by what is left to run: the row of a one-time job does not change when its run ends.
func jobState(j *job.Job, live bool) waterclockv1.JobState {
	switch {
	case j.State == job.Deleted:
		return waterclockv1.JobState_JOB_STATE_DELETED
	case j.State == job.Paused:
		return waterclockv1.JobState_JOB_STATE_PAUSED
	case live:
		return waterclockv1.JobState_JOB_STATE_ACTIVE
	case j.State == job.Completed || !j.Spec.Recurring():
		return waterclockv1.JobState_JOB_STATE_COMPLETED
	default:
		return waterclockv1.JobState_JOB_STATE_ACTIVE
	}
}

// JobStates maps the filter of ListJobs to stored states.
var JobStates = map[waterclockv1.JobState]job.State{
	waterclockv1.JobState_JOB_STATE_ACTIVE:    job.Active,
	waterclockv1.JobState_JOB_STATE_PAUSED:    job.Paused,
	waterclockv1.JobState_JOB_STATE_COMPLETED: job.Completed,
	waterclockv1.JobState_JOB_STATE_DELETED:   job.Deleted,
}

// Time shows an instant; the zero time is unset.
func Time(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func showDuration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// ID reads an id that the rules of the .proto have let through; the zero id where the text is empty.
func ID(text string) uuid.UUID {
	id, err := uuid.Parse(text)
	if err != nil {
		return uuid.Nil
	}
	return id
}
