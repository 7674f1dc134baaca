package executor

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are what an executor counts.
type Metrics struct {
	startLag *prometheus.HistogramVec
	runTime  *prometheus.HistogramVec
	attempts *prometheus.CounterVec
}

// latencyBuckets reach from a quarter of a millisecond to a minute.
var latencyBuckets = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// NewMetrics returns metrics that are registered where reg is not nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		startLag: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "waterclock_start_lag_seconds", Help: "Time from the due time of a run to the start of its attempt.", Buckets: latencyBuckets,
		}, []string{"queue", "priority"}),
		runTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "waterclock_run_time_seconds", Help: "How long attempts ran.", Buckets: append(latencyBuckets, 300, 1800, 7200),
		}, []string{"queue", "kind"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_attempts_total", Help: "Attempts by how they ended.",
		}, []string{"queue", "kind", "outcome"}),
	}
	if reg != nil {
		reg.MustRegister(m.startLag, m.runTime, m.attempts)
	}
	return m
}
