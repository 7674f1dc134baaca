package job

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/google/uuid"
)

// RetryPolicy says how often a run is tried and how long it waits between attempts. Zero fields mean the defaults.
type RetryPolicy struct {
	MaxAttempts    int32         `json:"max_attempts,omitempty"`
	InitialBackoff time.Duration `json:"initial_backoff,omitempty"`
	MaxBackoff     time.Duration `json:"max_backoff,omitempty"`
	Multiplier     float64       `json:"multiplier,omitempty"`
}

// Attempts returns how often a run is tried at most.
func (p RetryPolicy) Attempts() int32 {
	if p.MaxAttempts > 0 {
		return p.MaxAttempts
	}
	return DefaultMaxAttempts
}

// Backoff returns the wait after the given failed attempt (from 1): exponential, capped, and spread over the upper half of its range so that
// runs that failed together do not come back together. It depends on nothing but its arguments, so deciding twice decides the same.
func (p RetryPolicy) Backoff(run uuid.UUID, attempt int32) time.Duration {
	initial, limit, factor := p.InitialBackoff, p.MaxBackoff, p.Multiplier
	if initial <= 0 {
		initial = DefaultInitialBackoff
	}
	if limit <= 0 {
		limit = DefaultMaxBackoff
	}
	if factor < 1 {
		factor = DefaultMultiplier
	}
	initial = min(initial, limit)
	wait := float64(initial) * math.Pow(factor, float64(max(attempt, 1)-1))
	// Pow overflows to +Inf long before attempt 1000; compare as floats, where that is still in order.
	if !(wait < float64(limit)) {
		wait = float64(limit)
	}
	half := wait / 2
	d := time.Duration(half + half*unit(run, attempt))
	return d.Truncate(time.Microsecond)
}

// unit maps a run and an attempt to [0, 1).
func unit(run uuid.UUID, attempt int32) float64 {
	x := binary.BigEndian.Uint64(run[8:]) ^ binary.BigEndian.Uint64(run[:8]) ^ uint64(uint32(attempt))*0x9e3779b97f4a7c15 //nolint:gosec // a hash
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}
