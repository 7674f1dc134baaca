package status

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/store/sqlite"
	"github.com/waterclock-io/waterclock/streams"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// rig is real SQL and real NATS; planner and executors are played by the test.
type rig struct {
	t      testing.TB
	nats   *streams.Embedded
	store  store.Store
	nc     *nats.Conn
	js     jetstream.JetStream
	sealer *streams.Sealer
	marks  atomic.Int64
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t}
	var err error
	r.nats, err = streams.StartEmbedded(streams.EmbeddedOptions{Dir: t.TempDir(), Listen: "127.0.0.1:0", Logger: quiet})
	check(t, err)
	t.Cleanup(r.nats.Stop)
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "waterclock.db"), sqlite.Options{})
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	r.store = s
	r.nc = r.connect()
	r.js, err = jetstream.New(r.nc)
	check(t, err)
	_, err = streams.Ensure(t.Context(), r.js, s, streams.Limits{}, quiet)
	check(t, err)
	c, err := s.Cluster(t.Context())
	check(t, err)
	r.sealer = streams.NewSealer(c.Key)
	return r
}

func (r *rig) connect() *nats.Conn {
	r.t.Helper()
	nc, err := streams.Connect(streams.Dial{Embedded: r.nats, Name: "test", Logger: quiet})
	check(r.t, err)
	r.t.Cleanup(nc.Close)
	return nc
}

func (r *rig) recorder(s store.Store) *Recorder {
	r.t.Helper()
	if s == nil {
		s = r.store
	}
	rec, err := New(Config{Store: s, Conn: r.connect(), Logger: quiet})
	check(r.t, err)
	check(r.t, rec.Start(r.t.Context()))
	r.t.Cleanup(rec.Stop)
	return rec
}

// handedOut makes jobs whose first run is dispatched.
func (r *rig) handedOut(n int, change func(*job.Job)) []store.Timer {
	r.t.Helper()
	now, err := r.store.Now(r.t.Context())
	check(r.t, err)
	tr := r.store.Traits()
	subs := make([]store.Submission, n)
	mark := store.Mark{ID: r.marks.Add(1), Generation: 1}
	keys := make([]store.TimerKey, n)
	for i := range subs {
		j := &job.Job{
			ID: tr.NewJobID(), Namespace: "default", Version: 1, State: job.Active, Kind: "k", Queue: "default", QueueNamespace: job.SharedNamespace,
			Priority: job.Normal, Spec: job.Spec{Schedule: schedule.Schedule{Kind: schedule.Once, At: now}}, CreatedAt: now, UpdatedAt: now,
		}
		if change != nil {
			change(j)
		}
		j.Shard = job.ShardOf(j.ID, tr.Shards)
		occ, _ := j.Spec.Schedule.First()
		t := store.NewTimer(j, occ, now)
		j.DueAt = t.DueAt
		subs[i] = store.Submission{Job: j, Timer: &t}
		keys[i] = t.TimerKey
		mark.Items = append(mark.Items, store.MarkItem{Key: t.TimerKey, Version: 1, JobID: j.ID, ScheduledAt: t.ScheduledAt})
	}
	results, err := r.store.Submit(r.t.Context(), subs)
	check(r.t, err)
	for _, res := range results {
		check(r.t, res.Err)
	}
	marked, err := r.store.MarkDispatched(r.t.Context(), mark)
	check(r.t, err)
	for _, m := range marked {
		if m != store.MarkDone {
			r.t.Fatalf("marked: %v", marked)
		}
	}
	rows, err := r.store.ReadTimers(r.t.Context(), keys)
	check(r.t, err)
	if len(rows) != n {
		r.t.Fatalf("%d rows of %d", len(rows), n)
	}
	return rows
}

