// Package e2e tries the roles together, in one process, over real NATS and real SQL.
package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/executor"
	"github.com/waterclock-io/waterclock/internal/dbclock"
	"github.com/waterclock-io/waterclock/internal/pgtest"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/planner"
	"github.com/waterclock-io/waterclock/status"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/store/crdb"
	"github.com/waterclock-io/waterclock/store/sqlite"
	"github.com/waterclock-io/waterclock/streams"
)

// rig is an installation in one process.
type rig struct {
	t     testing.TB
	log   *slog.Logger
	nats  *streams.Embedded
	store store.Store
	clock *dbclock.Clock
	waker *streams.Waker
	seen  *changes
}

// opener makes the store of a rig.
type opener func(t testing.TB) store.Store

func openSQLite(t testing.TB) store.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "waterclock.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// openPostgres opens a database of its own, as production does: READ COMMITTED.
func openPostgres(t testing.TB) store.Store { return openCRDB(t, crdb.ReadCommitted) }

// openSerializable opens one at the level at which CockroachDB runs.
func openSerializable(t testing.TB) store.Store { return openCRDB(t, crdb.Serializable) }

func openCRDB(t testing.TB, level crdb.Isolation) store.Store {
	t.Helper()
	s, err := crdb.Open(t.Context(), pgtest.Shared(t).NewDatabase(t), crdb.Options{Isolation: level, Log: newLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// alone runs a test on each kind of store, one after another and beside no other test: it takes all that the machine has.
func alone(t *testing.T, test func(t *testing.T, r *rig)) {
	for name, open := range map[string]opener{"sqlite": openSQLite, "postgres": openPostgres, "serializable": openSerializable} {
		t.Run(name, func(t *testing.T) { test(t, newRig(t, open)) })
	}
}

// onEachStore runs a test on every kind of store.
func onEachStore(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Parallel()
	for name, open := range map[string]opener{"sqlite": openSQLite, "postgres": openPostgres, "serializable": openSerializable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newRig(t, open))
		})
	}
}

func newLog(t testing.TB) *slog.Logger {
	level := slog.LevelWarn
	if os.Getenv("WATERCLOCK_TEST_LOG") == "debug" {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: level}))
}

