// Package storetest is the suite that every implementation of store.Store passes. What it tests is what the contract in package store means: each
// sentence of it is a subtest that can fail.
//
// It is not a test of one implementation's own ways (files, connections, migrations): those are tested beside it. A new implementation needs a factory
// and a call of Run in its tests, and a call of Bench in its benchmarks.
package storetest

import (
	"crypto/sha256"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/store"
)

// Open makes a new, empty, migrated store that nothing else uses, and closes and removes it with t.Cleanup.
type Open = func(t *testing.T) store.Store

// Run runs the whole suite. open is called about a dozen times, also from parallel tests.
func Run(t *testing.T, open Open) {
	groups := []struct {
		name string
		run  func(t *testing.T, g *group)
	}{
		{"Clock", testClock},
		{"Submit", testSubmit},
		{"Jobs", testJobs},
		{"ChangeJob", testChange},
		{"ReadDue", testReadDue},
		{"Mark", testMark},
		{"InFlight", testInFlight},
		{"Record", testRecord},
		{"History", testHistory},
		{"Races", testRaces},
	}
	for _, gr := range groups {
		t.Run(gr.name, func(t *testing.T) {
			t.Parallel()
			gr.run(t, newGroup(open(t)))
		})
	}
	// These are about all that a store holds, so each test needs one of its own.
	alone := []struct {
		name string
		run  func(t *testing.T, open Open)
	}{
		{"Membership", testMembership},
		{"Registry", testRegistry},
		{"Purge", testPurge},
		{"Close", testClose},
		{"Model", testModel},
	}
	for _, a := range alone {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			a.run(t, open)
		})
	}
}

// group is one store that several tests share, each in a namespace and at times of its own.
type group struct {
	store store.Store
	tests atomic.Int64
}

func newGroup(s store.Store) *group { return &group{store: s} }

// firstDay is the base of the first test of a group: long past, so that no timer that a store makes itself falls into it.
var firstDay = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)

// run runs a parallel subtest with a bundle of its own.
func (g *group) run(t *testing.T, name string, test func(t *testing.T, b *bundle)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		test(t, g.bundle())
	})
}

func (g *group) bundle() *bundle {
	n := g.tests.Add(1)
	return &bundle{Store: g.store, ns: fmt.Sprintf("ns-%d", n), base: firstDay.AddDate(0, 0, int(n)), shards: g.store.Traits().Shards}
}

// bundle is what one test uses of a store: the day that starts at base is its own.
type bundle struct {
	store.Store
	ns     string
	base   time.Time
	shards int32
}

// at is a time of the test's own day.
func (b *bundle) at(d time.Duration) time.Time { return b.base.Add(d) }

// once makes a job that runs one time.
func (b *bundle) once(at time.Time) *job.Job {
	return b.job(schedule.Schedule{Kind: schedule.Once, At: at})
}

// every makes a recurring job that fires each minute from a time on.
func (b *bundle) every(from time.Time) *job.Job {
	return b.job(schedule.Schedule{Kind: schedule.Every, Period: time.Minute, Anchor: from})
}

func (b *bundle) job(sched schedule.Schedule) *job.Job {
	id := b.Traits().NewJobID()
	first := sched.At
	if sched.Kind != schedule.Once {
		first = sched.Anchor
	}
	hash := sha256.Sum256(id[:])
	return &job.Job{
		ID: id, Namespace: b.ns, Shard: job.ShardOf(id, b.shards), Version: 1, State: job.Active, Kind: "test", Queue: job.DefaultQueue,
		QueueNamespace: job.SharedNamespace, Priority: job.Normal, Spec: job.Spec{Schedule: sched}, BodyHash: hash[:], DueAt: first,
		CreatedAt: b.base, UpdatedAt: b.base,
	}
}

// timer is the first run of a job.
func (b *bundle) timer(j *job.Job) store.Timer { return b.occurrence(j, j.DueAt) }

// occurrence is the run of a job at a nominal time. It is due then, whatever the clock says.
func (b *bundle) occurrence(j *job.Job, at time.Time) store.Timer {
	occ := schedule.Occurrence{At: at}
	if j.Spec.Recurring() {
		occ.Civil = at.Format(time.RFC3339)
	}
	return store.NewTimer(j, occ, at)
}

// submission is a job with its first run.
func (b *bundle) submission(j *job.Job) store.Submission {
	t := b.timer(j)
	return store.Submission{Job: j, Timer: &t}
}

