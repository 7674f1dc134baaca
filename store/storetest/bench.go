package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/waterclock-io/waterclock/store"
)

// Bench measures the write path of one-time jobs in batches of the usual sizes and reports ns/row. open makes a new, empty store, as for Run.
func Bench(b *testing.B, open func(b *testing.B) store.Store) {
	for _, payload := range []int{0, 200} {
		name := "bare"
		if payload > 0 {
			name = "payload"
		}
		b.Run("Submit1000/"+name, func(b *testing.B) { benchSubmit(b, newGroup(open(b)).bundle(), payload) })
	}
	b.Run("Submit1", func(b *testing.B) {
		bu := newGroup(open(b)).bundle()
		i := 0
		for b.Loop() {
			i++
			must(b)(bu.Submit(b.Context(), []store.Submission{bu.submission(bu.once(bu.at(time.Duration(i) * time.Millisecond)))}))
		}
	})
	b.Run("ReadDue1000", func(b *testing.B) {
		bu := newGroup(open(b)).bundle()
		bu.fill(b, 1000, 200)
		cursors := bu.cursors(bu.base)
		for b.Loop() {
			must(b)(bu.ReadDue(b.Context(), cursors, bu.at(time.Hour), 1000))
		}
		perRow(b, 1000)
	})
	b.Run("Mark500", func(b *testing.B) { benchMark(b, newGroup(open(b)).bundle()) })
	b.Run("Record500", func(b *testing.B) { benchRecord(b, newGroup(open(b)).bundle()) })
}

// perRow reports what the loop took for each row.
func perRow(b *testing.B, rows int) {
	b.Helper()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(rows), "ns/row")
}

// must fails where a call did.
func must(b *testing.B) func(any, error) {
	return func(_ any, err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
}

func (b *bundle) batch(n, payload int) []store.Submission {
	subs := make([]store.Submission, n)
	for i := range subs {
		j := b.once(b.at(time.Duration(i) * time.Millisecond))
		if payload > 0 {
			j.Payload = make([]byte, payload)
		}
		subs[i] = b.submission(j)
	}
	return subs
}

// fill stores jobs and returns their timers.
func (b *bundle) fill(tb testing.TB, n, payload int) []store.Timer {
	tb.Helper()
	subs := b.batch(n, payload)
	_, err := b.Submit(context.Background(), subs)
	check(tb, err)
	timers := make([]store.Timer, n)
	for i := range subs {
		timers[i] = *subs[i].Timer
	}
	return timers
}

func benchSubmit(b *testing.B, bu *bundle, payload int) {
	const rows = 1000
	for b.Loop() {
		b.StopTimer()
		subs := bu.batch(rows, payload)
		b.StartTimer()
		must(b)(bu.Submit(b.Context(), subs))
	}
	perRow(b, rows)
}

func markOf(timers []store.Timer) store.Mark {
	m := store.Mark{ID: markIDs.Add(1), Generation: 1}
	for _, t := range timers {
		m.Items = append(m.Items, item(t, false))
	}
	return m
}

func benchMark(b *testing.B, bu *bundle) {
	const rows = 500
	for b.Loop() {
		b.StopTimer()
		m := markOf(bu.fill(b, rows, 0))
		b.StartTimer()
		must(b)(bu.MarkDispatched(b.Context(), m))
	}
	perRow(b, rows)
}

func benchRecord(b *testing.B, bu *bundle) {
	const rows = 500
	for b.Loop() {
		b.StopTimer()
		timers := bu.fill(b, rows, 0)
		must(b)(bu.MarkDispatched(b.Context(), markOf(timers)))
		reports := make([]store.Report, rows)
		for i, t := range timers {
			t.Dispatch++
			reports[i] = endOf(t)
		}
		b.StartTimer()
		must(b)(bu.Record(b.Context(), reports, ended))
	}
	perRow(b, rows)
}
