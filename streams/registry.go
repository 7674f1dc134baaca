package streams

import (
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
)

// executorSilent is how long an executor may say nothing before it counts as gone.
const executorSilent = 7 * time.Second

// Registry is the executors that are alive, as far as their heartbeats tell. Feed it with OnHeartbeat. Safe for concurrent use.
type Registry struct {
	mu        sync.Mutex
	executors map[string]*seen
	offers    map[offer]int // how many executors offer it
	swept     time.Time
}

type seen struct {
	at     time.Time
	offers []offer
	held   map[uuid.UUID]int64
}

type offer struct{ queue, kind string }

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{executors: map[string]*seen{}, offers: map[offer]int{}}
}

// Heard takes a heartbeat; it tells whether the executor is new. A draining executor offers nothing.
func (r *Registry) Heard(h *wirev1.Heartbeat) (appeared bool) {
	now := time.Now()
	s := &seen{at: now, held: make(map[uuid.UUID]int64, len(h.Held))}
	if !h.Draining {
		for _, q := range h.Queues {
			for _, k := range h.Kinds {
				s.offers = append(s.offers, offer{q, k})
			}
		}
	}
	for _, held := range h.Held {
		if len(held.RunId) == 16 {
			s.held[uuid.UUID(held.RunId)] = held.Dispatch
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.executors[h.Executor]
	r.executors[h.Executor] = s
	if old == nil || !slices.Equal(old.offers, s.offers) {
		r.count(old, -1)
		r.count(s, +1)
	}
	r.expire(now)
	return old == nil
}

// Take is Heard for who does not ask whether the executor is new.
func (r *Registry) Take(h *wirev1.Heartbeat) { r.Heard(h) }

func (r *Registry) count(s *seen, by int) {
	if s == nil {
		return
	}
	for _, o := range s.offers {
		if r.offers[o] += by; r.offers[o] <= 0 {
			delete(r.offers, o)
		}
	}
}

// expire forgets who is silent; at most once a second.
func (r *Registry) expire(now time.Time) {
	if now.Sub(r.swept) < time.Second {
		return
	}
	r.swept = now
	for id, s := range r.executors {
		if now.Sub(s.at) > executorSilent {
			r.count(s, -1)
			delete(r.executors, id)
		}
	}
}

// Offers tells whether a live executor of a queue has a kind. Namespace is job.SharedNamespace for a queue that all share.
func (r *Registry) Offers(namespace, queue, kind string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(time.Now())
	return r.offers[offer{namespace + "/" + queue, kind}] > 0
}

// Holds tells whether a live executor says that it works on a hand-over.
func (r *Registry) Holds(run uuid.UUID, dispatch int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(time.Now())
	for _, s := range r.executors {
		if d, ok := s.held[run]; ok && d == dispatch {
			return true
		}
	}
	return false
}
