// Package planner reads due rows of its shards from SQL and hands them out to JetStream at their time.
//
// The order of steps is what keeps a run from being handed out twice or from a stale list: read ahead, decide, MARK the row in SQL (dispatch + 1, guarded by
// step, version and dispatch), and publish only what the mark returned, never before its time. What becomes of a hand-over is watched until the recorder has
// heard of it. Planners spread the shards over those that live; two that believe to own one shard are harmless, because the guard lets one of them win.
//
// One goroutine owns all lists (the core); SQL and NATS are spoken to by others, which hand their answers to the core.
package planner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/planner/membership"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/streams"
)

// Store is what a planner asks of SQL.
type Store interface {
	store.Planning
	store.Membership
	store.History
	Cluster(ctx context.Context) (store.Cluster, error)
	Streams(ctx context.Context) ([]store.Stream, error)
	NextGeneration(ctx context.Context, name string, from int64) (store.Stream, error)
	SaveStreamSeq(ctx context.Context, s store.Stream) error
	ChangeJob(ctx context.Context, namespace string, id uuid.UUID, decide func(j *job.Job, timers []store.Timer, now time.Time) (store.Change, error)) (*job.Job, []store.Timer, error)
	JobNamespace(ctx context.Context, id uuid.UUID) (string, error)
}

// Clock gives database time without asking for it, and never one that is ahead.
type Clock interface {
	Now() time.Time
}

// Defaults of a Config.
const (
	DefaultHorizon   = 2500 * time.Millisecond
	DefaultMarkAhead = streams.MaxMarkAhead
	DefaultLaneLimit = 8192
	DefaultBatch     = 500
	DefaultAckWait   = 10 * time.Second
)

// Config says what a planner works with. Zero fields mean the defaults.
type Config struct {
	Store Store
	// Clock estimates database time, for longer than the planner runs; see package dbclock.
	Clock  Clock
	Conn   *nats.Conn
	Limits streams.Limits
	// Horizon is how far ahead due rows are read.
	Horizon time.Duration
	// MarkAhead is how long before its time a row may be marked; at most streams.MaxMarkAhead.
	MarkAhead time.Duration
	// LaneLimit is how many hand-overs of one queue and priority may wait for an executor; the rest waits in SQL.
	LaneLimit int
	// Batch is how many rows one mark takes.
	Batch int
	// AckWait is the lease of executors.
	AckWait time.Duration
	Logger  *slog.Logger
	Metrics *Metrics

	renewEvery time.Duration // membership.RenewEvery; other in tests
}

// Planner hands out due runs from Start to Stop.
type Planner struct {
	cfg    Config
	id     string
	log    *slog.Logger
	clock  Clock
	js     jetstream.JetStream
	msgs   jetstream.JetStream // the same for questions about single messages
	sealer *streams.Sealer
	window *streams.Window
	notify *streams.Notifier

	// Owned by the core.
	board     *board
	flights   *flights
	registry  *registry
	skipping  map[uuid.UUID]verdictOut // reported as skipped or failed, not yet recorded
	withdrawn map[uuid.UUID]withdrawal
	marking   int
	markedAt  time.Time // when the last mark began
	owned     map[int32]*ownedShard

	wokenUntil time.Time // rows up to this were told of by their keys, and have not been read

	events    chan func()
	nudges    chan struct{}
	publisher *publisher
	reporter  *reporter
	road      atomic.Pointer[road]

	elected   chan struct{} // a stream has a new leader
	left      chan struct{} // another planner has given its shards away
	doubtful  chan struct{} // a look at a hand-over was put forward
	looking   atomic.Pointer[context.CancelFunc]
	started   atomic.Bool
	startedAt time.Time
	finishing atomic.Bool
	life      context.Context
	end       context.CancelFunc
	loops     sync.WaitGroup
	stopOnce  sync.Once
}

// road is what was last heard of the streams.
type road struct {
	runs       streams.Runs
	serverTime time.Time // of NATS, when it was asked
	heardAt    time.Time // monotonic
	open       bool      // STATUS has room
	statusAt   time.Time // when that was found
	server     uint64    // the NATS server process that was asked
	lastSeq    uint64    // of RUNS
}

// until returns how long it is to a time of the NATS server.
func (r *road) until(t time.Time) time.Duration { return t.Sub(r.serverTime) - time.Since(r.heardAt) }

// How fresh the word on the road must be for hand-overs, and up to where STATUS may be filled.
const (
	roadFresh  = 2500 * time.Millisecond
	statusHalf = 0.5
)

