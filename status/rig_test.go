package status

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/internal/natstest"
	"github.com/waterclock-io/waterclock/internal/sqltest"
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
	r := &rig{t: t, nats: natstest.Start(t, streams.EmbeddedOptions{}), store: sqltest.Open(t, sqlite.Options{})}
	r.nc = r.connect()
	r.js = natstest.JetStream(t, r.nc)
	_, err := streams.Ensure(t.Context(), r.js, r.store, streams.Limits{}, quiet)
	check.OK(t, err)
	c, err := r.store.Cluster(t.Context())
	check.OK(t, err)
	r.sealer = streams.NewSealer(c.Key)
	return r
}

func (r *rig) connect() *nats.Conn {
	r.t.Helper()
	return natstest.Connect(r.t, streams.Dial{Embedded: r.nats})
}

func (r *rig) recorder(s store.Store) *Recorder {
	r.t.Helper()
	if s == nil {
		s = r.store
	}
	rec, err := New(Config{Store: s, Conn: r.connect(), Logger: quiet})
	check.OK(r.t, err)
	check.OK(r.t, rec.Start(r.t.Context()))
	r.t.Cleanup(rec.Stop)
	return rec
}

// handedOut makes jobs whose first run is dispatched.
func (r *rig) handedOut(n int, change func(*job.Job)) []store.Timer {
	r.t.Helper()
	now, err := r.store.Now(r.t.Context())
	check.OK(r.t, err)
	jobs := make([]*job.Job, n)
	for i := range jobs {
		jobs[i] = sqltest.NewJob(r.store, now, schedule.Schedule{Kind: schedule.Once, At: now}, change)
	}
	return sqltest.HandOut(r.t, r.store, r.marks.Add(1), sqltest.Submit(r.t, r.store, now, jobs...)...)
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
	check.OK(r.t, err)
	return &wirev1.Status{Ticket: sealed, Kind: kind, StartedAt: t.DueAt.UnixMicro(), EndedAt: t.DueAt.UnixMicro() + 1}
}

func (r *rig) send(sender string, statuses ...*wirev1.Status) {
	r.t.Helper()
	b, err := proto.Marshal(&wirev1.StatusBatch{Executor: sender, Statuses: statuses})
	check.OK(r.t, err)
	r.raw(sender, b)
}

func (r *rig) raw(sender string, b []byte) {
	r.t.Helper()
	_, err := r.js.Publish(r.t.Context(), streams.StatusSubject(sender), b)
	check.OK(r.t, err)
}

func (r *rig) row(t *store.Timer) *store.Timer {
	r.t.Helper()
	rows, err := r.store.ReadTimers(r.t.Context(), []store.TimerKey{t.TimerKey})
	check.OK(r.t, err)
	if len(rows) == 0 {
		return nil
	}
	return &rows[0]
}

func (r *rig) history(t *store.Timer) []store.RunRow {
	r.t.Helper()
	rows, err := r.store.RunAttempts(r.t.Context(), t.JobID, t.RunID)
	check.OK(r.t, err)
	return rows
}

// ended waits until a run has exactly one final row, and returns it.
func (r *rig) ended(t *store.Timer, want job.Step) store.RunRow {
	r.t.Helper()
	var rows []store.RunRow
	check.Await(r.t, "the end of a run", func() bool {
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
	check.Await(r.t, "all statuses to be settled", func() bool {
		_, last, applied, err := streams.StatusFill(r.t.Context(), r.js)
		return err == nil && applied == last
	})
}

// applied is up to which message of STATUS all is acknowledged.
func (r *rig) applied() uint64 {
	r.t.Helper()
	_, _, applied, err := streams.StatusFill(r.t.Context(), r.js)
	check.OK(r.t, err)
	return applied
}

// dead fails unless there are so many dead letters; it returns their stream.
func (r *rig) dead(want int) jetstream.Stream {
	r.t.Helper()
	s, err := r.js.Stream(r.t.Context(), streams.DeadStream)
	check.OK(r.t, err)
	if n := s.CachedInfo().State.Msgs; n != uint64(want) { //nolint:gosec // few
		r.t.Errorf("%d dead letters, want %d", n, want)
	}
	return s
}

// untouched fails unless the row of a run is as it was.
func (r *rig) untouched(was store.Timer) {
	r.t.Helper()
	row := r.row(&was)
	if row == nil {
		r.t.Errorf("the row of run %s is gone", was.RunID)
	} else if d := cmp.Diff(was, *row); d != "" {
		r.t.Errorf("the row of run %s (-was +is):\n%s", was.RunID, d)
	}
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
