// Package status is the recorder: it reads what executors and planners report, and it alone writes history and schedules the next recurrence.
//
// A batch of statuses is one transaction. What lets a status take effect is that its row still carries its dispatch: so late, doubled, forged and outdated
// ones change nothing, and applying a batch twice is the same as applying it once. Several recorders share the stream.
package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/streams"
)

// Defaults of a Config.
const (
	DefaultBatch  = 500
	DefaultLinger = 20 * time.Millisecond
)

// Config says what a recorder works with. Zero fields mean the defaults.
type Config struct {
	Store interface {
		store.Recording
		store.Retention
		store.Clock
		Cluster(ctx context.Context) (store.Cluster, error)
	}
	Conn *nats.Conn
	// Batch is how many statuses one transaction takes.
	Batch int
	// Linger is how long a batch waits to fill when statuses come often; a lone one waits for nothing.
	Linger time.Duration
	// Keep is how long history is kept; 0 for ever.
	Keep time.Duration
	// Drop removes the blobs that old history names, before it is deleted; nil: they stay.
	Drop    func(ctx context.Context, blobs []string) error
	Logger  *slog.Logger
	Metrics *Metrics
}

// Recorder applies statuses from Start to Stop.
type Recorder struct {
	cfg    Config
	log    *slog.Logger
	js     jetstream.JetStream
	sealer *streams.Sealer
	notify *streams.Notifier
	window *streams.Window

	msgs   chan jetstream.Msg
	inHand *inHand

	started  atomic.Bool
	life     context.Context
	end      context.CancelFunc
	loops    sync.WaitGroup
	stopOnce sync.Once
}

// Settings of the consumer. What a recorder that died had in hand is delivered to another after ackWait; one that lives says so of what it cannot settle
// sooner, because SQL is slow or away.
const (
	ackWait    = 2 * time.Second
	sayEvery   = 600 * time.Millisecond
	maxPending = 20_000
	prefetch   = 1_000
	// consumeAgain is how long it waits before it tries to consume once more.
	consumeAgain = time.Second
)

// New returns a recorder that is not running.
func New(cfg Config) (*Recorder, error) {
	if cfg.Batch <= 0 {
		cfg.Batch = DefaultBatch
	}
	if cfg.Linger <= 0 {
		cfg.Linger = DefaultLinger
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	js, err := jetstream.New(cfg.Conn)
	if err != nil {
		return nil, fmt.Errorf("recorder: %w", err)
	}
	life, end := context.WithCancel(context.Background())
	return &Recorder{
		cfg: cfg, log: cfg.Logger.With("role", "recorder"), js: js, notify: streams.NewNotifier(cfg.Conn, cfg.Logger),
		msgs: make(chan jetstream.Msg, prefetch), inHand: newInHand(life), life: life, end: end,
	}, nil
}

// Start begins to record. The streams must exist (streams.Ensure). It must be called once.
func (r *Recorder) Start(ctx context.Context) error {
	if r.started.Swap(true) {
		return errors.New("recorder: started already")
	}
	cluster, err := r.cfg.Store.Cluster(ctx)
	if err != nil {
		return fmt.Errorf("recorder: read cluster key: %w", err)
	}
	r.sealer = streams.NewSealer(cluster.Key)
	if r.window, err = streams.NewWindow(r.cfg.Conn, 256, 5*time.Second); err != nil {
		return fmt.Errorf("recorder: %w", err)
	}
	stop, err := r.consume(ctx)
	if err != nil {
		return fmt.Errorf("recorder: %w", err)
	}
	elected := make(chan struct{}, 1)
	elections, err := streams.OnConsumerElection(r.cfg.Conn, streams.StatusStream, streams.RecorderConsumer, func() {
		select {
		case elected <- struct{}{}:
		default:
		}
	})
	if err != nil {
		stop.Stop()
		return fmt.Errorf("recorder: %w", err)
	}
	context.AfterFunc(r.life, func() { _ = elections.Unsubscribe() }) // fails only on a closed connection
	r.loops.Go(func() { r.keepConsuming(stop, elected) })
	r.loops.Go(r.apply)
	r.loops.Go(r.trim)
	if r.cfg.Keep > 0 {
		r.loops.Go(r.purge)
	}
	return nil
}

func (r *Recorder) consume(ctx context.Context) (jetstream.ConsumeContext, error) {
	c, err := r.js.CreateOrUpdateConsumer(ctx, streams.StatusStream, jetstream.ConsumerConfig{
		Durable: streams.RecorderConsumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: maxPending, MaxDeliver: -1,
		DeliverPolicy: jetstream.DeliverAllPolicy,
	})
	if err != nil {
		return nil, fmt.Errorf("make consumer %s: %w", streams.RecorderConsumer, err)
	}
	cc, err := c.Consume(func(m jetstream.Msg) {
		r.inHand.take(m)
		select {
		case r.msgs <- m:
		case <-r.life.Done():
		}
	}, jetstream.PullMaxMessages(prefetch), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		r.log.Debug("consuming statuses", "error", err)
	}))
	if err != nil {
		return nil, fmt.Errorf("consume statuses: %w", err)
	}
	return cc, nil
}

