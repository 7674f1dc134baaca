package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

func testPurge(t *testing.T, open Open) {
	b := newGroup(open(t)).bundle()
	limit := b.at(time.Hour)
	old, young := limit.Add(-time.Microsecond), limit

	add := func(j *job.Job, state job.State, changed time.Time, live bool, c store.Change) *job.Job {
		t.Helper()
		j.State, j.UpdatedAt, j.Payload = state, changed, []byte("payload")
		sub := store.Submission{Job: j}
		if live {
			tm := b.timer(j)
			sub.Timer = &tm
		}
		_, err := b.Submit(t.Context(), []store.Submission{sub})
		check(t, err)
		b.change(t, j, c)
		return j
	}
	history := func(j *job.Job, at time.Duration, ended time.Time) store.RunRow {
		tm := b.occurrence(j, b.at(at))
		r := tm.History(job.StepSucceeded, true, "", ended)
		r.LogRef = "log of " + r.RunID.String()
		if at == 0 {
			r.ResultRef = "result of " + r.RunID.String()
		}
		return r
	}
	skip := func(j *job.Job, at time.Duration, decided time.Time) store.SkipRow {
		return store.SkipRow{JobID: j.ID, NominalAt: b.at(at), ThroughAt: b.at(at), Count: 1, Reason: "missed", At: decided}
	}
	type kept struct {
		name string
		job  *job.Job
		stay bool
	}
	var jobs []kept
	series := b.every(b.base)
	jobs = append(jobs, kept{"active series", add(series, job.Active, old, true, store.Change{
		Runs:  []store.RunRow{history(series, 0, old), history(series, time.Minute, young), history(series, 2*time.Minute, old)},
		Skips: []store.SkipRow{skip(series, 3*time.Minute, old), skip(series, 4*time.Minute, young)},
	}), true})
	jobs = append(jobs,
		kept{"deleted", add(b.every(b.base), job.Deleted, old, false, store.Change{}), false},
		kept{"deleted of late", add(b.every(b.base), job.Deleted, young, false, store.Change{}), true},
		kept{"deleted with a run that goes on", add(b.every(b.base), job.Deleted, old, true, store.Change{}), true},
		kept{"completed", add(b.every(b.base), job.Completed, old, false, store.Change{}), false},
		kept{"completed of late", add(b.every(b.base), job.Completed, young, false, store.Change{}), true},
		kept{"completed with a run that goes on", add(b.every(b.base), job.Completed, old, true, store.Change{}), true},
		kept{"paused series without a timer", add(b.every(b.base), job.Paused, old, false, store.Change{}), true},
		kept{"broken series", add(b.every(b.base), job.Active, old, false, store.Change{}), true},
		kept{"one-time that is over", add(b.once(b.base), job.Active, old, false, store.Change{}), false},
		kept{"one-time that waits", add(b.once(b.base), job.Active, old, true, store.Change{}), true},
		kept{"one-time that is over of late", add(b.once(b.base), job.Active, young, false, store.Change{}), true},
	)
	retried := b.once(b.base)
	first := b.timer(retried)
	jobs = append(jobs, kept{"one-time that waits for its retry", add(retried, job.Active, old, true, store.Change{
		Remove: []store.TimerKey{first.TimerKey}, Put: []store.Timer{store.Again(first, nil, b.at(time.Minute), 2)},
	}), true})
	slow := b.once(b.base)
	jobs = append(jobs, kept{"one-time of long ago that ended of late", add(slow, job.Active, old, false, store.Change{
		Runs: []store.RunRow{history(slow, 0, young)},
	}), true})
	quick := b.once(b.base)
	jobs = append(jobs, kept{"one-time with its old history", add(quick, job.Active, old, false, store.Change{
		Runs: []store.RunRow{history(quick, 0, old)}, Skips: []store.SkipRow{skip(quick, 0, old)},
	}), false})

	// 4 jobs, 3 rows of history, 2 skips.
	const limitRows, want = 4, 9
	away := errors.New("the blobs are away")
	if n, err := b.Purge(t.Context(), limit, limitRows, func(context.Context, []string) error { return away }); n != 0 || !errors.Is(err, away) {
		t.Errorf("%d rows were deleted while their blobs could not be: %v", n, err)
	}
	var dropped []string
	drop := func(_ context.Context, blobs []string) error {
		dropped = append(dropped, blobs...)
		return nil
	}
	total := 0
	for {
		n, err := b.Purge(t.Context(), limit, limitRows, drop)
		check(t, err)
		if n > limitRows {
			t.Fatalf("%d rows were deleted, limit %d", n, limitRows)
		}
		total += n
		if n < limitRows {
			break
		}
	}
	if total != want {
		t.Errorf("%d rows were deleted, want %d", total, want)
	}
	var blobs []string
	for _, r := range []store.RunRow{history(series, 0, old), history(series, 2*time.Minute, old), history(quick, 0, old)} {
		blobs = append(blobs, r.LogRef)
		if r.ResultRef != "" {
			blobs = append(blobs, r.ResultRef)
		}
	}
	slices.Sort(blobs)
	slices.Sort(dropped)
	same(t, "blobs", blobs, dropped)
	for _, k := range jobs {
		_, err := b.Job(t.Context(), b.ns, k.job.ID)
		if k.stay != (err == nil) || (!k.stay && !errors.Is(err, store.ErrNotFound)) {
			t.Errorf("%s: is kept %v, want %v (%v)", k.name, err == nil, k.stay, err)
		}
	}
	runs, err := b.ListRuns(t.Context(), series.ID, store.RunPosition{}, 10)
	check(t, err)
	same(t, "history", []store.RunRow{history(series, time.Minute, young)}, runs)
	skips, err := b.ListSkips(t.Context(), series.ID, time.Time{}, 10)
	check(t, err)
	same(t, "skips", []store.SkipRow{skip(series, 4*time.Minute, young)}, skips)
	if n, err := b.Purge(t.Context(), limit, 100, drop); n != 0 || err != nil {
		t.Errorf("a second purge deleted %d rows, error %v", n, err)
	}
	// What was purged leaves nothing behind that a new job of that id would meet.
	b.submit(t, func() *job.Job { j := *quick; j.Payload = nil; return &j }())
	got, err := b.Job(t.Context(), b.ns, quick.ID)
	check(t, err)
	if len(got.Payload) != 0 {
		t.Errorf("the new job has the payload %q of the old one", got.Payload)
	}
}
