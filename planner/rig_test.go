package planner

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/internal/dbclock"
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

// rig is real SQL and real NATS; planners are the test's to start. Executors and recorders are played.
type rig struct {
	t     testing.TB
	nats  *streams.Embedded
	addr  string // connections go by a socket to here, and outlive the server; empty = within the process
	store store.Store
	clock *dbclock.Clock
	nc    *nats.Conn
	js    jetstream.JetStream

	atMark atomic.Pointer[func()] // see linked

	mu   sync.Mutex
	out  map[string]int // how often each subject of a run was published, stored or not
	last map[string]*wirev1.RunMessage
	// told is closed and made anew at each publish.
	told chan struct{}
}

func newRig(t testing.TB) *rig { return newRigIn(t, t.TempDir(), false) }

// newRigIn has its streams in a folder.
func newRigIn(t testing.TB, folder string, sockets bool) *rig {
	t.Helper()
	r := &rig{
		t: t, nats: natstest.Start(t, streams.EmbeddedOptions{Dir: folder}), store: sqltest.Open(t, sqlite.Options{}),
		out: map[string]int{}, last: map[string]*wirev1.RunMessage{}, told: make(chan struct{}),
	}
	r.clock = dbclock.New(r.store, quiet)
	check.OK(t, r.clock.Start(t.Context()))
	t.Cleanup(r.clock.Stop)
	if sockets {
		r.addr = r.nats.Addr()
	}
	r.nc = r.connect()
	r.js = natstest.JetStream(t, r.nc)
	_, err := r.nc.Subscribe("run.>", r.published)
	check.OK(t, err)
	r.executor("k")
	return r
}

func (r *rig) connect() *nats.Conn {
	r.t.Helper()
	if r.addr != "" {
		return natstest.Connect(r.t, streams.Dial{URL: "nats://" + r.addr})
	}
	return natstest.Connect(r.t, streams.Dial{Embedded: r.nats})
}

func (r *rig) published(m *nats.Msg) {
	msg := new(wirev1.RunMessage)
	if err := proto.Unmarshal(m.Data, msg); err != nil {
		r.t.Errorf("%s: %v", m.Subject, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out[m.Subject]++
	r.last[m.Subject] = msg
	close(r.told)
	r.told = make(chan struct{})
}

// executor plays one that offers a kind and never takes a run.
func (r *rig) executor(kind string) {
	n := streams.NewNotifier(r.nc, quiet)
	beat := func() {
		n.Heartbeat(&wirev1.Heartbeat{Executor: "played", Kinds: []string{kind}, Queues: []string{"_/default"}})
	}
	sub, err := streams.OnRollCall(r.nc, beat)
	check.OK(r.t, err)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			beat()
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	})
	r.t.Cleanup(func() {
		close(stop)
		wg.Wait()
		_ = sub.Unsubscribe()
	})
}

func (r *rig) planner(s Store, change func(*Config)) *Planner {
	r.t.Helper()
	if s == nil {
		s = r.store
	}
	cfg := Config{Store: s, Clock: r.clock, Conn: r.connect(), Logger: quiet}
	if change != nil {
		change(&cfg)
	}
	p, err := New(cfg)
	check.OK(r.t, err)
	check.OK(r.t, p.Start(r.t.Context()))
	r.t.Cleanup(p.Stop)
	return p
}

// awaitIn waits until something is so inside a planner, as its own goroutine sees it.
func awaitIn(t testing.TB, p *Planner, what string, yes func() bool) {
	t.Helper()
	check.Await(t, what, func() bool {
		is, _ := ask(p, yes)
		return is
	})
}

// owns waits until a planner plans: its in-flight rows are loaded, and it has heard of the executor.
func (r *rig) owns(p *Planner) {
	r.t.Helper()
	awaitIn(r.t, p, "a shard", func() bool {
		for _, o := range p.owned {
			if !o.inFlight {
				return false
			}
		}
		return len(p.owned) > 0 && p.registry.Offers(job.SharedNamespace, "default", "k")
	})
}

