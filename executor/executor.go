// Package executor works on runs: it is the library for workers in Go, and the executor role of the waterclock binary is made of it.
//
// An executor pulls runs of its queues for as many slots as are free, calls the Handler of their kind, keeps their leases alive, and reports how they ended. It
// knows NATS only: no SQL. It never executes a message that was delivered before, and stops what it works on before its lease can be over; see
// docs/architecture.md, "Execute".
package executor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/internal/failpoint"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/streams"
)

// Defaults of a Config.
const (
	DefaultSlots      = 100
	DefaultAckWait    = 10 * time.Second
	DefaultBeat       = 3 * time.Second
	DefaultMargin     = 2 * time.Second
	DefaultDrainGrace = 30 * time.Second
	// MaxInlineResult is the largest result, in bytes, that is kept in history itself.
	MaxInlineResult = 16 << 10
	// MaxResult is the largest result, in bytes, that is kept at all; a larger one fails the attempt.
	MaxResult = 10 << 20
)

// Lease says how an executor keeps its hold on the runs it works on.
type Lease struct {
	// AckWait is how long a run is left alone without a sign of life: short means quick recovery, long means that running work outlives an outage of NATS.
	AckWait time.Duration
	// Beat is the time between two signs of life.
	Beat time.Duration
	// Margin is how long before the end of AckWait the executor stops what it could not confirm.
	Margin time.Duration
}

// Most is what Beat and Margin together must stay below: AckWait less the time that a pull waits, to which it is known when a lease began, and a twentieth to spare.
func (l Lease) Most() time.Duration { return l.AckWait - streams.PullFor(l.AckWait) - l.AckWait/20 }

// Blobs keeps what is too large for history.
type Blobs interface {
	// Put stores content under a key and returns when it is durable.
	Put(ctx context.Context, key string, content []byte) error
}

// Config says what an executor works on. Zero fields mean the defaults.
type Config struct {
	// Conn is the connection to NATS. It should keep no reconnect buffer (see streams.Connect). The executor does not close it.
	Conn *nats.Conn
	// Queues that it serves; left out, the shared queue "default".
	Queues []streams.Queue
	// Slots is how many runs it works on at once.
	Slots int
	// Handlers by kind. All executors of a queue should have the same kinds: a run that comes to one without its kind is handed on with a delay.
	Handlers map[string]Handler
	// Labels tell users of the registry what is special about this executor.
	Labels map[string]string
	Lease  Lease
	// DrainGrace is how long Stop lets running work go on before it is stopped and given back.
	DrainGrace time.Duration
	// LogLimit is how many bytes of each output stream of a run are kept; 1 MiB by default.
	LogLimit int
	// Blobs keeps logs and large results; nil means that neither is kept.
	Blobs   Blobs
	Logger  *slog.Logger
	Metrics *Metrics
	// Version is shown in the registry.
	Version string
}

var kindPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (c *Config) setDefaults() error {
	if c.Conn == nil {
		return errors.New("executor: Conn is missing")
	}
	if len(c.Handlers) == 0 {
		return errors.New("executor: Handlers is empty; allowed: at least one kind")
	}
	for kind := range c.Handlers {
		if !kindPattern.MatchString(kind) {
			return fmt.Errorf("executor: kind %q given; allowed: letters, digits, _ and -, at most 64", kind)
		}
	}
	if len(c.Queues) == 0 {
		c.Queues = []streams.Queue{{Namespace: job.SharedNamespace, Name: job.DefaultQueue}}
	}
	if c.Slots == 0 {
		c.Slots = DefaultSlots
	}
	if c.Slots < 0 || c.Slots > 100_000 {
		return fmt.Errorf("executor: %d slots given; allowed: 1 to 100000", c.Slots)
	}
	setDuration(&c.Lease.AckWait, DefaultAckWait)
	setDuration(&c.Lease.Beat, DefaultBeat)
	setDuration(&c.Lease.Margin, DefaultMargin)
	if most := c.Lease.Most(); c.Lease.Beat+c.Lease.Margin >= most {
		return fmt.Errorf("executor: beat %s and margin %s given; allowed: together less than %s with ack wait %s", c.Lease.Beat, c.Lease.Margin, most, c.Lease.AckWait)
	}
	setDuration(&c.DrainGrace, DefaultDrainGrace)
	if c.LogLimit == 0 {
		c.LogLimit = 1 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	return nil
}

func setDuration(d *time.Duration, def time.Duration) {
	if *d <= 0 {
		*d = def
	}
}

// Executor works on runs from Start to Stop.
type Executor struct {
	cfg    Config
	id     string
	log    *slog.Logger
	js     jetstream.JetStream
	window *streams.Window
	outbox *outbox
	notify *streams.Notifier
	clock  serverClock

	mu       sync.Mutex
	attempts map[heldKey]*attempt
	puller   *streams.Puller
	runs     streams.Runs
	draining bool

	settling chan struct{}
	busy     atomic.Int32
	holds    chan struct{} // an attempt has come
	started  atomic.Bool
	life     context.Context
	end      context.CancelFunc
	subs     []*nats.Subscription
	loops    sync.WaitGroup
	working  sync.WaitGroup
	renew    chan struct{} // the stream may have changed
	stopOnce sync.Once
	stopped  chan struct{}
}

type heldKey struct {
	run      uuid.UUID
	dispatch int64
}

// New checks a Config and returns an executor that is not running.
func New(cfg Config) (*Executor, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	id := executorID()
	js, err := jetstream.New(cfg.Conn)
	if err != nil {
		return nil, fmt.Errorf("executor: %w", err)
	}
	life, end := context.WithCancel(context.Background())
	return &Executor{
		cfg: cfg, id: id, log: cfg.Logger.With("executor", id), js: js, notify: streams.NewNotifier(cfg.Conn, cfg.Logger),
		clock: serverClock{lost: make(chan struct{}, 1)}, holds: make(chan struct{}, 1), attempts: make(map[heldKey]*attempt), settling: make(chan struct{}, maxSettling), life: life, end: end, renew: make(chan struct{}, 1), stopped: make(chan struct{}),
	}, nil
}

// executorID names a process for as long as it lives: host, pid and a random tail, in characters that subjects carry.
func executorID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	clean := make([]byte, 0, 32)
	for i := 0; i < len(host) && len(clean) < 32; i++ {
		c := host[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' {
			clean = append(clean, c)
		} else {
			clean = append(clean, '-')
		}
	}
	return string(clean) + "-" + strconv.Itoa(os.Getpid()) + "-" + rand.Text()[:6]
}

// ID names this executor in history, in the registry and in subjects.
func (e *Executor) ID() string { return e.id }

// Start connects to the streams and begins to work. It waits for the streams to exist until ctx ends. It must be called once.
func (e *Executor) Start(ctx context.Context) error {
	if e.started.Swap(true) {
		return errors.New("executor: started already")
	}
	window, err := streams.NewWindow(e.cfg.Conn, 4*e.cfg.Slots+1024, 5*time.Second)
	if err != nil {
		return fmt.Errorf("executor: %w", err)
	}
	e.window = window
	e.outbox = newOutbox(e)
	control, err := streams.OnControl(e.cfg.Conn, e.id, e.obey)
	if err != nil {
		return fmt.Errorf("executor: %w", err)
	}
	roll, err := streams.OnRollCall(e.cfg.Conn, e.beat)
	if err != nil {
		return fmt.Errorf("executor: %w", err)
	}
	e.subs = append(e.subs, control...)
	elections, err := streams.OnStreamElection(e.cfg.Conn, func(stream string) {
		if stream == streams.StatusStream {
			e.window.GiveUp()
		}
	})
	if err != nil {
		return fmt.Errorf("executor: %w", err)
	}
	e.subs = append(e.subs, roll, elections)
	runs, err := e.join(ctx)
	if err != nil {
		return err
	}
	e.beat()
	e.loops.Go(e.outbox.run)
	e.loops.Go(e.keepLeases)
	e.loops.Go(func() { e.clock.run(e.life, e.js, e.currentRuns) })
	back := e.cfg.Conn.StatusChanged(nats.CONNECTED)
	e.loops.Go(func() { e.followConnection(back) })
	e.loops.Go(e.sayHello)
	e.loops.Go(e.followStream)
	e.log.Info("executor is ready", "slots", e.cfg.Slots, "kinds", e.kinds(), "stream", runs.Name)
	return nil
}

// discoverTimeout bounds one look for the streams: a cluster that is still electing its leaders may never answer it.
const discoverTimeout = 2 * time.Second

