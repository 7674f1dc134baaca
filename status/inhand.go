package status

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// inHand is the messages that this recorder has and has not settled.
type inHand struct {
	mu    sync.Mutex
	since map[jetstream.Msg]time.Time
}

func (h *inHand) take(m jetstream.Msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since[m] = time.Now()
}

func (h *inHand) drop(msgs []jetstream.Msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range msgs {
		delete(h.since, m)
	}
}

// keep says of what takes long that it is still being worked on, so that it is not delivered to another.
func (h *inHand) keep(ctx context.Context) {
	tick := time.NewTicker(sayEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, m := range h.older(now.Add(-sayEvery)) {
				_ = m.InProgress() // then it is delivered again, which changes nothing
			}
		}
	}
}

func (h *inHand) older(than time.Time) []jetstream.Msg {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []jetstream.Msg
	for m, at := range h.since {
		if at.Before(than) {
			out = append(out, m)
		}
	}
	return out
}
