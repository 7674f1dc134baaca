// Package e2e tries the roles together, in one process, over real NATS and real SQL.
package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/waterclock-io/waterclock/executor"
	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/internal/dbclock"
	"github.com/waterclock-io/waterclock/internal/natstest"
	"github.com/waterclock-io/waterclock/internal/pgtest"
	"github.com/waterclock-io/waterclock/internal/sqltest"
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

func openSQLite(t testing.TB) store.Store { return sqltest.Open(t, sqlite.Options{}) }

// openPostgres opens a database of its own, as production does: READ COMMITTED.
func openPostgres(t testing.TB) store.Store { return openCRDB(t, crdb.ReadCommitted) }

// openSerializable opens one at the level at which CockroachDB runs.
func openSerializable(t testing.TB) store.Store { return openCRDB(t, crdb.Serializable) }

func openCRDB(t testing.TB, level crdb.Isolation) store.Store {
	t.Helper()
	s, err := crdb.Open(t.Context(), pgtest.Shared(t).NewDatabase(t), crdb.Options{Isolation: level, Log: newLog(t)})
	check.OK(t, err)
	t.Cleanup(func() { check.OK(t, s.Close()) })
	return s
}

// stores are the kinds of store that tests run on.
func stores() map[string]opener {
	return map[string]opener{"sqlite": openSQLite, "postgres": openPostgres, "serializable": openSerializable}
}

// alone runs a test on each kind of store, one after another and beside no other test: it takes all that the machine has.
func alone(t *testing.T, test func(t *testing.T, r *rig)) {
	for name, open := range stores() {
		t.Run(name, func(t *testing.T) { test(t, newRig(t, open)) })
	}
}

// onEachStore runs a test on every kind of store.
func onEachStore(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Parallel()
	for name, open := range stores() {
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
	r.nats = natstest.Start(t, streams.EmbeddedOptions{Logger: r.log})
	r.store = open(t)
	r.clock = dbclock.New(r.store, r.log)
	check.OK(t, r.clock.Start(t.Context()))
	t.Cleanup(r.clock.Stop)
	nc := r.connect()
	_, err := streams.Ensure(t.Context(), natstest.JetStream(t, nc), r.store, streams.Limits{}, r.log)
	check.OK(t, err)
	r.waker = streams.NewWaker(streams.NewNotifier(nc, r.log), r.log)
	r.seen = newChanges(t, nc)
	return r
}

func (r *rig) connect() *nats.Conn {
	r.t.Helper()
	return natstest.Connect(r.t, streams.Dial{Embedded: r.nats, Logger: r.log})
}

func (r *rig) planner() *planner.Planner {
	r.t.Helper()
	p, err := planner.New(planner.Config{Store: r.store, Clock: r.clock, Conn: r.connect(), Logger: r.log})
	check.OK(r.t, err)
	check.OK(r.t, p.Start(r.t.Context()))
	r.t.Cleanup(p.Stop)
	return p
}

func (r *rig) recorder() *status.Recorder {
	r.t.Helper()
	s, err := status.New(status.Config{Store: r.store, Conn: r.connect(), Logger: r.log})
	check.OK(r.t, err)
	check.OK(r.t, s.Start(r.t.Context()))
	r.t.Cleanup(s.Stop)
	return s
}

func (r *rig) executor(slots int, handlers map[string]executor.Handler) *executor.Executor {
	r.t.Helper()
	e, err := executor.New(executor.Config{Conn: r.connect(), Slots: slots, Handlers: handlers, Logger: r.log})
	check.OK(r.t, err)
	check.OK(r.t, e.Start(r.t.Context()))
	r.t.Cleanup(func() { e.Stop(context.Background()) })
	return e
}

// newJob makes a job of the default namespace; change adapts it.
func (r *rig) newJob(kind string, s schedule.Schedule, change func(*job.Job)) *job.Job {
	return sqltest.NewJob(r.store, r.clock.Now(), s, func(j *job.Job) {
		j.Kind = kind
		if change != nil {
			change(j)
		}
	})
}

func once(at time.Time) schedule.Schedule {
	return schedule.Schedule{Kind: schedule.Once, At: at.UTC().Truncate(time.Microsecond)}
}

// submit stores jobs with their first runs and wakes their planners.
func (r *rig) submit(jobs ...*job.Job) {
	r.t.Helper()
	now := r.clock.Now()
	var wake []*store.DueRow
	for i, t := range sqltest.Submit(r.t, r.store, now, jobs...) {
		if j := jobs[i]; t.DueAt.Before(now.Add(5 * time.Second)) {
			wake = append(wake, &store.DueRow{Timer: t, Name: j.Name, Spec: j.Spec, Payload: j.Payload, JobCreatedAt: j.CreatedAt})
		}
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
	check.OK(t, err)
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

// tally counts how often each run was worked on.
type tally struct {
	mu   sync.Mutex
	runs map[uuid.UUID]int
}

func (c *tally) work(_ context.Context, run *executor.Run) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		c.runs = map[uuid.UUID]int{}
	}
	c.runs[run.ID]++
	return nil
}

// onceEach ends the test where a job did not succeed, or its run was not worked on exactly once.
func (c *tally) onceEach(t testing.TB, jobs []*job.Job, rows map[uuid.UUID]store.RunRow) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range jobs {
		if row := rows[j.ID]; row.Step != job.StepSucceeded || c.runs[row.RunID] != 1 {
			t.Fatalf("job %s, run %s: %s, ran %d times", j.ID, row.RunID, row.Step, c.runs[row.RunID])
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
		check.OK(r.t, err)
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