// join finds the streams and begins to pull from them, and tries again until it can: a cluster that elects its leaders answers nothing, or half of what it is asked.
func (e *Executor) join(ctx context.Context) (streams.Runs, error) {
	told := false
	for {
		one, cancel := context.WithTimeout(ctx, discoverTimeout)
		runs, err := streams.Discover(one, e.js)
		cancel()
		if err == nil {
			err = e.clock.begin(ctx, e.cfg.Conn, e.js, runs)
		}
		if err == nil {
			err = e.pull(ctx, runs)
		}
		if err == nil {
			return runs, nil
		}
		if !told {
			e.log.Info("waiting for the streams", "reason", err)
			told = true
		}
		if e.cfg.Conn.IsClosed() {
			return streams.Runs{}, fmt.Errorf("executor: %w", err)
		}
		select {
		case <-ctx.Done():
			return streams.Runs{}, fmt.Errorf("executor: waiting for the streams: %w", err)
		case <-e.life.Done():
			return streams.Runs{}, fmt.Errorf("executor: %w", ErrDraining)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (e *Executor) pull(ctx context.Context, runs streams.Runs) error {
	var p *streams.Puller
	made := make(chan struct{})
	// A run may be over before NewPuller has returned.
	release := func() {
		<-made
		p.Release(1)
	}
	p, err := streams.NewPuller(ctx, e.cfg.Conn, e.js, runs, streams.PullConfig{
		Queues: e.cfg.Queues, Slots: e.cfg.Slots, AckWait: e.cfg.Lease.AckWait, Hold: holdSurplus,
		Deliver: func(d streams.Delivery) { e.receive(d, release) }, Surplus: e.giveBack, Gone: e.streamGone, Logger: e.log,
	})
	if err != nil {
		return fmt.Errorf("executor: %w", err)
	}
	close(made)
	e.mu.Lock()
	e.puller, e.runs = p, runs
	e.mu.Unlock()
	return nil
}

// holdSurplus is how long a delivery without a slot waits for one here before it is given back to the planner.
const holdSurplus = 100 * time.Millisecond

func (e *Executor) currentRuns() streams.Runs {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs
}

func (e *Executor) streamGone() {
	select {
	case e.renew <- struct{}{}:
	default:
	}
}

// followStream notices when RUNS was made anew, stops what was handed out by the old one, and pulls from the new.
func (e *Executor) followStream() {
	tick := time.NewTicker(15 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-e.life.Done():
			return
		case <-e.renew:
		case <-tick.C:
		}
		runs, err := streams.Discover(e.life, e.js)
		if err != nil || runs == e.currentRuns() {
			continue
		}
		e.log.Warn("RUNS is another one now: stopping what the old one handed out", "stream", runs.Name)
		e.mu.Lock()
		old, draining := e.puller, e.draining
		for _, a := range e.attempts {
			a.cancel(ErrLeaseLost)
		}
		e.mu.Unlock()
		if draining {
			return
		}
		old.Stop()
		e.working.Wait()
		if err := e.pull(e.life, runs); err != nil {
			e.log.Warn("cannot pull from the new stream yet", "error", err)
			time.AfterFunc(500*time.Millisecond, e.streamGone)
		}
	}
}

// followConnection hears when the connection was lost and is back.
func (e *Executor) followConnection(changed chan nats.Status) {
	defer e.cfg.Conn.RemoveStatusListener(changed)
	for {
		select {
		case <-e.life.Done():
			return
		case _, open := <-changed:
			if !open {
				return // closed for good
			}
			e.reconnected()
		}
	}
}

// reconnected makes pulls anew, because the server knows the old ones no more, and claims what is worked on.
func (e *Executor) reconnected() {
	e.mu.Lock()
	p := e.puller
	e.mu.Unlock()
	e.clock.reconnected(e.cfg.Conn)
	if p != nil {
		p.Reset()
	}
	e.claimAll()
	e.streamGone()
}

// Stop drains: nothing new is taken, what runs may end within the grace time or until ctx ends, the rest is stopped and given back. It may be called more
// than once, and without Start.
func (e *Executor) Stop(ctx context.Context) {
	if !e.started.Load() {
		return
	}
	e.stopOnce.Do(func() {
		defer close(e.stopped)
		e.mu.Lock()
		e.draining = true
		p := e.puller
		e.mu.Unlock()
		e.beat()
		if p != nil {
			p.Stop()
		}
		idle := make(chan struct{})
		go func() {
			e.working.Wait()
			close(idle)
		}()
		grace := time.NewTimer(e.cfg.DrainGrace)
		defer grace.Stop()
		select {
		case <-idle:
		case <-grace.C:
			e.cancelAll(ErrDraining)
		case <-ctx.Done():
			e.cancelAll(ErrDraining)
		}
		select {
		case <-idle:
		case <-time.After(e.cfg.Lease.AckWait):
			e.log.Warn("handlers ignore that they were stopped; leaving them", "count", e.busy.Load())
		}
		if e.outbox != nil {
			failpoint.Here(failpoint.ExecutorFlushing)
			e.outbox.flush(5 * time.Second)
		}
		e.end()
		for _, s := range e.subs {
			_ = s.Unsubscribe() // fails only on a closed connection
		}
		if e.window != nil {
			e.window.Close()
		}
		e.loops.Wait()
	})
	<-e.stopped
}

func (e *Executor) cancelAll(cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range e.attempts {
		a.cancel(cause)
	}
}
