package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/waterclock-io/waterclock/store"
)

func openTest(t *testing.T, opts Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "waterclock.db"), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func addQueue(name string) func(c *conn) error {
	return func(c *conn) error {
		_, err := c.exec("INSERT INTO queues (namespace, name) VALUES ('_', ?)", name)
		return err
	}
}

// hold keeps the writer busy until release is called, so that calls gather behind it.
func hold(t *testing.T, s *Store) (release func()) {
	t.Helper()
	began, end := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.write(t.Context(), 1, func(*conn) error { close(began); <-end; return nil }); err != nil {
			t.Error(err)
		}
	})
	<-began
	return func() { close(end); wg.Wait() }
}

// queued waits until n calls wait for the writer.
func queued(t *testing.T, s *Store, n int) {
	t.Helper()
	for len(s.writer.queue) < n {
		runtime.Gosched()
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func queues(t *testing.T, s *Store) map[string]bool {
	t.Helper()
	names, err := s.SharedQueues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]bool{}
	for _, n := range names {
		set[n] = true
	}
	return set
}

// In one commit each call stands or falls alone.
func TestGroupCommit(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	release := hold(t, s)
	boom := errors.New("boom")
	ctx, cancel := context.WithCancelCause(t.Context())
	var wg sync.WaitGroup
	var good, failed, left error
	var panicked any
	const many = 50
	for i := range many {
		wg.Go(func() {
			if err := s.write(t.Context(), 1, addQueue(fmt.Sprint("q", i))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Go(func() { good = s.write(t.Context(), 1, addQueue("good")) })
	wg.Go(func() {
		failed = s.write(t.Context(), 1, func(c *conn) error { return errors.Join(addQueue("failed")(c), boom) })
	})
	wg.Go(func() {
		defer func() { panicked = recover() }()
		_ = s.write(t.Context(), 1, func(c *conn) error { _ = addQueue("panicked")(c); panic("bang") })
	})
	wg.Go(func() { left = s.write(ctx, 1, addQueue("left")) })
	queued(t, s, many+4)
	cancel(boom)
	release()
	wg.Wait()
	if good != nil || !errors.Is(failed, boom) || panicked != "bang" || !errors.Is(left, boom) {
		t.Errorf("good %v, failed %v, panic %v, left %v", good, failed, panicked, left)
	}
	got := queues(t, s)
	if len(got) != many+2 || !got["good"] || got["failed"] || got["panicked"] || got["left"] {
		t.Errorf("queues %v", got)
	}
	// Alone, the same holds.
	if err := s.write(t.Context(), 1, func(c *conn) error { return errors.Join(addQueue("failed")(c), boom) }); !errors.Is(err, boom) {
		t.Errorf("error %v, want boom", err)
	}
	if queues(t, s)["failed"] {
		t.Error("a call that failed alone left a trace")
	}
}

// Once a call has begun, the answer is that of the commit, whatever becomes of its context.
func TestCancelAfterBegin(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	err := s.write(ctx, 1, func(c *conn) error {
		cancel()
		return addQueue("kept")(c)
	})
	if err != nil || !queues(t, s)["kept"] {
		t.Errorf("error %v, queues %v", err, queues(t, s))
	}
}

func TestFullQueueHoldsCallersUp(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{Queue: 1})
	release := hold(t, s)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.write(t.Context(), 1, addQueue("waits")); err != nil {
			t.Error(err)
		}
	})
	queued(t, s, 1)
	ctx, cancel := context.WithCancel(t.Context())
	refused := make(chan error, 1)
	go func() { refused <- s.write(ctx, 1, addQueue("gives up")) }()
	cancel()
	if err := <-refused; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	release()
	wg.Wait()
	if got := queues(t, s); !got["waits"] || got["gives up"] {
		t.Errorf("queues %v", got)
	}
}

// limitPages makes the disk full at so many pages more than there are.
func limitPages(t *testing.T, s *Store, more int64) {
	t.Helper()
	err := s.write(t.Context(), 1, func(c *conn) error {
		var pages int64
		if err := c.query("PRAGMA page_count", func(r *row) error { pages = r.int64(); return nil }); err != nil {
			return err
		}
		_, err := c.exec(fmt.Sprintf("PRAGMA max_page_count = %d", pages+more))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	fill := func(name string) func(c *conn) error {
		return func(c *conn) error {
			if err := addQueue(name)(c); err != nil {
				return err
			}
			_, err := c.exec("INSERT INTO payloads (job_id, version, body) VALUES (?, 1, zeroblob(100000))", []byte(name))
			return err
		}
	}
	limitPages(t, s, 10)
	if err := s.write(t.Context(), 1, fill("alone")); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("error %v, want ErrUnavailable", err)
	}
	release := hold(t, s)
	var wg sync.WaitGroup
	errs := make([]error, 10)
	for i := range errs {
		wg.Go(func() {
			if i%2 == 0 {
				errs[i] = s.write(t.Context(), 1, fill(fmt.Sprint("large", i)))
			} else {
				errs[i] = s.write(t.Context(), 1, addQueue(fmt.Sprint("small", i)))
			}
		})
	}
	queued(t, s, len(errs))
	release()
	wg.Wait()
	got := queues(t, s)
	for i, err := range errs {
		name := fmt.Sprint("large", i)
		if i%2 == 1 {
			name = fmt.Sprint("small", i)
		}
		if got[name] != (err == nil) || (err != nil && !errors.Is(err, store.ErrUnavailable)) || (err == nil && i%2 == 0) {
			t.Errorf("%s: error %v, is there %v", name, err, got[name])
		}
	}
	limitPages(t, s, 1000)
	if err := s.write(t.Context(), 1, fill("later")); err != nil || !queues(t, s)["later"] {
		t.Errorf("once there is room: error %v", err)
	}
}
