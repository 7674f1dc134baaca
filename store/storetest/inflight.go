package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

func testInFlight(t *testing.T, g *group) {
	// ReadInFlight reads a whole shard, so the tests of a group would meet each other's rows: each picks out its own.
	inFlight := func(t *testing.T, b *bundle, limit int) (list []store.Timer) {
		t.Helper()
		for shard := range b.shards {
			after := store.TimerKey{Shard: shard}
			for {
				page, err := b.ReadInFlight(t.Context(), shard, after, limit)
				check(t, err)
				for _, tm := range page {
					if tm.Shard != shard {
						t.Fatalf("row of shard %d among those of shard %d", tm.Shard, shard)
					}
					if tm.Compare(after) <= 0 {
						t.Fatalf("row %v after %v", tm.TimerKey, after)
					}
					after = tm.TimerKey
					if tm.Namespace == b.ns {
						list = append(list, tm)
					}
				}
				if len(page) > limit {
					t.Fatalf("%d rows with limit %d", len(page), limit)
				}
				if len(page) < limit {
					break
				}
			}
		}
		return list
	}
	g.run(t, "in flight: handed out, running, cancelling", func(t *testing.T, b *bundle) {
		var want []store.Timer
		for i := range 60 {
			j := b.once(b.at(time.Duration(i%7) * 37 * time.Second))
			tm := b.timer(j)
			tm.Step = job.StepWaiting + job.Step(i%5)
			_, err := b.Submit(t.Context(), []store.Submission{{Job: j, Timer: &tm}})
			check(t, err)
			if tm.Step.InFlight() {
				want = append(want, tm)
			}
		}
		slices.SortFunc(want, func(x, y store.Timer) int { return x.Compare(y.TimerKey) })
		for _, limit := range []int{1, 3, 1000} {
			same(t, "rows in flight", want, inFlight(t, b, limit))
		}
	})
	g.run(t, "timers by key", func(t *testing.T, b *bundle) {
		jobs := make([]*job.Job, 30)
		for i := range jobs {
			jobs[i] = b.once(b.at(time.Duration(i%3) * time.Minute))
		}
		timers := b.submit(t, jobs...)
		keys := keysOf(timers)
		unknown := keys[0]
		unknown.RunID = uuid.New()
		elsewhen := keys[1]
		elsewhen.DueAt = elsewhen.DueAt.Add(time.Microsecond)
		got, err := b.ReadTimers(t.Context(), append(slices.Clone(keys[:20]), unknown, elsewhen))
		check(t, err)
		byKey := func(x, y store.Timer) int { return x.Compare(y.TimerKey) }
		want := slices.SortedFunc(slices.Values(timers[:20]), byKey)
		slices.SortFunc(got, byKey)
		same(t, "timers", want, got)
		got, err = b.ReadTimers(t.Context(), nil)
		check(t, err)
		same(t, "timers of no key", []store.Timer{}, got)
	})
	g.run(t, "broken series", testBrokenSeries)
}

func testBrokenSeries(t *testing.T, b *bundle) {
	from := b.at(time.Hour)
	with := func(j *job.Job, timers ...store.Timer) *job.Job {
		_, err := b.Submit(t.Context(), []store.Submission{{Job: j}})
		check(t, err)
		b.put(t, j, timers...)
		return j
	}
	state := func(s job.State) *job.Job { j := b.every(b.base); j.State = s; return j }
	var broken, whole []*job.Job
	broken = append(broken, with(b.every(b.base)))
	j := b.every(b.base)
	broken = append(broken, with(j, b.occurrence(j, from.Add(-time.Microsecond))))
	j = b.every(b.base)
	broken = append(broken, with(j, store.NewTrigger(j, "request", from, from)))
	j = b.every(b.base)
	whole = append(whole, with(j, b.occurrence(j, from)))
	j = b.every(b.base)
	running := b.occurrence(j, from.Add(time.Minute))
	running.Step = job.StepRunning
	whole = append(whole, with(j, running))
	whole = append(whole, with(state(job.Paused)), with(state(job.Deleted)), with(state(job.Completed)), with(b.once(b.base)))

	named := map[uuid.UUID]bool{}
	for shard := range b.shards {
		after := uuid.UUID{}
		for {
			ids, err := b.BrokenSeries(t.Context(), shard, from, after, 2)
			check(t, err)
			for _, id := range ids {
				if slices.Compare(id[:], after[:]) <= 0 {
					t.Fatalf("id %s after %s", id, after)
				}
				after = id
				if named[id] {
					t.Fatalf("id %s twice", id)
				}
				named[id] = true
			}
			if len(ids) < 2 {
				break
			}
		}
	}
	for _, j := range broken {
		if !named[j.ID] {
			t.Errorf("job %s of %+v is broken and was not named", j.ID, b.timersOf(t, j))
		}
	}
	for _, j := range whole {
		if named[j.ID] {
			t.Errorf("job %s in state %s with %+v is whole and was named", j.ID, j.State, b.timersOf(t, j))
		}
	}
}
