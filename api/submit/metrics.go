package submit

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock-io/waterclock/job/fielderr"
	"github.com/waterclock-io/waterclock/store"
)

// Metrics are what a Service counts.
type Metrics struct{ submits *prometheus.CounterVec }

// NewMetrics returns metrics that are registered where reg is not nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "waterclock_submits_total", Help: "Submits by what became of them: stored, existed, invalid, conflict, failed.",
	}, []string{"result"})}
	if reg != nil {
		reg.MustRegister(m.submits)
	}
	return m
}

func (m *Metrics) count(results []Result) {
	for i := range results {
		m.submits.WithLabelValues(outcome(&results[i])).Inc()
	}
}

func outcome(r *Result) string {
	var fields fielderr.FieldErrors
	var field *fielderr.FieldError
	switch {
	case r.Err == nil && r.Existed:
		return "existed"
	case r.Err == nil:
		return "stored"
	case errors.As(r.Err, &fields), errors.As(r.Err, &field):
		return "invalid"
	case errors.Is(r.Err, store.ErrKeyReused), errors.Is(r.Err, store.ErrNameTaken):
		return "conflict"
	default:
		return "failed"
	}
}
