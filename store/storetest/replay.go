package storetest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// testReplay gives the same reports, some of them twice and some out of date, in many orders and batches; what is left must be the same each time.
func testReplay(t *testing.T, b *bundle) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for round := range 10 {
		var reports []store.Report
		var jobs []*job.Job
		for i := range 12 {
			j := b.every(b.base)
			if i%2 == 0 {
				j = b.once(b.base)
			}
			jobs = append(jobs, j)
		}
		timers := b.mark(t, b.submit(t, jobs...)...)
		for i, tm := range timers {
			start, end, late := startOf(tm, b.at(time.Second), "exec"), endOf(tm), endOf(tm)
			late.Dispatch--
			end.NeedJob = true
			reports = append(reports, start, start, end, end, late)
			if i%2 == 1 {
				reports = append(reports, followOf(tm), followOf(tm))
			}
		}
		rng.Shuffle(len(reports), func(x, y int) { reports[x], reports[y] = reports[y], reports[x] })
		for len(reports) > 0 {
			n := 1 + rng.IntN(len(reports))
			batch := reports[:n]
			b.record(t, func(i int, tm *store.Timer, j *job.Job, _ time.Time) store.Change {
				var c store.Change
				if batch[i].Kind == store.ReportEnd {
					// What an attempt says of its start depends on the order; that it ended does not.
					run := tm.History(job.StepSucceeded, true, "", b.at(time.Minute))
					run.StartedAt, run.Executor = time.Time{}, ""
					c.Runs = []store.RunRow{run}
				}
				if j.Spec.Recurring() && !tm.Followed {
					c.Put = []store.Timer{b.occurrence(j, b.at(time.Minute))}
				}
				return c
			}, batch...)
			reports = reports[n:]
		}
		for i, j := range jobs {
			var want []store.Timer
			if j.Spec.Recurring() {
				want = []store.Timer{b.occurrence(j, b.at(time.Minute))}
			}
			same(t, "timers", want, b.timersOf(t, j))
			runs, err := b.ListRuns(t.Context(), j.ID, store.RunPosition{}, 10)
			check(t, err)
			run := timers[i].History(job.StepSucceeded, true, "", b.at(time.Minute))
			same(t, "history", []store.RunRow{run}, runs)
		}
		if t.Failed() {
			t.Fatalf("round %d of seed %d", round, seed)
		}
	}
}
