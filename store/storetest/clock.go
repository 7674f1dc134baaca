package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

func testClock(t *testing.T, g *group) {
	g.run(t, "now goes forward and is near this machine's", func(t *testing.T, b *bundle) {
		last, err := b.Now(t.Context())
		check(t, err)
		if d := time.Since(last).Abs(); d > time.Minute {
			t.Errorf("now is %v off", d)
		}
		for range 200 {
			now, err := b.Now(t.Context())
			check(t, err)
			if now.Before(last) || now.Nanosecond()%1000 != 0 {
				t.Fatalf("now is %v after %v", now, last)
			}
			last = now
		}
	})
	g.run(t, "traits", func(t *testing.T, b *bundle) {
		traits := b.Traits()
		if one, two := traits.NewJobID(), traits.NewJobID(); traits.Shards < 1 || traits.Name == "" || one == two {
			t.Errorf("traits %+v", traits)
		}
		shards, err := b.Shards(t.Context())
		check(t, err)
		if len(shards) != int(traits.Shards) {
			t.Errorf("%d shards, want %d", len(shards), traits.Shards)
		}
	})
	g.run(t, "ping", func(t *testing.T, b *bundle) { check(t, b.Ping(t.Context())) })
	g.run(t, "a cancelled context has no effect", func(t *testing.T, b *bundle) {
		j := b.every(b.base)
		tm := b.submit(t, j)[0]
		other := b.once(b.base)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for name, call := range map[string]func() error{
			"Submit": func() error { _, err := b.Submit(ctx, []store.Submission{b.submission(other)}); return err },
			"ChangeJob": func() error {
				_, _, err := b.ChangeJob(ctx, b.ns, j.ID, func(*job.Job, []store.Timer, time.Time) (store.Change, error) {
					return store.Change{Remove: []store.TimerKey{tm.TimerKey}}, nil
				})
				return err
			},
			"MarkDispatched": func() error {
				_, err := b.MarkDispatched(ctx, store.Mark{ID: markIDs.Add(1), Items: []store.MarkItem{item(tm, false)}})
				return err
			},
			"Record":    func() error { _, err := b.Record(ctx, []store.Report{endOf(tm)}, ended); return err },
			"Job":       func() error { _, err := b.Job(ctx, b.ns, j.ID); return err },
			"ReadDue":   func() error { _, err := b.ReadDue(ctx, b.cursors(b.base), b.at(time.Hour), 1); return err },
			"Ping":      func() error { return b.Ping(ctx) },
			"CreateKey": func() error { return b.CreateKey(ctx, store.APIKey{ID: b.ns, Hash: []byte{1}}) },
		} {
			if err := call(); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: error %v, want context.Canceled", name, err)
			}
		}
		b.unchanged(t, j, tm)
		if _, err := b.Job(t.Context(), b.ns, other.ID); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the cancelled submit: error %v, want ErrNotFound", err)
		}
		if _, err := b.KeyByID(t.Context(), b.ns); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the cancelled key: error %v, want ErrNotFound", err)
		}
	})
}

// testClose closes a store under use: calls under way are answered, later ones refused, nothing hangs.
func testClose(t *testing.T, open Open) {
	s := open(t)
	b := newGroup(s).bundle()
	j := b.once(b.base)
	b.submit(t, j)
	stop := make(chan struct{})
	entered := make(chan struct{}, 1)
	done := make(chan error, 1)
	var decided atomic.Bool
	go func() {
		_, _, err := s.ChangeJob(t.Context(), b.ns, j.ID, func(*job.Job, []store.Timer, time.Time) (store.Change, error) {
			select {
			case entered <- struct{}{}:
			default:
			}
			<-stop
			decided.Store(true)
			return store.Change{}, nil
		})
		done <- err
	}()
	<-entered
	closed := make(chan error, 1)
	go func() {
		err := s.Close()
		if !decided.Load() {
			t.Error("Close returned while a call was under way")
		}
		closed <- err
	}()
	close(stop)
	check(t, <-done)
	check(t, <-closed)
	if _, err := s.Job(t.Context(), b.ns, uuid.New()); err == nil || errors.Is(err, store.ErrNotFound) {
		t.Errorf("a read after Close: error %v", err)
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Error("a ping after Close was answered")
	}
	check(t, s.Close())
}
