package schedule

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"time"
)

// JitterFor gives the delay of one occurrence of a job, in [0, Jitter), in whole microseconds. It depends on nothing but the job
// id, the nominal instant and Jitter, so that every planner decides the same; the formula must never change.
func (s Schedule) JitterFor(jobID [16]byte, at time.Time) time.Duration {
	spread := s.Jitter.Microseconds()
	if spread <= 0 {
		return 0
	}
	var text [24]byte
	copy(text[:], jobID[:])
	binary.BigEndian.PutUint64(text[16:], uint64(micros(at)))
	sum := sha256.Sum256(text[:])
	// The high word of hash·spread is uniform over [0, spread) without the bias of a remainder.
	high, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:]), uint64(spread))
	return time.Duration(high) * time.Microsecond
}
