package storetest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// rounds is how often a race is run. The order of the two sides differs from round to round by itself, and is helped by who starts first.
const rounds = 40

func testRaces(t *testing.T, g *group) {
	hold := func(j *job.Job, timers []store.Timer) store.Change {
		next := *j
		next.State, next.Version = job.Paused, j.Version+1
		c := store.Change{Job: &next}
		for _, tm := range timers {
			if tm.Step == job.StepDue {
				tm.Step, tm.WaitReason = job.StepWaiting, store.WaitPaused
				c.Set = append(c.Set, tm)
			}
		}
		return c
	}
	drop := func(j *job.Job, timers []store.Timer) store.Change {
		next := *j
		next.State, next.Version = job.Deleted, j.Version+1
		c := store.Change{Job: &next}
		for _, tm := range timers {
			if tm.Step == job.StepDue {
				c.Remove = append(c.Remove, tm.TimerKey)
			}
		}
		return c
	}
	update := func(j *job.Job, timers []store.Timer) store.Change {
		next := *j
		next.Version = j.Version + 1
		c := store.Change{Job: &next}
		for _, tm := range timers {
			if tm.Step == job.StepDue {
				tm.Version = next.Version
				c.Set = append(c.Set, tm)
			}
		}
		return c
	}
	for name, decide := range map[string]func(*job.Job, []store.Timer) store.Change{"pause": hold, "delete": drop, "update": update} {
		g.run(t, name+" against mark", func(t *testing.T, b *bundle) { raceWithMark(t, b, decide) })
	}
	g.run(t, "pause against record", func(t *testing.T, b *bundle) { raceWithRecord(t, b, hold) })
	g.run(t, "delete against record", func(t *testing.T, b *bundle) { raceWithRecord(t, b, drop) })
	g.run(t, "two recorders", raceOfRecorders)
	g.run(t, "end against cancel", raceOfEndAndCancel)
	g.run(t, "changes of one job do not get lost", func(t *testing.T, b *bundle) {
		j := b.every(b.base)
		b.submit(t, j)
		const writers, times = 4, 15
		parallel(t, writers, func(int) error {
			for range times {
				_, _, err := b.ChangeJob(t.Context(), b.ns, j.ID, func(j *job.Job, _ []store.Timer, _ time.Time) (store.Change, error) {
					next := *j
					next.Version++
					return store.Change{Job: &next}, nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		got, err := b.Job(t.Context(), b.ns, j.ID)
		check(t, err)
		if got.Version != 1+writers*times {
			t.Errorf("version %d, want %d", got.Version, 1+writers*times)
		}
	})
}

// parallel runs functions at one time and fails with their errors.
func parallel(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	check(t, errors.Join(errs...))
}

// raceWithMark changes a job while its rows are handed out: what was due when the change was acknowledged is never handed out as it was read.
func raceWithMark(t *testing.T, b *bundle, decide func(*job.Job, []store.Timer) store.Change) {
	for round := range rounds {
		j := b.every(b.base)
		first := b.submit(t, j)[0]
		second := b.occurrence(j, b.at(time.Minute))
		b.put(t, j, second)
		timers := []store.Timer{first, second}
		var acknowledged []store.Timer
		marks := make([]store.Mark, 3)
		results := make([][]store.MarkResult, len(marks))
		parallel(t, len(marks)+1, func(i int) error {
			changer := round % (len(marks) + 1)
			if i == changer {
				_, after, err := b.ChangeJob(t.Context(), b.ns, j.ID, func(j *job.Job, timers []store.Timer, _ time.Time) (store.Change, error) {
					return decide(j, timers), nil
				})
				acknowledged = after
				return err
			}
			if i > changer {
				i--
			}
			marks[i] = store.Mark{ID: markIDs.Add(1), Generation: 1, Items: []store.MarkItem{item(timers[1], false), item(timers[0], true)}}
			var err error
			results[i], err = b.MarkDispatched(t.Context(), marks[i])
			return err
		})
		// Afterwards the stale list hands out nothing more.
		late, err := b.MarkDispatched(t.Context(), store.Mark{ID: markIDs.Add(1), Items: []store.MarkItem{item(first, false), item(second, false)}})
		check(t, err)
		same(t, "marks after the change", []store.MarkResult{store.MarkStale, store.MarkStale}, late)
		same(t, "rows at the acknowledgement and now", acknowledged, b.timersOf(t, j))
		marked := map[uuid.UUID]int{}
		for i, rs := range results {
			for k, r := range rs {
				if r == store.MarkDone {
					marked[marks[i].Items[k].Key.RunID]++
				}
			}
		}
		for _, tm := range timers {
			handed := 0
			if row := b.row(t, tm.TimerKey); row != nil && row.Step == job.StepDispatched {
				handed = 1
			}
			if marked[tm.RunID] != handed {
				t.Fatalf("round %d: run %s was marked %d times and is handed out %d times", round, tm.RunID, marked[tm.RunID], handed)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// raceWithRecord changes a job while the end of a run and a follow ask for its next one. When both have returned, no row of the job is due: either the
// change saw the new row, or the decision saw the changed job.
func raceWithRecord(t *testing.T, b *bundle, change func(*job.Job, []store.Timer) store.Change) {
	for round := range rounds {
		j := b.every(b.base)
		tm := b.mark(t, b.submit(t, j)[0])[0]
		next := func(_ int, tm *store.Timer, j *job.Job, _ time.Time) store.Change {
			if j == nil || j.State == job.Deleted || tm.Followed {
				return store.Change{}
			}
			return store.Change{Put: []store.Timer{b.occurrence(j, b.at(time.Minute))}}
		}
		end := endOf(tm)
		end.NeedJob = true
		parallel(t, 3, func(i int) error {
			var err error
			switch (i + round) % 3 {
			case 0:
				_, _, err = b.ChangeJob(t.Context(), b.ns, j.ID, func(j *job.Job, timers []store.Timer, _ time.Time) (store.Change, error) {
					return change(j, timers), nil
				})
				for _, row := range b.timersOf(t, j) {
					if err == nil && row.Step == job.StepDue {
						t.Errorf("round %d: row %+v is due after the change returned", round, row)
					}
				}
			case 1:
				_, err = b.Record(t.Context(), []store.Report{end}, next)
			case 2:
				_, err = b.Record(t.Context(), []store.Report{followOf(tm)}, next)
			}
			return err
		})
		for _, row := range b.timersOf(t, j) {
			if row.Step == job.StepDue {
				t.Errorf("round %d: row %+v is due", round, row)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// raceOfRecorders gives the same reports to several recorders in different batches: each end counts once.
func raceOfRecorders(t *testing.T, b *bundle) {
	jobs := make([]*job.Job, 120)
	for i := range jobs {
		if jobs[i] = b.once(b.at(time.Duration(i) * time.Second)); i%3 == 0 {
			jobs[i] = b.every(b.at(time.Duration(i) * time.Second))
		}
	}
	timers := b.mark(t, b.submit(t, jobs...)...)
	var mu sync.Mutex
	applied := map[uuid.UUID]int{}
	parallel(t, 4, func(recorder int) error {
		const size = 30
		for from := 0; from < len(timers); from += size {
			var reports []store.Report
			for i := range size {
				at := from + i
				if recorder%2 == 1 {
					at = len(timers) - 1 - at
				}
				end := endOf(timers[at])
				end.NeedJob = jobs[at].Spec.Recurring()
				reports = append(reports, end, startOf(timers[at], b.base, "exec"))
			}
			results, err := b.Record(t.Context(), reports, func(i int, tm *store.Timer, j *job.Job, now time.Time) store.Change {
				c := ended(i, tm, j, now)
				if j != nil {
					c.Put = []store.Timer{b.occurrence(j, tm.ScheduledAt.Add(time.Hour))}
				}
				return c
			})
			if err != nil {
				return err
			}
			mu.Lock()
			for i, r := range results {
				if reports[i].Kind == store.ReportEnd && r.Applied {
					applied[reports[i].Key.RunID]++
				}
			}
			mu.Unlock()
		}
		return nil
	})
	for i, tm := range timers {
		if n := applied[tm.RunID]; n != 1 {
			t.Errorf("the end of run %s was applied %d times, want once", tm.RunID, n)
		}
		runs, err := b.RunAttempts(t.Context(), tm.JobID, tm.RunID)
		check(t, err)
		want := 0
		if jobs[i].Spec.Recurring() {
			want = 1
		}
		if live := b.timersOf(t, jobs[i]); len(runs) != 1 || len(live) != want {
			t.Errorf("run %s: %d rows of history, %d timers", tm.RunID, len(runs), len(live))
		}
	}
}

// raceOfEndAndCancel ends a run while a user cancels it: exactly one final row.
func raceOfEndAndCancel(t *testing.T, b *bundle) {
	for round := range rounds {
		j := b.once(b.base)
		tm := b.mark(t, b.submit(t, j)[0])[0]
		parallel(t, 2, func(i int) error {
			if (i+round)%2 == 0 {
				_, err := b.Record(t.Context(), []store.Report{endOf(tm)}, ended)
				return err
			}
			_, _, err := b.ChangeJob(t.Context(), b.ns, j.ID, func(_ *job.Job, timers []store.Timer, now time.Time) (store.Change, error) {
				var c store.Change
				for _, tm := range timers {
					c.Remove = append(c.Remove, tm.TimerKey)
					c.Runs = append(c.Runs, tm.History(job.StepCancelled, true, "", now))
				}
				return c, nil
			})
			return err
		})
		runs, err := b.ListRuns(t.Context(), j.ID, store.RunPosition{}, 10)
		check(t, err)
		if live := b.timersOf(t, j); len(runs) != 1 || len(live) != 0 {
			t.Fatalf("round %d: history %+v, timers %+v, want one row and no timer", round, runs, live)
		}
	}
}
