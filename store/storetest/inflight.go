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
	// ReadInFlight reads whole shards, so the tests of a group would meet each other's rows: each picks out its own.
	inFlight := func(t *testing.T, b *bundle, until time.Time, limit int) (list []store.Timer) {
		t.Helper()
		var open []store.ShardCursor
		for shard := range b.shards {
			open = append(open, store.ShardCursor{Shard: shard, From: store.TimerKey{Shard: shard}})
		}
		for len(open) > 0 {
			page, err := b.ReadInFlight(t.Context(), open, until, limit)
			check(t, err)
			slices.SortFunc(page, func(x, y store.Timer) int { return x.Compare(y.TimerKey) })
			var full []store.ShardCursor
			for _, c := range open {
				n := 0
				for _, tm := range page {
					if tm.Shard != c.Shard {
						continue
					}
					if tm.Compare(c.From) <= 0 {
						t.Fatalf("row %v after %v", tm.TimerKey, c.From)
					}
					c.From = tm.TimerKey
					n++
					if tm.Namespace == b.ns {
						list = append(list, tm)
					}
				}
				if n > limit {
					t.Fatalf("%d rows of a shard with limit %d", n, limit)
				}
				if n == limit {
					full = append(full, c)
				}
			}
			open = full
		}
		slices.SortFunc(list, func(x, y store.Timer) int { return x.Compare(y.TimerKey) })
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
		last := want[len(want)-1].DueAt
		for _, tm := range want {
			if tm.DueAt.After(last) {
				last = tm.DueAt
			}
		}
		for _, limit := range []int{1, 3, 1000} {
			same(t, "rows in flight", want, inFlight(t, b, last.Add(time.Microsecond), limit))
		}
		want = slices.DeleteFunc(want, func(tm store.Timer) bool { return !tm.DueAt.Before(last) })
		same(t, "rows in flight before the last", want, inFlight(t, b, last, 1000))
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
