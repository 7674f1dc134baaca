package planner

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are what a planner counts.
type Metrics struct {
	marks        prometheus.Histogram
	reads        prometheus.Histogram
	dispatched   prometheus.Counter
	skipped      *prometheus.CounterVec
	lost         prometheus.Counter
	stuck        prometheus.Counter
	mended       prometheus.Counter
	shardChanges prometheus.Counter
	shards       prometheus.Gauge
	inStream     prometheus.Gauge
	depth        *prometheus.GaugeVec
	oldest       *prometheus.GaugeVec
}

// NewMetrics returns metrics that are registered where reg is not nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	buckets := prometheus.ExponentialBuckets(.0005, 2, 14)
	m := &Metrics{
		marks:        prometheus.NewHistogram(prometheus.HistogramOpts{Name: "waterclock_mark_seconds", Help: "How long a batch took to mark.", Buckets: buckets}),
		reads:        prometheus.NewHistogram(prometheus.HistogramOpts{Name: "waterclock_read_due_seconds", Help: "How long a page of due rows took to read.", Buckets: buckets}),
		dispatched:   prometheus.NewCounter(prometheus.CounterOpts{Name: "waterclock_marked_total", Help: "Hand-overs: rows that were marked."}),
		skipped:      prometheus.NewCounterVec(prometheus.CounterOpts{Name: "waterclock_skipped_total", Help: "Occurrences not run, by reason."}, []string{"reason"}),
		lost:         prometheus.NewCounter(prometheus.CounterOpts{Name: "waterclock_lost_handovers_total", Help: "Hand-overs found lost by the watch."}),
		stuck:        prometheus.NewCounter(prometheus.CounterOpts{Name: "waterclock_stuck_messages_total", Help: "Messages deleted because their consumer passed them over."}),
		mended:       prometheus.NewCounter(prometheus.CounterOpts{Name: "waterclock_mended_series_total", Help: "Series whose next occurrence was missing."}),
		shardChanges: prometheus.NewCounter(prometheus.CounterOpts{Name: "waterclock_shard_changes_total", Help: "Shards taken or given away."}),
		shards:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "waterclock_shards_owned", Help: "Shards that this planner plans."}),
		inStream:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "waterclock_runs_in_stream", Help: "Messages in RUNS."}),
		depth: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "waterclock_queue_depth", Help: "Due runs that no executor has begun, by queue and priority.",
		}, []string{"namespace", "queue", "priority"}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "waterclock_queue_oldest_age_seconds", Help: "How long the oldest of them is over its time.",
		}, []string{"namespace", "queue", "priority"}),
	}
	if reg != nil {
		reg.MustRegister(m.marks, m.reads, m.dispatched, m.skipped, m.lost, m.stuck, m.mended, m.shardChanges, m.shards, m.inStream, m.depth, m.oldest)
	}
	return m
}

// measure sets the gauges of the lanes: what is due and no executor has begun, be it here or in RUNS.
func (p *Planner) measure() {
	now := p.clock.Now()
	oldest := map[*lane]time.Time{}
	older := func(l *lane, at time.Time) {
		if first, ok := oldest[l]; !ok || at.Before(first) {
			oldest[l] = at
		}
	}
	for _, fl := range p.flights.byRun {
		if !fl.started {
			older(fl.lane, fl.timer.DueAt)
		}
	}
	for _, l := range p.board.lanes {
		for _, f := range l.ready {
			if !f.empty() {
				older(l, f.first().row.DueAt)
			}
		}
		for _, f := range l.held {
			if !f.empty() {
				older(l, f.first().row.DueAt)
			}
		}
		age := time.Duration(0)
		if at, ok := oldest[l]; ok {
			age = max(now.Sub(at), 0)
		}
		labels := []string{l.Namespace, l.Queue, l.Priority.String()}
		p.cfg.Metrics.depth.WithLabelValues(labels...).Set(float64(l.count + l.heldCount() + l.queued))
		p.cfg.Metrics.oldest.WithLabelValues(labels...).Set(age.Seconds())
	}
}
