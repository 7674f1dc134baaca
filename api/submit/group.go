package submit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/waterclock-io/waterclock/internal/failpoint"
	"github.com/waterclock-io/waterclock/store"
)

// MaxBatch is how many jobs one transaction stores at most.
const MaxBatch = 1000

const (
	// maxBatchBytes and maxWaitingBytes bound the payloads of one transaction and of all that wait.
	maxBatchBytes   = 16 << 20
	maxWaitingBytes = 64 << 20
	storeTimeout    = 10 * time.Second
	// commitTries is how often a commit is tried whose answer was lost. Ids make the repetition find what is there.
	commitTries = 3
)

// The refusals.
var (
	// ErrBusy says that too many submits wait for the store already.
	ErrBusy = errors.New("too many submits are waiting for the store; slow down and try again")
	// ErrStopped says that the service has been stopped.
	ErrStopped = errors.New("the server is stopping; try again elsewhere")
)

// group puts submits that come while a transaction is under way into the next one. A submit that comes alone waits for nothing.
type group struct {
	store      store.Submitter
	maxWaiting int

	mu      sync.Mutex
	idle    *sync.Cond // signalled when running becomes false
	waiting []*call
	count   int // submissions in waiting
	bytes   int // of their payloads
	running bool
	stopped bool
}

// call is one submit that waits.
type call struct {
	subs    []store.Submission
	bytes   int
	results []store.SubmitResult
	done    chan struct{}
}

func newGroup(s store.Submitter, maxWaiting int) *group {
	g := &group{store: s, maxWaiting: maxWaiting}
	g.idle = sync.NewCond(&g.mu)
	return g
}

// submit waits for the transaction of the submissions. Results carry the errors of single ones.
func (g *group) submit(ctx context.Context, subs []store.Submission) ([]store.SubmitResult, error) {
	c := &call{subs: subs, done: make(chan struct{})}
	for i := range subs {
		c.bytes += len(subs[i].Job.Payload)
	}
	if err := g.enter(c); err != nil {
		return nil, err
	}
	select {
	case <-c.done:
		return c.results, nil
	case <-ctx.Done():
		g.abandon(c)
		return nil, context.Cause(ctx)
	}
}

func (g *group) enter(c *call) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.stopped:
		return ErrStopped
	case g.count+len(c.subs) > g.maxWaiting || g.bytes+c.bytes > maxWaitingBytes:
		return ErrBusy
	}
	g.waiting = append(g.waiting, c)
	g.count += len(c.subs)
	g.bytes += c.bytes
	if !g.running {
		g.running = true
		go g.run()
	}
	return nil
}

// abandon takes a call back that no transaction has taken yet.
func (g *group) abandon(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.waiting, c); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
		g.count -= len(c.subs)
		g.bytes -= c.bytes
	}
}

// run makes transactions until nobody waits.
func (g *group) run() {
	for {
		batch := g.take()
		if len(batch) == 0 {
			return
		}
		var subs []store.Submission
		for _, c := range batch {
			subs = append(subs, c.subs...)
		}
		results := g.storeOrSplit(subs)
		failpoint.Here(failpoint.SubmitCommitted)
		for _, c := range batch {
			c.results, results = results[:len(c.subs)], results[len(c.subs):]
			close(c.done)
		}
	}
}

// take returns the calls of the next transaction, oldest first; none ends the run.
func (g *group) take() []*call {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, subs, bytes := 0, 0, 0
	for _, c := range g.waiting {
		if n > 0 && (subs+len(c.subs) > MaxBatch || bytes+c.bytes > maxBatchBytes) {
			break
		}
		n++
		subs += len(c.subs)
		bytes += c.bytes
	}
	batch := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	g.count -= subs
	g.bytes -= bytes
	if n == 0 {
		g.running = false
		g.idle.Broadcast()
	}
	return batch
}

// storeOrSplit stores submissions; where the store fails for a reason that may lie in one of them, it is found by halves, and the others are stored.
func (g *group) storeOrSplit(subs []store.Submission) []store.SubmitResult {
	results, err := g.commit(subs)
	if err == nil {
		return results
	}
	temporary := errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknownOutcome) || errors.Is(err, context.DeadlineExceeded)
	if !temporary && len(subs) > 1 {
		half := len(subs) / 2
		return append(g.storeOrSplit(subs[:half]), g.storeOrSplit(subs[half:])...)
	}
	results = make([]store.SubmitResult, len(subs))
	for i := range results {
		results[i].Err = err
	}
	return results
}

// commit belongs to several callers, so that none of their contexts ends it.
func (g *group) commit(subs []store.Submission) (results []store.SubmitResult, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	for range commitTries {
		results, err = g.store.Submit(ctx, subs)
		if !errors.Is(err, store.ErrUnknownOutcome) {
			break
		}
	}
	return results, err //nolint:wrapcheck // the sentinels of store are what callers branch on
}

func (g *group) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
	for g.running {
		g.idle.Wait()
	}
}
