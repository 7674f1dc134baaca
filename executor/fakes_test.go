package executor_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/executor"
	"github.com/waterclock-io/waterclock/store"
)

// untilStopped is a handler that goes on until its context ends; it reports its start and why it ended.
func untilStopped(begun chan<- *executor.Run, why chan<- error) executor.Handler {
	return func(ctx context.Context, run *executor.Run) error {
		begun <- run
		<-ctx.Done()
		why <- context.Cause(ctx)
		return context.Cause(ctx)
	}
}

// untilReleased is a handler that reports its start, and goes on until it is released or its context ends.
func untilReleased(begun chan<- *executor.Run, release <-chan struct{}) executor.Handler {
	return func(ctx context.Context, run *executor.Run) error {
		begun <- run
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func succeed(context.Context, *executor.Run) error { return nil }

// neverRun is a handler that nothing may come to.
func neverRun(t testing.TB) executor.Handler {
	return func(context.Context, *executor.Run) error {
		t.Error("it was executed")
		return nil
	}
}

// registrar is what the streams need of SQL, in memory.
type registrar struct {
	mu    sync.Mutex
	store uuid.UUID
	runs  store.Stream
}

func (r *registrar) Cluster(context.Context) (store.Cluster, error) {
	return store.Cluster{StoreID: r.store, Key: []byte("key")}, nil
}

func (r *registrar) Streams(context.Context) ([]store.Stream, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runs.Generation == 0 {
		return nil, nil
	}
	return []store.Stream{r.runs}, nil
}

func (r *registrar) NextGeneration(_ context.Context, name string, from int64) (store.Stream, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = store.Stream{Name: name, Generation: from + 1}
	return r.runs, nil
}

// memory is a blob store.
type memory struct {
	mu    sync.Mutex
	blobs map[string][]byte
	fails bool
	puts  int
}

func (m *memory) Put(_ context.Context, key string, content []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.puts++
	if m.fails {
		return errors.New("disk full")
	}
	if m.blobs == nil {
		m.blobs = map[string][]byte{}
	}
	m.blobs[key] = slices.Clone(content)
	return nil
}

func (m *memory) get(key string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.blobs[key]
}
