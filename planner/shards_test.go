package planner

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/store"
)

func TestMendSeries(t *testing.T) {
	t.Parallel()
	made := noon.Add(-time.Hour)
	series := func(change func(*job.Job)) *job.Job {
		j := &job.Job{ID: uuid.New(), Version: 3, State: job.Active, Spec: job.Spec{Schedule: minutely()}, CreatedAt: made, UpdatedAt: made}
		if change != nil {
			change(j)
		}
		return j
	}
	nothing := func(t *testing.T, c store.Change) {
		t.Helper()
		if len(c.Put) != 0 || c.Job != nil {
			t.Errorf("got %+v", c)
		}
	}
	next := func(t *testing.T, c store.Change, at time.Time) {
		t.Helper()
		if len(c.Put) != 1 || !c.Put[0].ScheduledAt.Equal(at) || c.Put[0].Step != job.StepDue || c.Put[0].Version != 3 || c.Put[0].DueAt.Before(noon) || c.Job != nil {
			t.Errorf("got %+v, want a run of %s", c, at)
		}
	}
	j := series(nil)
	next(t, mendSeries(j, nil, noon.Add(-10*time.Minute), noon), noon.Add(-9*time.Minute))
	next(t, mendSeries(j, nil, time.Time{}, noon), made.Add(time.Minute))          // no history: from the last change on
	next(t, mendSeries(j, nil, made.Add(-time.Hour), noon), made.Add(time.Minute)) // history of before the change
	next(t, mendSeries(j, []store.Timer{{Origin: job.FromTrigger}}, noon, noon), noon.Add(time.Minute))
	nothing(t, mendSeries(j, []store.Timer{{Origin: job.FromSchedule, Step: job.StepRunning}}, noon, noon))
	for _, s := range []job.State{job.Paused, job.Completed, job.Deleted} {
		nothing(t, mendSeries(series(func(j *job.Job) { j.State = s }), nil, noon, noon))
	}
	nothing(t, mendSeries(series(func(j *job.Job) { j.Spec.Schedule = schedule.Schedule{Kind: schedule.Once, At: noon} }), nil, noon, noon))
	ended := mendSeries(series(func(j *job.Job) { j.Spec.Schedule.End = noon }), nil, noon, noon)
	if len(ended.Put) != 0 || ended.Job == nil || ended.Job.State != job.Completed || !ended.Job.UpdatedAt.Equal(noon) {
		t.Errorf("a series that has ended: %+v", ended)
	}
}

func TestMemberToken(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		for _, c := range []byte(memberToken(rapid.String().Draw(t, "host"))) {
			if c <= ' ' || c > '~' || c == '.' || c == '*' || c == '>' {
				t.Fatalf("%q is not fit for a subject", c)
			}
		}
	})
}
