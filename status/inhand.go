package status

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// inHand is the messages that this recorder has and has not settled. Of what takes long it says that it is still being worked on, so that it is not delivered to
// another.
type inHand struct {
	life  context.Context // it says nothing after this
	mu    sync.Mutex
	since map[jetstream.Msg]time.Time
	round *time.Timer // only while there is something
	says  bool        // it is set
}

func newInHand(life context.Context) *inHand {
	h := &inHand{life: life, since: map[jetstream.Msg]time.Time{}}
	h.round = time.AfterFunc(math.MaxInt64, h.say)
	h.round.Stop()
	return h
}

func (h *inHand) take(m jetstream.Msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since[m] = time.Now()
	h.sayLater()
}

func (h *inHand) drop(msgs []jetstream.Msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range msgs {
		delete(h.since, m)
	}
}

// sayLater sets the next round, where there is none to come. The lock is held.
func (h *inHand) sayLater() {
	if !h.says && h.life.Err() == nil {
		h.says = true
		h.round.Reset(sayEvery)
	}
}

// say speaks for what is older than a round.
func (h *inHand) say() {
	for _, m := range h.older(time.Now().Add(-sayEvery)) {
		_ = m.InProgress() // then it is delivered again, which changes nothing
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.says = false
	if len(h.since) > 0 {
		h.sayLater()
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