// submit stores jobs with their first runs, and returns these.
func (b *bundle) submit(t testing.TB, jobs ...*job.Job) []store.Timer {
	t.Helper()
	subs := make([]store.Submission, len(jobs))
	timers := make([]store.Timer, len(jobs))
	for i, j := range jobs {
		subs[i] = b.submission(j)
		timers[i] = *subs[i].Timer
	}
	results, err := b.Submit(t.Context(), subs)
	check(t, err)
	for i, r := range results {
		if r.Err != nil || r.Existed {
			t.Fatalf("submission %d: existed %v, error %v", i, r.Existed, r.Err)
		}
	}
	return timers
}

// put adds timers to a stored job.
func (b *bundle) put(t testing.TB, j *job.Job, timers ...store.Timer) {
	t.Helper()
	b.change(t, j, store.Change{Put: timers})
}

// change applies a change to a stored job.
func (b *bundle) change(t testing.TB, j *job.Job, c store.Change) (*job.Job, []store.Timer) {
	t.Helper()
	after, timers, err := b.ChangeJob(t.Context(), j.Namespace, j.ID, func(*job.Job, []store.Timer, time.Time) (store.Change, error) { return c, nil })
	check(t, err)
	return after, timers
}

// timersOf reads the live rows of one job.
func (b *bundle) timersOf(t testing.TB, j *job.Job) []store.Timer {
	t.Helper()
	all, err := b.Timers(t.Context(), []*job.Job{j})
	check(t, err)
	return all[j.ID]
}

// row reads one timer, nil where it is gone.
func (b *bundle) row(t testing.TB, k store.TimerKey) *store.Timer {
	t.Helper()
	rows, err := b.ReadTimers(t.Context(), []store.TimerKey{k})
	check(t, err)
	if len(rows) == 0 {
		return nil
	}
	return &rows[0]
}

// rows reads timers by the id of their run.
func (b *bundle) rows(t testing.TB, keys []store.TimerKey) map[uuid.UUID]store.Timer {
	t.Helper()
	list, err := b.ReadTimers(t.Context(), keys)
	check(t, err)
	rows := make(map[uuid.UUID]store.Timer, len(list))
	for _, tm := range list {
		rows[tm.RunID] = tm
	}
	return rows
}

// item asks for a row as it was read to be handed out.
func item(t store.Timer, forbid bool) store.MarkItem {
	return store.MarkItem{Key: t.TimerKey, Version: t.Version, Dispatch: t.Dispatch, Forbid: forbid, JobID: t.JobID, ScheduledAt: t.ScheduledAt}
}

var markIDs atomic.Int64

// mark hands out rows and returns them as they are then.
func (b *bundle) mark(t testing.TB, timers ...store.Timer) []store.Timer {
	t.Helper()
	m := store.Mark{ID: markIDs.Add(1), Generation: 1}
	for _, tm := range timers {
		m.Items = append(m.Items, item(tm, false))
	}
	results, err := b.MarkDispatched(t.Context(), m)
	check(t, err)
	marked := make([]store.Timer, len(timers))
	rows := b.rows(t, keysOf(timers))
	for i, r := range results {
		if r != store.MarkDone {
			t.Fatalf("mark of row %d: result %d, want done", i, r)
		}
		marked[i] = rows[timers[i].RunID]
	}
	return marked
}

// cursors are places in all shards before all rows of a time.
func (b *bundle) cursors(from time.Time) []store.ShardCursor {
	cs := make([]store.ShardCursor, b.shards)
	for i := range cs {
		cs[i] = store.ShardCursor{Shard: int32(i), From: store.TimerKey{DueAt: from.Add(-time.Microsecond)}}
	}
	return cs
}

// due reads all due rows of the test's own day.
func (b *bundle) due(t testing.TB) []*store.DueRow {
	t.Helper()
	rows, err := b.ReadDue(t.Context(), b.cursors(b.base), b.base.AddDate(0, 0, 1), 10_000)
	check(t, err)
	return rows
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// same fails with what differs. Empty and nil slices are the same to a store.
func same(t testing.TB, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func keysOf(timers []store.Timer) []store.TimerKey {
	keys := make([]store.TimerKey, len(timers))
	for i := range timers {
		keys[i] = timers[i].TimerKey
	}
	return keys
}

func idsOf(jobs []*job.Job) []uuid.UUID {
	ids := make([]uuid.UUID, len(jobs))
	for i := range jobs {
		ids[i] = jobs[i].ID
	}
	return ids
}
