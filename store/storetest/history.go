package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

func testHistory(t *testing.T, g *group) {
	g.run(t, "timers of several jobs", func(t *testing.T, b *bundle) {
		one, bare, series := b.once(b.at(time.Hour)), b.once(b.base), b.every(b.base)
		timers := b.submit(t, one, series)
		_, err := b.Submit(t.Context(), []store.Submission{{Job: bare}})
		check(t, err)
		trigger := store.NewTrigger(one, "request", b.at(time.Minute), b.at(time.Minute))
		b.put(t, one, trigger)
		third, second := b.occurrence(series, b.at(2*time.Minute)), b.occurrence(series, b.at(time.Minute))
		b.put(t, series, third, second)
		got, err := b.Timers(t.Context(), []*job.Job{one, bare, series, b.once(b.base)})
		check(t, err)
		want := map[uuid.UUID][]store.Timer{one.ID: {trigger, timers[0]}, series.ID: {timers[1], second, third}}
		for id, list := range got {
			if len(list) == 0 {
				delete(got, id)
			}
		}
		same(t, "timers", want, got)
	})
	g.run(t, "last runs", func(t *testing.T, b *bundle) {
		j, k, none := b.every(b.base), b.every(b.base), b.every(b.base)
		timers := b.submit(t, j, k, none)
		old := timers[0].History(job.StepSucceeded, true, "", b.at(time.Hour))
		late := b.occurrence(j, b.at(time.Minute))
		last := late.History(job.StepFailed, true, "", b.at(time.Minute)) // ended before the older one
		newest := b.occurrence(j, b.at(2*time.Minute))
		going := newest.History(job.StepFailed, false, "", b.at(time.Hour)) // not final
		other := timers[1].History(job.StepCancelled, true, "", b.at(time.Hour))
		b.change(t, j, store.Change{Runs: []store.RunRow{last, old, going}})
		b.change(t, k, store.Change{Runs: []store.RunRow{other}})
		got, err := b.LastRuns(t.Context(), idsOf([]*job.Job{j, k, none}))
		check(t, err)
		same(t, "last runs", map[uuid.UUID]store.RunRow{j.ID: last, k.ID: other}, got)
	})
	g.run(t, "attempts of a run", func(t *testing.T, b *bundle) {
		j := b.every(b.base)
		tm := b.submit(t, j)[0]
		var want []store.RunRow
		for attempt := range int32(12) {
			tm.Attempt = attempt + 1
			want = append(want, tm.History(job.StepFailed, attempt == 11, fmt.Sprint(attempt), b.at(time.Duration(attempt)*time.Minute)))
		}
		other := b.occurrence(j, b.at(time.Hour))
		shuffled := append(slices.Clone(want[6:]), want[:6]...)
		b.change(t, j, store.Change{Runs: append(shuffled, other.History(job.StepSucceeded, true, "", b.at(time.Hour)))})
		got, err := b.RunAttempts(t.Context(), j.ID, tm.RunID)
		check(t, err)
		same(t, "attempts", want, got)
		got, err = b.RunAttempts(t.Context(), uuid.New(), tm.RunID)
		check(t, err)
		same(t, "attempts under another job", []store.RunRow{}, got)
	})
	g.run(t, "runs of a job, page by page", func(t *testing.T, b *bundle) {
		j, other := b.every(b.base), b.every(b.base)
		b.submit(t, j, other)
		var c store.Change
		var want []store.RunRow
		for i := range 30 {
			tm := store.NewTrigger(j, fmt.Sprint(i), b.at(time.Duration(i/4)*time.Minute), b.base) // several at each nominal time
			tm.Attempt = 1
			c.Runs = append(c.Runs, tm.History(job.StepFailed, false, "", b.base))
			tm.Attempt = 2
			final := tm.History(job.StepSucceeded, true, "", b.at(time.Duration(30-i)*time.Minute))
			c.Runs = append(c.Runs, final)
			want = append(want, final)
		}
		b.change(t, j, c)
		foreign := b.occurrence(other, b.base)
		b.change(t, other, store.Change{Runs: []store.RunRow{foreign.History(job.StepSucceeded, true, "", b.base)}})
		slices.SortFunc(want, func(x, y store.RunRow) int {
			if c := y.ScheduledAt.Compare(x.ScheduledAt); c != 0 {
				return c
			}
			return slices.Compare(y.RunID[:], x.RunID[:])
		})
		for _, limit := range []int{1, 7, 30, 100} {
			got := pagesOf(t, limit, func(p store.RunPosition) ([]store.RunRow, error) { return b.ListRuns(t.Context(), j.ID, p, limit) },
				func(r store.RunRow) time.Time { return r.ScheduledAt })
			same(t, "runs", want, got)
		}
	})
	g.run(t, "failures of a namespace, page by page", func(t *testing.T, b *bundle) {
		var want []store.RunRow
		for i := range 20 {
			j := b.every(b.base)
			if i%5 == 4 {
				j.Namespace = b.ns + "-other"
			}
			tm := b.submit(t, j)[0]
			at := b.at(time.Duration(i/4) * time.Minute) // several at each end
			failed := tm.History(job.StepFailed, true, "bad", at)
			going, good := failed, failed
			going.Attempt, going.Final = 2, false
			good.Attempt, good.Step, good.RunID = 3, job.StepSucceeded, uuid.New()
			b.change(t, j, store.Change{Runs: []store.RunRow{failed, going, good}})
			if j.Namespace == b.ns {
				want = append(want, failed)
			}
		}
		slices.SortFunc(want, func(x, y store.RunRow) int {
			if c := y.EndedAt.Compare(x.EndedAt); c != 0 {
				return c
			}
			return slices.Compare(y.RunID[:], x.RunID[:])
		})
		for _, limit := range []int{1, 3, 100} {
			got := pagesOf(t, limit, func(p store.RunPosition) ([]store.RunRow, error) { return b.ListFailures(t.Context(), b.ns, p, limit) },
				func(r store.RunRow) time.Time { return r.EndedAt })
			same(t, "failures", want, got)
		}
	})
	g.run(t, "skips of a job, page by page", func(t *testing.T, b *bundle) {
		j, other := b.every(b.base), b.every(b.base)
		b.submit(t, j, other)
		var want []store.SkipRow
		for i := range 10 {
			want = append(want, store.SkipRow{
				JobID: j.ID, NominalAt: b.at(time.Duration(i) * time.Hour), ThroughAt: b.at(time.Duration(i)*time.Hour + time.Minute),
				Count: int64(i), Reason: fmt.Sprint("reason ", i), At: b.at(time.Duration(20-i) * time.Hour),
			})
		}
		b.change(t, j, store.Change{Skips: want})
		b.change(t, other, store.Change{Skips: []store.SkipRow{{JobID: other.ID, NominalAt: b.base, ThroughAt: b.base, Count: 1, At: b.base}}})
		slices.Reverse(want)
		for _, limit := range []int{1, 3, 10, 100} {
			var got []store.SkipRow
			for before := (time.Time{}); ; {
				page, err := b.ListSkips(t.Context(), j.ID, before, limit)
				check(t, err)
				got = append(got, page...)
				if len(page) < limit {
					break
				}
				before = page[len(page)-1].NominalAt
			}
			same(t, "skips", want, got)
		}
	})
}

// pagesOf reads a list of runs to its end; at is the time by which it is sorted.
func pagesOf(
	t *testing.T, limit int, list func(store.RunPosition) ([]store.RunRow, error), at func(store.RunRow) time.Time,
) (all []store.RunRow) {
	t.Helper()
	var p store.RunPosition
	for {
		page, err := list(p)
		check(t, err)
		if len(page) > limit {
			t.Fatalf("%d rows with limit %d", len(page), limit)
		}
		all = append(all, page...)
		if len(page) < limit {
			return all
		}
		last := page[len(page)-1]
		p = store.RunPosition{At: at(last), RunID: last.RunID}
	}
}