// New returns a planner that is not running.
func New(cfg Config) (*Planner, error) {
	setDefault(&cfg.Horizon, DefaultHorizon)
	setDefault(&cfg.MarkAhead, DefaultMarkAhead)
	setDefault(&cfg.AckWait, DefaultAckWait)
	setDefault(&cfg.renewEvery, membership.RenewEvery)
	cfg.MarkAhead = min(cfg.MarkAhead, streams.MaxMarkAhead)
	if cfg.LaneLimit <= 0 {
		cfg.LaneLimit = DefaultLaneLimit
	}
	if cfg.Batch <= 0 {
		cfg.Batch = DefaultBatch
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	js, err := jetstream.New(cfg.Conn)
	if err != nil {
		return nil, fmt.Errorf("planner: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	id := host + "-" + strconv.Itoa(os.Getpid()) + "-" + rand.Text()[:6]
	log := cfg.Logger.With("role", "planner", "member", id)
	life, end := context.WithCancel(context.Background())
	return &Planner{
		cfg: cfg, id: id, log: log, js: js, msgs: streams.Reuse(js), clock: cfg.Clock, notify: streams.NewNotifier(cfg.Conn, log),
		board: newBoard(), flights: newFlights(), registry: newRegistry(), skipping: map[uuid.UUID]verdictOut{}, withdrawn: map[uuid.UUID]withdrawal{}, owned: map[int32]*ownedShard{},
		events: make(chan func(), 1024), nudges: make(chan struct{}, 1), elected: make(chan struct{}, 1), left: make(chan struct{}, 1), doubtful: make(chan struct{}, 1), life: life, end: end,
	}, nil
}

func setDefault(d *time.Duration, def time.Duration) {
	if *d <= 0 {
		*d = def
	}
}

// ID names this planner among the members.
func (p *Planner) ID() string { return p.id }

// Start makes the streams where they are missing, takes its shards and begins to plan. It must be called once.
func (p *Planner) Start(ctx context.Context) error {
	if p.started.Swap(true) {
		return errors.New("planner: started already")
	}
	cluster, err := p.cfg.Store.Cluster(ctx)
	if err != nil {
		return fmt.Errorf("planner: read cluster key: %w", err)
	}
	p.sealer = streams.NewSealer(cluster.Key)
	if p.window, err = streams.NewWindow(p.cfg.Conn, 4096, streams.PublishWithin); err != nil {
		return fmt.Errorf("planner: %w", err)
	}
	if err := p.lookAtRoad(ctx); err != nil {
		return fmt.Errorf("planner: %w", err)
	}
	p.publisher = newPublisher(p)
	p.reporter = newReporter(p)
	for _, listen := range []func() (*nats.Subscription, error){
		func() (*nats.Subscription, error) { return streams.OnHeartbeat(p.cfg.Conn, p.onHeartbeat) },
		func() (*nats.Subscription, error) { return streams.OnRecorded(p.cfg.Conn, p.onRecorded) },
		func() (*nats.Subscription, error) { return streams.OnStreamElection(p.cfg.Conn, p.onElection) },
		func() (*nats.Subscription, error) { return streams.OnLeft(p.cfg.Conn, p.onLeft) },
	} {
		sub, err := listen()
		if err != nil {
			return fmt.Errorf("planner: %w", err)
		}
		context.AfterFunc(p.life, func() { _ = sub.Unsubscribe() }) // fails only on a closed connection
	}
	p.startedAt = time.Now()
	p.notify.RollCall()
	p.loops.Go(p.core)
	p.loops.Go(p.publisher.run)
	p.loops.Go(p.reporter.run)
	p.loops.Go(p.keepMembership)
	p.loops.Go(p.read)
	p.loops.Go(p.followRoad)
	p.loops.Go(p.watch)
	p.loops.Go(p.sweep)
	return nil
}

// Stop ends planning and gives the shards away, and tells the others so that they take over at once. It may be called more than once, and without Start.
func (p *Planner) Stop() {
	p.stopOnce.Do(func() {
		if p.started.Load() && p.publisher != nil {
			p.finish()
		}
		p.end()
		p.loops.Wait()
		if p.window != nil {
			p.window.Close()
		}
		if p.started.Load() {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			if err := p.cfg.Store.Leave(ctx, p.id); err != nil {
				p.log.Warn("cannot give the shards away; others take them when this member is overdue", "error", err)
				return
			}
			p.notify.Left()
			_ = p.cfg.Conn.FlushTimeout(leftWithin) // without it they look within a second
		}
	})
}

// leftWithin bounds how long the word that a planner has left may take to be sent.
const leftWithin = 500 * time.Millisecond

// finishWithin bounds how long a planner that stops sees to what it has marked: longer than MarkAhead and an answer of JetStream.
const finishWithin = time.Second

// finish marks nothing more and publishes what is marked, so that nobody has to find it lost.
func (p *Planner) finish() {
	p.finishing.Store(true)
	limit := time.NewTimer(finishWithin)
	defer limit.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if busy, ok := ask(p, func() bool { return p.marking > 0 }); !ok || (!busy && p.publisher.empty() && p.window.Unanswered() == 0) {
			return
		}
		select {
		case <-limit.C:
			return
		case <-tick.C:
		}
	}
}

// do lets the core do something.
func (p *Planner) do(f func()) {
	select {
	case p.events <- f:
	case <-p.life.Done():
	}
}

// core owns all lists. It sleeps until something comes or the next row is to be marked.
func (p *Planner) core() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-p.life.Done():
			return
		case f := <-p.events:
			f()
			p.more()
		case <-timer.C:
		}
		p.plan()
		timer.Reset(p.nextPlan())
	}
}

