package harness

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock-io/waterclock/job/schedule"
)

func TestJobsMadeAreValidAndEndWithTheLoad(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for seed := range uint64(500) {
		m := &maker{rng: source(seed), end: now.Add(time.Minute), child: []string{"chaos", "child"}}
		for _, begin := range []time.Time{now, m.end.Add(-time.Millisecond), m.end.Add(5 * time.Second)} {
			spec, j := m.series(1, begin)
			if err := j.Schedule.Validate(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if latest := m.end.Add(7 * time.Second); j.Schedule.End.After(latest) {
				t.Errorf("seed %d: the series ends at %s, the load at %s", seed, j.Schedule.End, m.end)
			}
			if !spec.GetSchedule().GetEnd().AsTime().Equal(j.Schedule.End) || !spec.GetSchedule().GetEvery().GetAnchor().AsTime().Equal(j.Schedule.Anchor) {
				t.Errorf("seed %d: what is sent (%v) is not what is remembered (%v)", seed, spec.GetSchedule(), j.Schedule)
			}
		}
		if _, j := m.one(1, now); j.Schedule.Validate() != nil || j.Schedule.Kind != schedule.Once {
			t.Errorf("seed %d: %v", seed, j.Schedule)
		}
	}
}

func TestJobsOfEverySortAreMade(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 30, 0, time.UTC)
	var murders atomic.Int64
	murders.Store(2)
	seen := map[string]int{}
	for seed := range uint64(400) {
		m := &maker{
			rng: seeded(seed), end: now.Add(time.Minute), child: []string{"chaos", "child"}, web: "http://127.0.0.1:9", murders: &murders,
			queues: lanesOf("a", []string{"default", "b/other", "a/own"}),
		}
		spec, j := m.one(1, now)
		seen[spec.GetKind()]++
		seen["queue "+spec.GetQueue()+" "+j.Queue]++
		if j.Doomed {
			seen["doomed"]++
		}
		if spec.GetAttemptTimeout() != nil {
			seen["slow"]++
		}
		spec, j = m.series(1, now)
		seen[spec.GetCatchUp().String()]++
		if got := spec.GetSchedule().GetJitter().AsDuration(); got != j.Schedule.Jitter {
			t.Errorf("jitter %s is sent, %s remembered", got, j.Schedule.Jitter)
		}
		if spec, j, fires := m.minutely(1, now); !fires || j.Schedule.Validate() != nil || spec.GetSchedule().GetCron().GetSpec() != j.Schedule.Spec {
			t.Errorf("%v %+v %v", fires, j.Schedule, spec)
		}
		if occ, _ := j.Schedule.Between(now, m.end.Add(time.Hour), 1000); j.Schedule.Kind != schedule.Every || len(occ) == 0 {
			t.Errorf("%+v never fires", j.Schedule)
		}
		m.end = now.Add(20 * time.Second)
		if _, _, fires := m.minutely(1, now); fires {
			t.Error("a rule is made that cannot fire")
		}
	}
	if seen["doomed"] != 2 {
		t.Errorf("%d jobs are doomed, want 2", seen["doomed"])
	}
	for _, want := range []string{"exec", "http", "slow", "queue  default", "queue own a/own", "CATCH_UP_ALL", "CATCH_UP_NONE", "CATCH_UP_UNSPECIFIED"} {
		if seen[want] == 0 {
			t.Errorf("no job is made of the sort %q: %v", want, seen)
		}
	}
	if seen["queue other b/other"] > 0 {
		t.Error("a job is put into a queue of another namespace")
	}
}
