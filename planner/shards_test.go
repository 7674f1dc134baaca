package planner

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/store"
)

func TestAssignMovesOnlyWhatItMust(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		members := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9.-]{1,30}-[0-9]{1,7}-[A-Z2-7]{6}`), 2, 9, rapid.ID).Draw(t, "members")
		before := assign(members, 64)
		dead := rapid.IntRange(0, len(members)-1).Draw(t, "dead")
		left := append(append([]string{}, members[:dead]...), members[dead+1:]...)
		after := assign(left, 64)
		for s := range int32(64) {
			if before[s] != members[dead] && after[s] != before[s] {
				t.Fatalf("shard %d moved from %s to %s when %s died", s, before[s], after[s], members[dead])
			}
			if after[s] == members[dead] || after[s] == "" {
				t.Fatalf("shard %d belongs to %q", s, after[s])
			}
		}
		// Who comes back gets exactly its own.
		for s, m := range assign(members, 64) {
			if m != before[s] {
				t.Fatalf("shard %d: %s, then %s", s, before[s], m)
			}
		}
	})
}

func TestAssignIsBalanced(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 8; n++ {
		// Over many sets of members, as their ids are drawn at random: nobody is always the loser.
		total, worst := map[int]int{}, 0
		const sets = 200
		for set := range sets {
			members := make([]string, n)
			for i := range members {
				members[i] = fmt.Sprintf("host-%d-%d-ABC", 1000+i, set)
			}
			count := map[string]int{}
			for _, m := range assign(members, 64) {
				count[m]++
			}
			for i, m := range members {
				total[i] += count[m]
				worst = max(worst, count[m])
			}
		}
		fair := 64 / n
		for i, c := range total {
			if c < sets*fair*8/10 || c > sets*(fair+1)*12/10 {
				t.Errorf("%d members: number %d got %d of %d shards in all", n, i, c, sets*64)
			}
		}
		if worst > 64*2/n+12 {
			t.Errorf("%d members: one got %d of 64", n, worst)
		}
	}
	if got := assign(nil, 2); got[0] != "" || got[1] != "" {
		t.Errorf("of nobody: %v", got)
	}
}

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