// keepConsuming begins anew where the consumer or the stream is gone, or where a new leader knows nothing of the pull under way: the client would miss its
// heartbeats after half a minute.
func (r *Recorder) keepConsuming(cc jetstream.ConsumeContext, elected <-chan struct{}) {
	for {
		select {
		case <-r.life.Done():
			cc.Stop()
			return
		case <-cc.Closed():
		case <-elected:
			cc.Drain() // what has come is recorded; then it is closed
			continue
		}
		next, err := r.consume(r.life)
		if err != nil {
			r.log.Warn("cannot consume statuses; trying again", "error", err)
			select {
			case <-r.life.Done():
				return
			case <-time.After(consumeAgain):
			}
			continue
		}
		r.log.Info("consuming statuses anew")
		cc = next
	}
}

// Stop ends recording after the batch under way. What was not acknowledged is delivered to the next recorder. It may be called more than once, and
// without Start.
func (r *Recorder) Stop() {
	r.stopOnce.Do(func() {
		r.end()
		r.loops.Wait()
		if r.window != nil {
			r.window.Close()
		}
	})
}

// apply gathers messages into batches and applies them.
func (r *Recorder) apply() {
	var last time.Time
	for {
		var batch []jetstream.Msg
		select {
		case <-r.life.Done():
			return
		case m := <-r.msgs:
			batch = append(batch, m)
		}
		linger := time.Duration(0)
		if time.Since(last) < 50*time.Millisecond {
			linger = r.cfg.Linger
		}
		batch = r.gather(batch, linger)
		r.applyBatch(r.life, batch)
		last = time.Now()
	}
}

// gather adds what has come, and for a time what comes, until the batch is full.
func (r *Recorder) gather(batch []jetstream.Msg, linger time.Duration) []jetstream.Msg {
	size := weigh(batch[0])
	var over <-chan time.Time
	if linger > 0 {
		t := time.NewTimer(linger)
		defer t.Stop()
		over = t.C
	}
	for size < r.cfg.Batch {
		select {
		case m := <-r.msgs:
			batch = append(batch, m)
			size += weigh(m)
			continue
		default:
		}
		if over == nil {
			return batch
		}
		select {
		case m := <-r.msgs:
			batch = append(batch, m)
			size += weigh(m)
		case <-over:
			return batch
		case <-r.life.Done():
			return batch
		}
	}
	return batch
}

// weigh guesses how many statuses a message holds, without reading it twice.
func weigh(m jetstream.Msg) int { return 1 + len(m.Data())/250 }

// trim deletes from STATUS what every recorder has applied and no executor can claim any more.
func (r *Recorder) trim() {
	type point struct {
		at  time.Time
		seq uint64
	}
	var points []point
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-r.life.Done():
			return
		case now := <-tick.C:
			fill, _, applied, err := streams.StatusFill(r.life, r.js)
			if err != nil {
				r.log.Debug("cannot look at STATUS", "error", err)
				continue
			}
			r.cfg.Metrics.backlog.Set(fill)
			points = append(points, point{now, applied})
			if old := points[0]; now.Sub(old.at) > keepStatuses && old.seq > 0 {
				points = points[1:]
				s, err := r.js.Stream(r.life, streams.StatusStream)
				if err == nil {
					err = s.Purge(r.life, jetstream.WithPurgeSequence(old.seq))
				}
				if err != nil {
					r.log.Warn("cannot trim STATUS", "error", err)
				}
			}
		}
	}
}

// keepStatuses is longer than the stream's memory of message ids, which a restart rebuilds from its messages.
const keepStatuses = 150 * time.Second

// Metrics are what a recorder counts.
type Metrics struct {
	statuses *prometheus.CounterVec
	batches  prometheus.Histogram
	refused  prometheus.Counter
	dead     prometheus.Counter
	retries  prometheus.Counter
	backlog  prometheus.Gauge
}

// NewMetrics returns metrics that are registered where reg is not nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		statuses: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "waterclock_statuses_total", Help: "Statuses applied, by kind."}, []string{"kind"}),
		batches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "waterclock_record_batch_size", Help: "Statuses per transaction.", Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "waterclock_statuses_refused_total", Help: "Statuses that were late, doubled or out of date."}),
		dead:    prometheus.NewCounter(prometheus.CounterOpts{Name: "waterclock_statuses_dead_total", Help: "Statuses moved to the dead letters."}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{Name: "waterclock_record_retries_total", Help: "Batches that had to be tried again."}),
		backlog: prometheus.NewGauge(prometheus.GaugeOpts{Name: "waterclock_status_fill_ratio", Help: "How full STATUS is with what is not applied."}),
	}
	if reg != nil {
		reg.MustRegister(m.statuses, m.batches, m.refused, m.dead, m.retries, m.backlog)
	}
	return m
}