func ticketOf(t *store.Timer) *wirev1.Ticket {
	return &wirev1.Ticket{
		JobId: t.JobID[:], RunId: t.RunID[:], Shard: uint32(t.Shard), DueAt: t.DueAt.UnixMicro(), Dispatch: t.Dispatch, //nolint:gosec // shards are few
		Namespace: t.Namespace, QueueNamespace: t.QueueNamespace, Queue: t.Queue, Attempt: t.Attempt, Recurring: t.Recurring,
		ScheduledAt: t.ScheduledAt.UnixMicro(), Version: t.Version,
	}
}

// say makes a status of a hand-over.
func (r *rig) say(t *store.Timer, kind wirev1.StatusKind) *wirev1.Status {
	r.t.Helper()
	sealed, err := r.sealer.Seal(ticketOf(t))
	check(r.t, err)
	return &wirev1.Status{Ticket: sealed, Kind: kind, StartedAt: t.DueAt.UnixMicro(), EndedAt: t.DueAt.UnixMicro() + 1}
}

func (r *rig) send(sender string, statuses ...*wirev1.Status) {
	r.t.Helper()
	b, err := proto.Marshal(&wirev1.StatusBatch{Executor: sender, Statuses: statuses})
	check(r.t, err)
	r.raw(sender, b)
}

func (r *rig) raw(sender string, b []byte) {
	r.t.Helper()
	_, err := r.js.Publish(r.t.Context(), streams.StatusSubject(sender), b)
	check(r.t, err)
}

func (r *rig) row(t *store.Timer) *store.Timer {
	r.t.Helper()
	rows, err := r.store.ReadTimers(r.t.Context(), []store.TimerKey{t.TimerKey})
	check(r.t, err)
	if len(rows) == 0 {
		return nil
	}
	return &rows[0]
}

func (r *rig) history(t *store.Timer) []store.RunRow {
	r.t.Helper()
	rows, err := r.store.RunAttempts(r.t.Context(), t.JobID, t.RunID)
	check(r.t, err)
	return rows
}

// ended waits until a run has exactly one final row, and returns it.
func (r *rig) ended(t *store.Timer, want job.Step) store.RunRow {
	r.t.Helper()
	var rows []store.RunRow
	await(r.t, "the end of a run", func() bool {
		rows = r.history(t)
		return len(rows) > 0 && rows[len(rows)-1].Final
	})
	if len(rows) != 1 || rows[0].Step != want {
		r.t.Errorf("history is %+v, want one row of %v", rows, want)
	}
	return rows[0]
}

// settled waits until all of STATUS is acknowledged: applied, refused or buried.
func (r *rig) settled() {
	r.t.Helper()
	await(r.t, "all statuses to be settled", func() bool {
		_, last, applied, err := streams.StatusFill(r.t.Context(), r.js)
		return err == nil && applied == last
	})
}

func (r *rig) dead() uint64 {
	r.t.Helper()
	s, err := r.js.Stream(r.t.Context(), streams.DeadStream)
	check(r.t, err)
	return s.CachedInfo().State.Msgs
}

// faulty is a store whose recording goes wrong as the test says.
type faulty struct {
	store.Store
	record func(ctx context.Context, reports []store.Report, do func() ([]store.ReportResult, error)) ([]store.ReportResult, error)
}

func (f *faulty) Record(ctx context.Context, reports []store.Report, decide func(int, *store.Timer, *job.Job, time.Time) store.Change) ([]store.ReportResult, error) {
	return f.record(ctx, reports, func() ([]store.ReportResult, error) { return f.Store.Record(ctx, reports, decide) })
}

func has(reports []store.Report, run uuid.UUID) bool {
	for i := range reports {
		if reports[i].Key.RunID == run {
			return true
		}
	}
	return false
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await asks until it is told yes.
func await(t testing.TB, what string, yes func() bool) {
	t.Helper()
	over := time.NewTimer(30 * time.Second)
	defer over.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-tick.C:
		case <-over.C:
			t.Fatalf("never came: %s", what)
		}
	}
}
