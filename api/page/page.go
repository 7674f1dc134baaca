// Package page makes and reads page tokens: opaque texts that say where the next page of a list begins.
//
// A token is bound to its namespace and query by a MAC under the cluster's key, so that it cannot be forged, changed, or carried to another list. It is
// not encrypted: it holds nothing that the page before did not show. The list handlers of api call it.
package page

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/job/fielderr"
)

// Position is a place in a list.
type Position struct {
	// Part tells parts of a list apart that are read from different places; its meaning is the list's own.
	Part byte
	At   time.Time // whole microseconds
	ID   uuid.UUID
}

const (
	tokenVersion = 1
	bodySize     = 1 + 1 + 8 + 16
	macSize      = 16
)

// Sealer makes and opens tokens. Safe for concurrent use.
type Sealer struct {
	key []byte
}

// NewSealer derives the key of page tokens from that of the cluster, so that no seal of another use can pass for one.
func NewSealer(clusterKey []byte) *Sealer {
	mac := hmac.New(sha256.New, clusterKey)
	mac.Write([]byte("waterclock page token"))
	return &Sealer{mac.Sum(nil)}
}

// Query identifies what a token belongs to: a list of a namespace with its filters.
type Query struct {
	Namespace string
	// Request is the list request; its page_size and page_token do not count.
	Request proto.Message
}

// Token returns the token of a position.
func (s *Sealer) Token(q Query, p Position) string {
	b := make([]byte, 0, bodySize+macSize)
	b = append(b, tokenVersion, p.Part)
	b = binary.BigEndian.AppendUint64(b, uint64(p.At.UnixMicro())) //nolint:gosec // bits
	b = append(b, p.ID[:]...)
	b = append(b, s.mac(q, b)...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// Open returns the position of a token; the zero Position for the empty one. Any other token than one that Token gave for the same query is a
// *fielderr.FieldError.
func (s *Sealer) Open(q Query, token string) (Position, error) {
	if token == "" {
		return Position{}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) != bodySize+macSize || b[0] != tokenVersion || !hmac.Equal(b[bodySize:], s.mac(q, b[:bodySize])) {
		return Position{}, &fielderr.FieldError{
			Field: "page_token", Given: token, Reason: "is not a token of this list",
			Allowed: "the next_page_token of a response to the same request, or nothing for the first page",
		}
	}
	return Position{
		Part: b[1],
		At:   time.UnixMicro(int64(binary.BigEndian.Uint64(b[2:]))).UTC(), //nolint:gosec // bits
		ID:   uuid.UUID(b[10:bodySize]),
	}, nil
}

func (s *Sealer) mac(q Query, body []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(q.Namespace))
	mac.Write([]byte{0})
	mac.Write(queryHash(q.Request))
	mac.Write(body)
	return mac.Sum(nil)[:macSize]
}

// queryHash covers the type of the request and its filters. That the deterministic encoding may change with a new binary only ends tokens of the old one.
func queryHash(m proto.Message) []byte {
	m = proto.Clone(m)
	r := m.ProtoReflect()
	for _, name := range []string{"page_size", "page_token"} {
		if fd := r.Descriptor().Fields().ByTextName(name); fd != nil {
			r.Clear(fd)
		}
	}
	r.SetUnknown(nil)
	h := sha256.New()
	h.Write([]byte(r.Descriptor().FullName()))
	h.Write([]byte{0})
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		// Text that is not UTF-8 cannot come in through a decoded request.
		panic("page: request cannot be encoded: " + err.Error())
	}
	h.Write(b)
	return h.Sum(nil)
}