// more takes events that wait already, up to a number, so that one decision sees them all.
func (p *Planner) more() {
	for range 64 {
		select {
		case f := <-p.events:
			f()
		default:
			return
		}
	}
}

// markLead is how long before its time a row makes a mark begin, and markCost how much longer for each row that is to come; the mark then takes along all that is
// due within MarkAhead. Where thousands are due at one instant they should all be marked by then.
const (
	markLead = 50 * time.Millisecond
	markCost = 20 * time.Microsecond
)

func (p *Planner) lead() time.Duration {
	return min(markLead+time.Duration(len(p.board.upcoming))*markCost, p.cfg.MarkAhead)
}

// maxMarks is how many marks are under way at once.
const maxMarks = 2

// plan moves what is due to the lanes, and marks what is ready.
func (p *Planner) plan() {
	now := p.clock.Now()
	first, ok := p.board.next()
	if ok && !first.After(now.Add(p.lead())) {
		for e := p.board.popDue(now.Add(p.cfg.MarkAhead)); e != nil; e = p.board.popDue(now.Add(p.cfg.MarkAhead)) {
			p.ready(e, now)
		}
	}
	if !p.mayHandOut() {
		return
	}
	for p.marking < maxMarks && p.markPause() == 0 {
		batch := p.board.take(p.cfg.Batch, p.cfg.LaneLimit)
		if len(batch) == 0 {
			return
		}
		p.marking++
		p.markedAt = time.Now()
		go p.mark(batch)
	}
}

// markEvery is how long a mark of few rows waits for more after the one before: a mark of one row costs SQL as much as one of a dozen. A full batch waits for nothing,
// and nor does a row after a pause.
const markEvery = 4 * time.Millisecond

// markPause is how long the next mark waits yet.
func (p *Planner) markPause() time.Duration {
	if p.board.waiting >= p.cfg.Batch {
		return 0
	}
	return max(markEvery-time.Since(p.markedAt), 0)
}

// mayHandOut tells whether what is published now would be stored and found good.
func (p *Planner) mayHandOut() bool {
	r := p.road.Load()
	return !p.finishing.Load() && r != nil && r.open && time.Since(r.heardAt) < roadFresh && p.cfg.Conn.IsConnected()
}

// nextPlan is how long nothing needs to be done unless an event comes.
func (p *Planner) nextPlan() time.Duration {
	wait := time.Second
	if pause := p.markPause(); pause > 0 && p.board.waiting > 0 {
		wait = pause
	}
	if first, ok := p.board.next(); ok {
		wait = min(wait, max(first.Add(-p.lead()).Sub(p.clock.Now()), 0))
	}
	return wait
}

// ready decides on a row whose time comes, and puts it where it belongs.
func (p *Planner) ready(e *entry, now time.Time) {
	d := decide(e.row, now)
	e.late = now.Sub(e.row.DueAt) > lateAfter
	switch {
	case d.verdict == verdictSkip:
		p.skip(e, d)
	case d.verdict == verdictFail:
		p.fail(e, d)
	case e.lane.full(e, laneRows*p.cfg.LaneLimit):
		p.passOver(e)
	case !p.registry.Offers(e.lane.Namespace, e.lane.Queue, e.row.Kind):
		e.lane.hold(e)
	default:
		e.lane.push(e)
	}
}

// laneRows is how many times LaneLimit of rows wait in memory for their mark, per lane; the rest is left in SQL until half of them are gone.
const laneRows = 4

// passOver leaves a row to SQL, because its lane is full; it is read again when there is room.
func (p *Planner) passOver(e *entry) {
	p.board.forget(e.row.RunID)
	if l := e.lane; l.passedFrom.IsZero() || e.row.DueAt.Before(l.passedFrom) {
		l.passedFrom = e.row.DueAt
	}
}
