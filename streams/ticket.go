package streams

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"sync"

	"google.golang.org/protobuf/proto"

	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
)

// sealSize is the length of a seal in bytes: HMAC-SHA-256 cut to 128 bits.
const sealSize = 16

// ErrSeal is the error of a ticket that this cluster did not seal, or that was changed on its way.
var ErrSeal = errors.New("ticket is not sealed by this cluster")

// Sealer seals tickets with the cluster key, so that a status proves that it speaks of a hand-over that really was made.
type Sealer struct {
	macs sync.Pool
}

// NewSealer returns a Sealer for the cluster key.
func NewSealer(key []byte) *Sealer {
	k := append([]byte("waterclock ticket\x00"), key...)
	return &Sealer{macs: sync.Pool{New: func() any { return hmac.New(sha256.New, k) }}}
}

// Seal returns the ticket as it travels.
func (s *Sealer) Seal(t *wirev1.Ticket) ([]byte, error) {
	b, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 0, 160), t)
	if err != nil {
		return nil, fmt.Errorf("encode ticket: %w", err)
	}
	return s.mac(b, b), nil
}

// Open verifies a sealed ticket and returns it. ErrSeal where it is forged, foreign or damaged.
func (s *Sealer) Open(sealed []byte) (*wirev1.Ticket, error) {
	if len(sealed) < sealSize {
		return nil, fmt.Errorf("%w: %d bytes", ErrSeal, len(sealed))
	}
	body := sealed[:len(sealed)-sealSize]
	var want [sealSize]byte
	if !hmac.Equal(s.mac(want[:0], body), sealed[len(body):]) {
		return nil, ErrSeal
	}
	t := new(wirev1.Ticket)
	if err := proto.Unmarshal(body, t); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSeal, err)
	}
	if len(t.JobId) != 16 || len(t.RunId) != 16 {
		return nil, fmt.Errorf("%w: ids of %d and %d bytes", ErrSeal, len(t.JobId), len(t.RunId))
	}
	return t, nil
}

func (s *Sealer) mac(dst, body []byte) []byte {
	m := s.macs.Get().(hash.Hash)
	m.Reset()
	m.Write(body)
	var sum [sha256.Size]byte
	dst = append(dst, m.Sum(sum[:0])[:sealSize]...)
	s.macs.Put(m)
	return dst
}
