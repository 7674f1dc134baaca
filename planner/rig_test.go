package planner

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
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

// rig is real SQL and real NATS; planners are the test's to start. Executors and recorders are played.
type rig struct {
	t     testing.TB
	nats  *streams.Embedded
	addr  string // connections go by a socket to here, and outlive the server; empty = within the process
	store store.Store
	nc    *nats.Conn
	js    jetstream.JetStream

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
	r := &rig{t: t, out: map[string]int{}, last: map[string]*wirev1.RunMessage{}, told: make(chan struct{})}
	var err error
	r.nats, err = streams.StartEmbedded(streams.EmbeddedOptions{Dir: folder, Listen: "127.0.0.1:0", Logger: quiet})
	check(t, err)
	t.Cleanup(func() { r.nats.Stop() })
	if sockets {
		r.addr = r.nats.Addr()
	}
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "waterclock.db"), sqlite.Options{})
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	r.store = s
	r.nc = r.connect()
	r.js, err = jetstream.New(r.nc)
	check(t, err)
	if _, err := r.nc.Subscribe("run.>", r.published); err != nil {
		t.Fatal(err)
	}
	r.executor("k")
	return r
}

func (r *rig) connect() *nats.Conn {
	r.t.Helper()
	d := streams.Dial{Embedded: r.nats, Name: "test", Logger: quiet}
	if r.addr != "" {
		d = streams.Dial{URL: "nats://" + r.addr, Name: "test", Logger: quiet}
	}
	nc, err := streams.Connect(d)
	check(r.t, err)
	r.t.Cleanup(nc.Close)
	return nc
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
	check(r.t, err)
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
	cfg := Config{Store: s, Conn: r.connect(), Logger: quiet}
	if change != nil {
		change(&cfg)
	}
	p, err := New(cfg)
	check(r.t, err)
	check(r.t, p.Start(r.t.Context()))
	r.t.Cleanup(p.Stop)
	return p
}

// owns waits until a planner plans, and its in-flight rows are loaded.
func (r *rig) owns(p *Planner) {
	r.t.Helper()
	await(r.t, "a shard", func() bool {
		yes, _ := ask(p, func() bool {
			for _, o := range p.owned {
				if !o.inFlight {
					return false
				}
			}
			return len(p.owned) > 0
		})
		return yes
	})
}

func (r *rig) now() time.Time {
	r.t.Helper()
	now, err := r.store.Now(r.t.Context())
	check(r.t, err)
	return now
}

// job makes a job of kind "k" that is due once, at a time.
func (r *rig) job(at time.Time, change func(*job.Job)) *job.Job {
	tr := r.store.Traits()
	now := r.now()
	j := &job.Job{
		ID: tr.NewJobID(), Namespace: job.DefaultNamespace, Version: 1, State: job.Active, Kind: "k", Queue: job.DefaultQueue,
		QueueNamespace: job.SharedNamespace, Priority: job.Normal, Spec: job.Spec{Schedule: schedule.Schedule{Kind: schedule.Once, At: at}}, CreatedAt: now, UpdatedAt: now,
	}
	if change != nil {
		change(j)
	}
	j.Shard = job.ShardOf(j.ID, tr.Shards)
	return j
}

// submit stores jobs with their first runs, due when they were at the given time, and tells no planner.
func (r *rig) submit(now time.Time, jobs ...*job.Job) []store.Timer {
	r.t.Helper()
	subs := make([]store.Submission, len(jobs))
	timers := make([]store.Timer, len(jobs))
	for i, j := range jobs {
		occ, ok := j.Spec.Schedule.First()
		if !ok {
			r.t.Fatal("no occurrence")
		}
		timers[i] = store.NewTimer(j, occ, now)
		j.DueAt = timers[i].DueAt
		subs[i] = store.Submission{Job: j, Timer: &timers[i]}
	}
	results, err := r.store.Submit(r.t.Context(), subs)
	check(r.t, err)
	for _, res := range results {
		check(r.t, res.Err)
	}
	return timers
}

func (r *rig) row(k store.TimerKey) *store.Timer {
	r.t.Helper()
	rows, err := r.store.ReadTimers(r.t.Context(), []store.TimerKey{k})
	check(r.t, err)
	if len(rows) == 0 {
		return nil
	}
	return &rows[0]
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
	check(r.t, err)
	cluster, err := r.store.Cluster(r.t.Context())
	check(r.t, err)
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
	check(r.t, err)
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

func recorded(t *store.Timer, dispatch int64, step job.Step) *wirev1.Recorded {
	return &wirev1.Recorded{Rows: []*wirev1.RecordedRow{{RunId: t.RunID[:], Shard: uint32(t.Shard), Dispatch: dispatch, Step: int32(step)}}} //nolint:gosec // shards are few
}
