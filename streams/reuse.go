package streams

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// reused is a JetStream that opens each stream once.
type reused struct {
	jetstream.JetStream
	mu   sync.Mutex
	open map[string]jetstream.Stream
}

// Reuse returns js as one that opens each stream once. To open a stream costs a question of its own, which matters where hundreds of runs are taken back at once. What
// such a handle has cached is old, and on one of a stream that is gone each question fails.
func Reuse(js jetstream.JetStream) jetstream.JetStream {
	return &reused{JetStream: js, open: map[string]jetstream.Stream{}}
}

// Stream returns the handle that was opened first.
func (r *reused) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	r.mu.Lock()
	s := r.open[name]
	r.mu.Unlock()
	if s != nil {
		return s, nil
	}
	s, err := r.JetStream.Stream(ctx, name)
	if err != nil {
		return nil, err //nolint:wrapcheck // as it was
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[name] = s // streams are few: RUNS has a new name only when it was lost
	return s, nil
}
