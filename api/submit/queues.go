package submit

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// queuesFor is how long the list of shared queues is taken to be as it was read.
const queuesFor = 5 * time.Second

// Queues remembers for a few seconds which queues all namespaces share. Safe for concurrent use.
type Queues struct {
	store interface {
		SharedQueues(ctx context.Context) ([]string, error)
	}
	clock Clock

	mu     sync.Mutex
	names  []string
	readAt time.Time
}

// NewQueues returns a Queues that has read nothing yet.
func NewQueues(s interface {
	SharedQueues(ctx context.Context) ([]string, error)
}, clock Clock,
) *Queues {
	return &Queues{store: s, clock: clock}
}

// Shared tells whether a queue is shared by all namespaces. Errors are the store's.
func (q *Queues) Shared(ctx context.Context, queue string) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Now()
	if q.readAt.IsZero() || now.Sub(q.readAt) >= queuesFor || now.Before(q.readAt) {
		names, err := q.store.SharedQueues(ctx)
		if err != nil {
			return false, fmt.Errorf("read shared queues: %w", err)
		}
		q.names, q.readAt = names, now
	}
	return slices.Contains(q.names, queue), nil
}