// inLanes adds up a number of each lane of a planner. It belongs on the planner's own goroutine.
func (p *Planner) inLanes(number func(*lane) int) int {
	sum := 0
	for _, l := range p.board.lanes {
		sum += number(l)
	}
	return sum
}

func (r *rig) now() time.Time {
	r.t.Helper()
	now, err := r.store.Now(r.t.Context())
	check.OK(r.t, err)
	return now
}

// job makes a job of kind "k" that is due once, at a time.
func (r *rig) job(at time.Time, change func(*job.Job)) *job.Job {
	return sqltest.NewJob(r.store, r.now(), schedule.Schedule{Kind: schedule.Once, At: at}, change)
}

// submit stores jobs with their first runs, due when they were at the given time, and tells no planner.
func (r *rig) submit(now time.Time, jobs ...*job.Job) []store.Timer {
	r.t.Helper()
	return sqltest.Submit(r.t, r.store, now, jobs...)
}

func (r *rig) row(k store.TimerKey) *store.Timer {
	r.t.Helper()
	rows, err := r.store.ReadTimers(r.t.Context(), []store.TimerKey{k})
	check.OK(r.t, err)
	if len(rows) == 0 {
		return nil
	}
	return &rows[0]
}

func laneOfJob(j *job.Job) streams.Lane {
	t := store.NewTimer(j, schedule.Occurrence{}, time.Time{})
	return laneOf(&t)
}

func subjectOf(t *store.Timer, dispatch int64) string {
	return streams.RunSubject(laneOf(t), t.RunID, dispatch)
}

// outs returns how often each hand-over was published.
func (r *rig) outs() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]int, len(r.out))
	for s, n := range r.out {
		out[s] = n
	}
	return out
}

func queued(l *lane) int { return l.queued }

// eachOnce fails for each hand-over that was published more than once.
func (r *rig) eachOnce() {
	r.t.Helper()
	for s, n := range r.outs() {
		if n != 1 {
			r.t.Errorf("%s was published %d times", s, n)
		}
	}
}

// areOut waits until a hand-over of each run was published.
func (r *rig) areOut(limit time.Duration, timers []store.Timer, dispatch int64) {
	r.t.Helper()
	for i := range timers {
		r.handedOut(limit, subjectOf(&timers[i], dispatch))
	}
}

// areOutAgain waits until each run was published with a dispatch above 1: on a busy machine the second may be marked, and come too late to be published.
func (r *rig) areOutAgain(limit time.Duration, timers []store.Timer) {
	r.t.Helper()
	over := time.NewTimer(limit)
	defer over.Stop()
	for {
		r.mu.Lock()
		again, told := map[uuid.UUID]bool{}, r.told
		for _, m := range r.last {
			if m.Dispatch > 1 {
				again[uuid.UUID(m.RunId)] = true
			}
		}
		r.mu.Unlock()
		left := 0
		for i := range timers {
			if !again[timers[i].RunID] {
				left++
			}
		}
		if left == 0 {
			return
		}
		select {
		case <-told:
		case <-over.C:
			r.t.Fatalf("after %s %d of %d runs were not handed out again", limit, left, len(timers))
		}
	}
}

// areStored waits until a hand-over of each run was published and its message is in RUNS.
func (r *rig) areStored(p *Planner, limit time.Duration, timers []store.Timer, dispatch int64) {
	r.t.Helper()
	r.areOut(limit, timers, dispatch)
	for i := range timers {
		check.Await(r.t, "its message is stored", func() bool { return r.stored(p, &timers[i], dispatch) })
	}
}

// markedOnce says whether a row stands as its first mark left it.
func markedOnce(row *store.Timer) bool {
	return row != nil && row.Step == job.StepDispatched && row.Dispatch == 1
}

