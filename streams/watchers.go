package streams

import (
	"sync"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
)

// Watchers tells those who watch runs of what was recorded of them. Feed it with Start.
type Watchers struct {
	mu   sync.Mutex
	runs map[uuid.UUID]map[chan struct{}]struct{}
}

// NewWatchers returns Watchers that hear nothing yet.
func NewWatchers() *Watchers { return &Watchers{runs: map[uuid.UUID]map[chan struct{}]struct{}{}} }

// Start listens until the subscription is ended.
func (w *Watchers) Start(nc *nats.Conn) (*nats.Subscription, error) {
	return OnRecorded(nc, func(r *wirev1.Recorded, _ func()) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.runs) == 0 {
			return
		}
		for _, row := range r.Rows {
			if len(row.RunId) != 16 {
				continue
			}
			for c := range w.runs[uuid.UUID(row.RunId)] {
				select {
				case c <- struct{}{}:
				default: // it has not looked since the last time; one look sees both
				}
			}
		}
	})
}

// Watch signals after each recorded change of a run until stop is called. It may miss some.
func (w *Watchers) Watch(run uuid.UUID) (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs[run] == nil {
		w.runs[run] = map[chan struct{}]struct{}{}
	}
	w.runs[run][c] = struct{}{}
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.runs[run], c)
		if len(w.runs[run]) == 0 {
			delete(w.runs, run)
		}
	}
}