// newRig starts NATS, SQL and a recorder; planners and executors are the test's to start.
func newRig(t testing.TB, open opener) *rig {
	t.Helper()
	r := &rig{t: t, log: newLog(t)}
	e, err := streams.StartEmbedded(streams.EmbeddedOptions{Dir: t.TempDir(), Listen: "127.0.0.1:0", Logger: r.log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	r.nats = e
	r.store = open(t)
	r.clock = dbclock.New(r.store, r.log)
	if err := r.clock.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.clock.Stop)
	nc := r.connect()
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = streams.Ensure(t.Context(), js, r.store, streams.Limits{}, r.log)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.waker = streams.NewWaker(streams.NewNotifier(nc, r.log), r.log)
	r.seen = newChanges(t, nc)
	return r
}

func (r *rig) connect() *nats.Conn {
	r.t.Helper()
	nc, err := streams.Connect(streams.Dial{Embedded: r.nats, Name: "test", Logger: r.log})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	return nc
}

func (r *rig) planner() *planner.Planner {
	r.t.Helper()
	p, err := planner.New(planner.Config{Store: r.store, Conn: r.connect(), Logger: r.log})
	if err == nil {
		err = p.Start(r.t.Context())
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(p.Stop)
	return p
}

func (r *rig) recorder() *status.Recorder {
	r.t.Helper()
	s, err := status.New(status.Config{Store: r.store, Conn: r.connect(), Logger: r.log})
	if err == nil {
		err = s.Start(r.t.Context())
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(s.Stop)
	return s
}

func (r *rig) executor(slots int, handlers map[string]executor.Handler) *executor.Executor {
	r.t.Helper()
	e, err := executor.New(executor.Config{Conn: r.connect(), Slots: slots, Handlers: handlers, Logger: r.log})
	if err == nil {
		err = e.Start(r.t.Context())
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { e.Stop(context.Background()) })
	return e
}

// newJob makes a job of the default namespace; change adapts it.
func (r *rig) newJob(kind string, s schedule.Schedule, change func(*job.Job)) *job.Job {
	tr := r.store.Traits()
	now := r.clock.Now()
	j := &job.Job{
		ID: tr.NewJobID(), Namespace: job.DefaultNamespace, Version: 1, State: job.Active, Kind: kind, Queue: job.DefaultQueue,
		QueueNamespace: job.SharedNamespace, Priority: job.Normal, Spec: job.Spec{Schedule: s}, CreatedAt: now, UpdatedAt: now,
	}
	if change != nil {
		change(j)
	}
	j.Shard = job.ShardOf(j.ID, tr.Shards)
	return j
}

func once(at time.Time) schedule.Schedule {
	return schedule.Schedule{Kind: schedule.Once, At: at.UTC().Truncate(time.Microsecond)}
}

// submit stores jobs with their first runs and wakes their planners.
func (r *rig) submit(jobs ...*job.Job) {
	r.t.Helper()
	subs := make([]store.Submission, len(jobs))
	var wake []store.DueRow
	now := r.clock.Now()
	for i, j := range jobs {
		occ, ok := j.Spec.Schedule.First()
		if !ok {
			r.t.Fatalf("job %d has no occurrence", i)
		}
		t := store.NewTimer(j, occ, now)
		j.DueAt = t.DueAt
		subs[i] = store.Submission{Job: j, Timer: &t}
		if t.DueAt.Before(now.Add(5 * time.Second)) {
			wake = append(wake, store.DueRow{Timer: t, Name: j.Name, Spec: j.Spec, Payload: j.Payload, JobCreatedAt: j.CreatedAt})
		}
	}
	for len(subs) > 0 {
		n := min(len(subs), 1000)
		results, err := r.store.Submit(r.t.Context(), subs[:n])
		if err != nil {
			r.t.Fatal(err)
		}
		for i := range results {
			if results[i].Err != nil {
				r.t.Fatal(results[i].Err)
			}
		}
		subs = subs[n:]
	}
	r.waker.Wake(wake)
}

// changes wakes those who wait for something to be recorded.
type changes struct {
	mu   sync.Mutex
	wait chan struct{}
}

func newChanges(t testing.TB, nc *nats.Conn) *changes {
	c := &changes{wait: make(chan struct{})}
	sub, err := streams.OnRecorded(nc, streams.Each(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		close(c.wait)
		c.wait = make(chan struct{})
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	return c
}

func (c *changes) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wait
}

// eventually asks until the answer is "", after each recorded change and at least twice a second, and fails with the last answer when the limit is over.
func (r *rig) eventually(limit time.Duration, ask func() string) {
	r.t.Helper()
	over := time.NewTimer(limit)
	defer over.Stop()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		changed := r.seen.next()
		answer := ask()
		if answer == "" {
			return
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-over.C:
			r.t.Fatalf("after %s: %s", limit, answer)
		}
	}
}

// finals returns the final rows of jobs.
func (r *rig) finals(jobs []*job.Job) map[uuid.UUID]store.RunRow {
	r.t.Helper()
	ids := make([]uuid.UUID, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	out := map[uuid.UUID]store.RunRow{}
	for len(ids) > 0 {
		n := min(len(ids), 1000)
		rows, err := r.store.LastRuns(r.t.Context(), ids[:n])
		if err != nil {
			r.t.Fatal(err)
		}
		for id, row := range rows {
			out[id] = row
		}
		ids = ids[n:]
	}
	return out
}

// allEnd waits until every job has a final row, and returns them.
func (r *rig) allEnd(limit time.Duration, jobs []*job.Job) map[uuid.UUID]store.RunRow {
	r.t.Helper()
	var rows map[uuid.UUID]store.RunRow
	r.eventually(limit, func() string {
		rows = r.finals(jobs)
		if len(rows) < len(jobs) {
			return fmt.Sprintf("%d of %d jobs have ended", len(rows), len(jobs))
		}
		return ""
	})
	return rows
}