// handedOut waits until a hand-over was published.
func (r *rig) handedOut(limit time.Duration, subject string) *wirev1.RunMessage {
	r.t.Helper()
	over := time.NewTimer(limit)
	defer over.Stop()
	for {
		r.mu.Lock()
		m, told := r.last[subject], r.told
		r.mu.Unlock()
		if m != nil {
			return m
		}
		select {
		case <-told:
		case <-over.C:
			r.t.Fatalf("%s was not handed out within %s; these were: %v", subject, limit, r.outs())
		}
	}
}

// recorder plays one: what was lost or released comes back, what was skipped is gone, what was dispatched or skipped is followed.
func (r *rig) recorder() {
	c, err := r.js.CreateOrUpdateConsumer(r.t.Context(), streams.StatusStream, jetstream.ConsumerConfig{Durable: streams.RecorderConsumer, AckPolicy: jetstream.AckExplicitPolicy})
	check.OK(r.t, err)
	cluster, err := r.store.Cluster(r.t.Context())
	check.OK(r.t, err)
	sealer := streams.NewSealer(cluster.Key)
	cc, err := c.Consume(func(m jetstream.Msg) {
		b := new(wirev1.StatusBatch)
		if err := proto.Unmarshal(m.Data(), b); err != nil {
			r.t.Errorf("a status: %v", err)
		}
		for _, s := range b.Statuses {
			r.record(sealer, s)
		}
		_ = m.Ack()
	})
	check.OK(r.t, err)
	r.t.Cleanup(func() {
		cc.Stop()
		<-cc.Closed()
	})
}

func (r *rig) record(sealer *streams.Sealer, s *wirev1.Status) {
	t, err := sealer.Open(s.Ticket)
	if err != nil {
		r.t.Errorf("a ticket: %v", err)
		return
	}
	rep := store.Report{
		Kind: store.ReportEnd, Key: store.TimerKey{Shard: int32(t.Shard), DueAt: time.UnixMicro(t.DueAt).UTC(), RunID: uuid.UUID(t.RunId)}, //nolint:gosec // shards are few
		JobID: uuid.UUID(t.JobId), Dispatch: t.Dispatch, NeedJob: true,
	}
	if s.Kind == wirev1.StatusKind_STATUS_KIND_DISPATCHED {
		rep.Kind = store.ReportFollow
	}
	_, err = r.store.Record(context.Background(), []store.Report{rep}, func(_ int, row *store.Timer, j *job.Job, now time.Time) store.Change {
		after := row.ScheduledAt
		switch s.Kind {
		case wirev1.StatusKind_STATUS_KIND_LOST, wirev1.StatusKind_STATUS_KIND_RELEASED:
			return store.Change{Put: []store.Timer{store.Again(*row, j, now.Add(time.Duration(s.Delay)*time.Microsecond), row.Attempt)}}
		case wirev1.StatusKind_STATUS_KIND_SKIPPED:
			if s.SkipThrough > 0 {
				after = time.UnixMicro(s.SkipThrough).UTC()
			}
		}
		var c store.Change
		if s.Kind != wirev1.StatusKind_STATUS_KIND_DISPATCHED {
			c.Skips = []store.SkipRow{{JobID: row.JobID, NominalAt: row.ScheduledAt, ThroughAt: after, Count: max(s.SkipCount, 1), Reason: s.Reason, At: now}}
		}
		if occ, ok := j.Spec.Schedule.Next(after); ok && row.Recurring {
			c.Put = []store.Timer{store.NewTimer(j, occ, now)}
		}
		return c
	})
	if err != nil {
		r.t.Errorf("record: %v", err)
	}
	if rep.Kind == store.ReportEnd {
		streams.NewNotifier(r.nc, quiet).Recorded(&wirev1.Recorded{Rows: []*wirev1.RecordedRow{{RunId: t.RunId, Shard: t.Shard, Dispatch: t.Dispatch}}})
	}
}

func recorded(t *store.Timer, dispatch int64, step job.Step) *wirev1.Recorded {
	return &wirev1.Recorded{Rows: []*wirev1.RecordedRow{{RunId: t.RunID[:], Shard: uint32(t.Shard), Dispatch: dispatch, Step: int32(step)}}} //nolint:gosec // shards are few
}
