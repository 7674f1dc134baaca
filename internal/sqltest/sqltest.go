// Package sqltest gives tests of what stands on SQL a store of their own, and jobs in it as they stand after a submit and after a hand-over. Tests of the roles and of
// the API call it; programs do not. What a store must do is tried by store/storetest, without this package.
package sqltest

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/store/sqlite"
)

// atOnce is how many jobs are submitted with one call.
const atOnce = 1000

// Open opens an empty SQLite database in a folder of the test, and closes it at the end.
func Open(tb testing.TB, o sqlite.Options) *sqlite.Store {
	tb.Helper()
	s, err := sqlite.Open(tb.Context(), filepath.Join(tb.TempDir(), "waterclock.db"), o)
	check.OK(tb, err)
	tb.Cleanup(func() { check.OK(tb, s.Close()) })
	return s
}

// NewJob makes a job of kind "k" of the default namespace and queue, created now; change, which may be nil, adapts it. Nothing of it is stored.
func NewJob(s store.Store, now time.Time, when schedule.Schedule, change func(*job.Job)) *job.Job {
	tr := s.Traits()
	j := &job.Job{
		ID: tr.NewJobID(), Namespace: job.DefaultNamespace, Version: 1, State: job.Active, Kind: "k", Queue: job.DefaultQueue,
		QueueNamespace: job.SharedNamespace, Priority: job.Normal, Spec: job.Spec{Schedule: when}, CreatedAt: now, UpdatedAt: now,
	}
	if change != nil {
		change(j)
	}
	j.Shard = job.ShardOf(j.ID, tr.Shards)
	return j
}

// Submit stores jobs with their first runs, due when they were at the given time, and tells nobody. It returns the rows of the runs.
func Submit(tb testing.TB, s store.Store, now time.Time, jobs ...*job.Job) []store.Timer {
	tb.Helper()
	subs := make([]store.Submission, len(jobs))
	timers := make([]store.Timer, len(jobs))
	for i, j := range jobs {
		occ, ok := j.Spec.Schedule.First()
		if !ok {
			tb.Fatalf("job %d has no occurrence", i)
		}
		timers[i] = store.NewTimer(j, occ, now)
		j.DueAt = timers[i].DueAt
		subs[i] = store.Submission{Job: j, Timer: &timers[i]}
	}
	for len(subs) > 0 {
		n := min(len(subs), atOnce)
		results, err := s.Submit(tb.Context(), subs[:n])
		check.OK(tb, err)
		for _, res := range results {
			check.OK(tb, res.Err)
		}
		subs = subs[n:]
	}
	return timers
}

// HandOut marks due runs as dispatched, in one mark of this id, as a planner does before it publishes them. It returns their rows as they are then.
func HandOut(tb testing.TB, s store.Store, mark int64, due ...store.Timer) []store.Timer {
	tb.Helper()
	m := store.Mark{ID: mark, Generation: 1}
	keys := make([]store.TimerKey, len(due))
	for i := range due {
		t := &due[i]
		keys[i] = t.TimerKey
		m.Items = append(m.Items, store.MarkItem{Key: t.TimerKey, Version: t.Version, Dispatch: t.Dispatch, JobID: t.JobID, ScheduledAt: t.ScheduledAt})
	}
	marked, err := s.MarkDispatched(tb.Context(), m)
	check.OK(tb, err)
	for i := range marked {
		if marked[i] != store.MarkDone {
			tb.Fatalf("marked: %v", marked)
		}
	}
	rows, err := s.ReadTimers(tb.Context(), keys)
	check.OK(tb, err)
	if len(rows) != len(due) {
		tb.Fatalf("%d rows of %d", len(rows), len(due))
	}
	return rows
}
