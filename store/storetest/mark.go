package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

func testMark(t *testing.T, g *group) {
	g.run(t, "a mark hands the row out", func(t *testing.T, b *bundle) {
		j, tm := b.fullJob()
		tm.Step = job.StepDue
		_, err := b.Submit(t.Context(), []store.Submission{{Job: j, Timer: &tm}})
		check(t, err)
		before, err := b.Now(t.Context())
		check(t, err)
		results, err := b.MarkDispatched(t.Context(), store.Mark{ID: 77, Generation: 12, Items: []store.MarkItem{item(tm, false)}})
		check(t, err)
		same(t, "results", []store.MarkResult{store.MarkDone}, results)
		after, err := b.Now(t.Context())
		check(t, err)
		got := b.row(t, tm.TimerKey)
		if got.DispatchedAt.Before(before) || got.DispatchedAt.After(after) {
			t.Errorf("handed out at %v, not between %v and %v of the database", got.DispatchedAt, before, after)
		}
		want := tm
		want.Step, want.Dispatch, want.Generation, want.DispatchedAt = job.StepDispatched, tm.Dispatch+1, 12, got.DispatchedAt
		same(t, "row", &want, got)
	})
	g.run(t, "guards", func(t *testing.T, b *bundle) {
		j := b.every(b.base)
		b.submit(t, j)
		n := time.Duration(0)
		for _, forbid := range []bool{false, true} {
			for name, spoil := range map[string]func(tm *store.Timer, it *store.MarkItem){
				"version is higher":  func(_ *store.Timer, it *store.MarkItem) { it.Version++ },
				"version is lower":   func(_ *store.Timer, it *store.MarkItem) { it.Version-- },
				"dispatch is higher": func(_ *store.Timer, it *store.MarkItem) { it.Dispatch++ },
				"dispatch is lower":  func(_ *store.Timer, it *store.MarkItem) { it.Dispatch-- },
				"waiting":            func(tm *store.Timer, _ *store.MarkItem) { tm.Step = job.StepWaiting },
				"dispatched":         func(tm *store.Timer, _ *store.MarkItem) { tm.Step = job.StepDispatched },
				"running":            func(tm *store.Timer, _ *store.MarkItem) { tm.Step = job.StepRunning },
				"cancelling":         func(tm *store.Timer, _ *store.MarkItem) { tm.Step = job.StepCancelling },
				"key is another":     func(_ *store.Timer, it *store.MarkItem) { it.Key.RunID = uuid.New() },
				"due at another":     func(_ *store.Timer, it *store.MarkItem) { it.Key.DueAt = it.Key.DueAt.Add(time.Microsecond) },
			} {
				n++
				tm := b.occurrence(j, b.at(n*time.Minute))
				tm.Dispatch, tm.Version = 3, 2
				it := item(tm, forbid)
				spoil(&tm, &it)
				b.put(t, j, tm)
				results, err := b.MarkDispatched(t.Context(), store.Mark{ID: markIDs.Add(1), Items: []store.MarkItem{it}})
				check(t, err)
				same(t, "result where "+name, []store.MarkResult{store.MarkStale}, results)
				same(t, "row where "+name, &tm, b.row(t, tm.TimerKey))
			}
		}
	})
	g.run(t, "a batch is answered in the order of its items", func(t *testing.T, b *bundle) {
		jobs := make([]*job.Job, 500)
		for i := range jobs {
			jobs[i] = b.once(b.at(time.Duration(len(jobs)-i) * time.Second)) // not sorted by key
		}
		timers := b.submit(t, jobs...)
		m := store.Mark{ID: markIDs.Add(1), Generation: 1}
		want := make([]store.MarkResult, len(timers))
		wantMarked := make([]bool, len(timers))
		for i, tm := range timers {
			it := item(tm, i%2 == 0)
			want[i], wantMarked[i] = store.MarkDone, true
			if i%7 == 0 {
				it.Version++
				want[i], wantMarked[i] = store.MarkStale, false
			}
			m.Items = append(m.Items, it)
		}
		results, err := b.MarkDispatched(t.Context(), m)
		check(t, err)
		same(t, "results", want, results)
		marked, err := b.Marked(t.Context(), m)
		check(t, err)
		same(t, "marked", wantMarked, marked)
		for _, id := range []int64{markIDs.Add(1), m.ID - 1} {
			other := m
			other.ID = id
			marked, err = b.Marked(t.Context(), other)
			check(t, err)
			same(t, "marked by another batch", make([]bool, len(timers)), marked)
		}
		again, err := b.MarkDispatched(t.Context(), m)
		check(t, err)
		same(t, "results of the same batch again", make([]store.MarkResult, len(timers)), again)
	})
	g.run(t, "an empty batch", func(t *testing.T, b *bundle) {
		results, err := b.MarkDispatched(t.Context(), store.Mark{ID: markIDs.Add(1)})
		check(t, err)
		same(t, "results", []store.MarkResult{}, results)
	})
	g.run(t, "of two markers one wins each row", func(t *testing.T, b *bundle) {
		jobs := make([]*job.Job, 300)
		for i := range jobs {
			jobs[i] = b.once(b.at(time.Duration(i) * time.Second))
		}
		timers := b.submit(t, jobs...)
		var mu sync.Mutex
		done := map[uuid.UUID]int64{}
		var wg sync.WaitGroup
		for marker := range 4 {
			wg.Go(func() {
				for from := 0; from < len(timers); from += 50 {
					m := store.Mark{ID: markIDs.Add(1), Generation: 1}
					for i := range 50 {
						// Half of the markers go through each batch backwards.
						at := from + i
						if marker%2 == 1 {
							at = from + 49 - i
						}
						m.Items = append(m.Items, item(timers[at], marker == 0))
					}
					results, err := b.MarkDispatched(t.Context(), m)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for i, r := range results {
						if r == store.MarkDone {
							if by, twice := done[m.Items[i].Key.RunID]; twice {
								t.Errorf("row marked by %d and %d", by, m.ID)
							}
							done[m.Items[i].Key.RunID] = m.ID
						}
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if len(done) != len(timers) {
			t.Errorf("%d rows were marked, want %d", len(done), len(timers))
		}
		for _, row := range b.rows(t, keysOf(timers)) {
			if row.Dispatch != 1 {
				t.Fatalf("dispatch is %d, want 1", row.Dispatch)
			}
		}
	})
	g.run(t, "forbid", testForbid)
}

func testForbid(t *testing.T, b *bundle) {
	mark := func(items ...store.MarkItem) []store.MarkResult {
		t.Helper()
		results, err := b.MarkDispatched(t.Context(), store.Mark{ID: markIDs.Add(1), Items: items})
		check(t, err)
		return results
	}
	one := func(what string, it store.MarkItem, want store.MarkResult) {
		t.Helper()
		same(t, what, []store.MarkResult{want}, mark(it))
	}
	series := func() (*job.Job, []store.Timer) {
		j := b.every(b.base)
		timers := []store.Timer{b.submit(t, j)[0], b.occurrence(j, b.at(time.Minute)), b.occurrence(j, b.at(2*time.Minute))}
		b.put(t, j, timers[1:]...)
		return j, timers
	}
	for step := job.StepWaiting; step <= job.StepCancelling; step++ {
		j, timers := series()
		timers[0].Step = step
		b.change(t, j, store.Change{Set: timers[:1]})
		one("an earlier run is "+step.String(), item(timers[1], true), store.MarkOverlaps)
		if row := b.row(t, timers[1].TimerKey); row.Step != job.StepDue || row.Dispatch != 0 {
			t.Errorf("a row that overlaps was changed: %+v", row)
		}
		stale := item(timers[1], true)
		stale.Dispatch++
		one("an earlier run, but the row is not as it was read", stale, store.MarkStale)
		one("overlap is allowed", item(timers[1], false), store.MarkDone)
		b.change(t, j, store.Change{Remove: keysOf(timers[:2])})
		one("the earlier runs have ended", item(timers[2], true), store.MarkDone)
	}

	_, timers := series()
	got := mark(item(timers[2], true), item(timers[0], true), item(timers[1], true))
	same(t, "three of one job in a batch", []store.MarkResult{store.MarkOverlaps, store.MarkDone, store.MarkOverlaps}, got)

	_, timers = series()
	got = mark(item(timers[1], true), item(timers[0], false))
	same(t, "the earlier one in the batch does not forbid", []store.MarkResult{store.MarkOverlaps, store.MarkDone}, got)

	// The earlier one is spoilt: it stays, and so the later one overlaps all the same.
	_, timers = series()
	spoilt := item(timers[0], true)
	spoilt.Version++
	got = mark(spoilt, item(timers[1], true))
	same(t, "the earlier one is stale", []store.MarkResult{store.MarkStale, store.MarkOverlaps}, got)

	j, timers := series()
	later := store.Again(timers[0], nil, b.at(time.Hour), 2) // due after the second, nominally before it
	b.change(t, j, store.Change{Remove: keysOf(timers[:1]), Put: []store.Timer{later}})
	one("an earlier run waits for its retry", item(timers[1], true), store.MarkOverlaps)
	one("the retry itself", item(later, true), store.MarkDone)

	j, timers = series()
	trigger := store.NewTrigger(j, "request", timers[0].ScheduledAt, timers[0].ScheduledAt)
	b.put(t, j, trigger)
	got = mark(item(timers[0], true), item(trigger, true))
	same(t, "two of the same nominal time", []store.MarkResult{store.MarkDone, store.MarkDone}, got)

	_, first := series()
	_, second := series()
	got = mark(item(first[0], true), item(second[0], true))
	same(t, "two jobs", []store.MarkResult{store.MarkDone, store.MarkDone}, got)
}
