package job_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/waterclock-io/waterclock/job"
)

// The fault: a back-off that overflows, by its factor, its attempt, or numbers that are none. It is clamped to its limit.
func TestBackoffThatOverflows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := job.RetryPolicy{
			InitialBackoff: time.Duration(rapid.Int64().Draw(t, "initial")),
			MaxBackoff:     time.Duration(rapid.Int64Range(math.MinInt64, int64(24*time.Hour)).Draw(t, "max")),
			Multiplier:     rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.Copysign(0, -1)})).Draw(t, "factor"),
		}
		attempt := rapid.Int32().Draw(t, "attempt")
		limit := p.MaxBackoff
		if limit <= 0 {
			limit = job.DefaultMaxBackoff
		}
		if d := p.Backoff(uuid.New(), attempt); d < 0 || d > limit {
			t.Fatalf("wait %s is outside 0 to %s", d, limit)
		}
	})
}
