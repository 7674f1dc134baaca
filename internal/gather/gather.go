// Package gather puts questions that come while another is under way into one: the busier a source is, the more questions each of its answers is for. A question
// that comes alone waits for nothing.
package gather

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Source answers many questions at once; a key that is not in the answer has none. Its context ends with the Gatherer's timeout and not with that of any caller.
type Source[K comparable, V any] func(ctx context.Context, keys []K) (map[K]V, error)

// Gatherer asks a Source for many callers. Callers of one key may share a value and must not change it.
type Gatherer[K comparable, V any] struct {
	ask Source[K, V]
	cfg Config

	mu      sync.Mutex
	waiting []*round[K, V]
	asking  int
	begun   time.Time // of the last question
}

// Config says how a Gatherer asks.
type Config struct {
	// Most is how many keys one question has at most.
	Most int
	// AtOnce is how many questions are under way at most. One is enough while answers come: the next begins beside it only where none has begun for Patience, so that
	// one that is stuck does not hold up all others.
	AtOnce   int
	Patience time.Duration
	// Timeout is how long a question may take.
	Timeout time.Duration
}

// round is a question and those who wait for its answer.
type round[K comparable, V any] struct {
	keys    map[K]struct{}
	done    chan struct{}
	answers map[K]V
	err     error
}

// New returns a Gatherer of a source.
func New[K comparable, V any](ask Source[K, V], cfg Config) *Gatherer[K, V] {
	return &Gatherer[K, V]{ask: ask, cfg: cfg}
}

// Get returns the value of a key as it is after the call began. found is false where the source has none. The error is the source's, or the context's cause.
func (g *Gatherer[K, V]) Get(ctx context.Context, key K) (v V, found bool, err error) {
	r := g.join(key)
	select {
	case <-r.done:
	case <-ctx.Done():
		return v, false, context.Cause(ctx)
	}
	if r.err != nil {
		return v, false, r.err
	}
	v, found = r.answers[key]
	return v, found, nil
}

// join puts a key into a round that has not begun.
func (g *Gatherer[K, V]) join(key K) *round[K, V] {
	g.mu.Lock()
	defer g.mu.Unlock()
	var r *round[K, V]
	if n := len(g.waiting); n > 0 && len(g.waiting[n-1].keys) < g.cfg.Most {
		r = g.waiting[n-1]
	} else {
		r = &round[K, V]{keys: map[K]struct{}{}, done: make(chan struct{})}
		g.waiting = append(g.waiting, r)
	}
	r.keys[key] = struct{}{}
	if g.asking == 0 || g.asking < g.cfg.AtOnce && time.Since(g.begun) > g.cfg.Patience {
		g.asking++
		g.begun = time.Now()
		go g.run()
	}
	return r
}

// run asks until nobody waits.
func (g *Gatherer[K, V]) run() {
	for r := g.next(); r != nil; r = g.next() {
		r.answers, r.err = g.answer(r)
		close(r.done)
	}
}

func (g *Gatherer[K, V]) next() *round[K, V] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.asking--
		return nil
	}
	r := g.waiting[0]
	g.waiting = g.waiting[1:]
	g.begun = time.Now()
	return r
}

func (g *Gatherer[K, V]) answer(r *round[K, V]) (answers map[K]V, err error) {
	defer func() {
		if p := recover(); p != nil { // else all who wait would wait for ever
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	keys := make([]K, 0, len(r.keys))
	for k := range r.keys {
		keys = append(keys, k)
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Timeout)
	defer cancel()
	return g.ask(ctx, keys)
}
