package streams

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/waterclock-io/waterclock/internal/check"
)

func TestWindowAnswersOnceEach(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	w := r.window(64, 5*time.Second)
	const each = 500
	var mu sync.Mutex
	var seqs []uint64
	answers := make([]atomic.Int32, 4*each)
	var wg sync.WaitGroup
	var open sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range each {
				n := g*each + i
				open.Add(1)
				err := w.Publish(t.Context(), RunSubject(laneA, uuid.New(), 1), nil, nil, func(a Ack, err error) {
					defer open.Done()
					if err != nil || a.Stream != runs.Name || a.Duplicate {
						t.Errorf("got %+v, %v", a, err)
					}
					answers[n].Add(1)
					mu.Lock()
					defer mu.Unlock()
					seqs = append(seqs, a.Seq)
				})
				if err != nil {
					t.Error(err)
					open.Done()
				}
			}
		})
	}
	wg.Wait()
	open.Wait()
	for n := range answers {
		if c := answers[n].Load(); c != 1 {
			t.Fatalf("publish %d was answered %d times", n, c)
		}
	}
	slices.Sort(seqs)
	for i, s := range seqs {
		if s != uint64(i+1) {
			t.Fatalf("place %d has sequence %d", i, s)
		}
	}
	if n := w.Unanswered(); n != 0 {
		t.Errorf("%d unanswered", n)
	}
}

// A window that is full holds publishers back for as long as it takes, and lets go of them at an answer, the end of their context, or its own.
func TestWindowHoldsBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.window(2, time.Minute)
	asked := make(chan *nats.Msg, 10)
	r.subscribe(r.nc, "slow", func(m *nats.Msg) { asked <- m })
	done := make(chan error, 10)
	ask := func(ctx context.Context) error {
		return w.Request(ctx, "slow", nil, nil, func(_ *nats.Msg, err error) { done <- err })
	}
	check.OK(t, ask(t.Context()))
	check.OK(t, ask(t.Context()))
	cause := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, cause)
	defer cancel()
	if err := ask(ctx); !errors.Is(err, cause) {
		t.Fatalf("the third got %v", err)
	}
	if n := w.Unanswered(); n != 2 {
		t.Errorf("%d unanswered, want 2", n)
	}
	third := make(chan error, 1)
	go func() { third <- ask(t.Context()) }()
	check.OK(t, check.Receive(t, "the first question", asked).Respond(nil))
	check.OK(t, check.Receive(t, "the first answer", done))
	check.OK(t, check.Receive(t, "room for the third", third))
	fourth := make(chan error, 1)
	go func() { fourth <- ask(t.Context()) }()
	check.Receive(t, "the second question", asked)
	check.Receive(t, "the third question", asked)
	w.Close()
	if err := check.Receive(t, "the end of the fourth", fourth); !errors.Is(err, ErrWindowClosed) {
		t.Errorf("the fourth got %v", err)
	}
	for range 2 {
		if err := check.Receive(t, "the end of those under way", done); !errors.Is(err, ErrWindowClosed) {
			t.Errorf("got %v", err)
		}
	}
	w.Close()
	if err := ask(t.Context()); !errors.Is(err, ErrWindowClosed) {
		t.Errorf("closed, it said %v", err)
	}
}

func TestWindowTellsRefusalsApart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if _, err := Ensure(t.Context(), r.js, r.reg, Limits{RunsBytes: 64 << 10}, quiet); err != nil {
		t.Fatal(err)
	}
	w := r.window(8, 5*time.Second)
	id := uuid.New()
	subject := RunSubject(laneA, id, 1)
	_, err := w.PublishWait(t.Context(), subject, nil, []byte("x"))
	check.OK(t, err)
	if _, err := w.PublishWait(t.Context(), subject, nil, []byte("x")); !errors.Is(err, ErrThere) {
		t.Errorf("a second message on the subject got %v", err)
	}
	if _, err := w.PublishWait(t.Context(), RunSubject(laneA, id, 2), nil, []byte("x")); err != nil {
		t.Errorf("another dispatch got %v", err)
	}
	full := error(nil)
	for i := 0; full == nil && i < 100; i++ {
		_, full = w.PublishWait(t.Context(), RunSubject(laneA, uuid.New(), 1), nil, make([]byte, 4096))
	}
	if !errors.Is(full, ErrFull) {
		t.Errorf("a full stream said %v", full)
	}
	if _, err := w.PublishWait(t.Context(), subject, nil, []byte("x")); !errors.Is(err, ErrThere) && !errors.Is(err, ErrFull) {
		t.Errorf("a second message in a full stream got %v", err)
	}
	if _, err := w.PublishWait(t.Context(), "nobody.listens", nil, nil); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("where nobody listens: %v", err)
	}
	r.subscribe(r.nc, "nonsense", func(m *nats.Msg) { _ = m.Respond([]byte("what?")) })
	if _, err := w.PublishWait(t.Context(), "nonsense", nil, nil); err == nil || errors.Is(err, ErrNotAcked) {
		t.Errorf("an unreadable answer gave %v", err)
	}
}

func TestWindowWithoutAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.window(4, 100*time.Millisecond)
	r.subscribe(r.nc, "silent", func(*nats.Msg) {})
	for range 3 { // more than there is room for, so the room must come back
		if _, err := w.PublishWait(t.Context(), "silent", nil, nil); !errors.Is(err, ErrNotAcked) {
			t.Errorf("got %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.PublishWait(ctx, "silent", nil, nil); !errors.Is(err, ErrNotAcked) {
		t.Errorf("given up, it said %v", err)
	}
}

func TestWindowGivesUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.window(4, time.Hour)
	r.subscribe(r.nc, "silent", func(*nats.Msg) {})
	done := make(chan error, 8)
	for range 2 { // the room comes back
		for range 4 {
			check.OK(t, w.Publish(t.Context(), "silent", nil, nil, func(_ Ack, err error) { done <- err }))
		}
		w.GiveUp()
		for range 4 {
			if err := check.Receive(t, "the word", done); !errors.Is(err, ErrNotAcked) {
				t.Errorf("got %v", err)
			}
		}
	}
}

func TestWindowGivesUpWhenTheConnectionIsBack(t *testing.T) {
	t.Parallel()
	r := newRigByURL(t)
	w := r.window(4, time.Hour)
	heard := make(chan struct{}, 1)
	r.subscribe(r.nc, "silent", func(*nats.Msg) { heard <- struct{}{} })
	done := make(chan error, 1)
	check.OK(t, w.Publish(t.Context(), "silent", nil, nil, func(_ Ack, err error) { done <- err }))
	check.Receive(t, "the message", heard)
	check.OK(t, r.nc.ForceReconnect())
	if err := check.Receive(t, "the word", done); !errors.Is(err, ErrNotAcked) {
		t.Errorf("got %v", err)
	}
}

// A server that goes away takes the answers with it: each publish is reported once, and later ones fail at once.
func TestWindowOfAServerThatStops(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.window(100, 300*time.Millisecond)
	r.subscribe(r.nc, "silent", func(*nats.Msg) {})
	done := make(chan error, 200)
	for range 50 {
		check.OK(t, w.Publish(t.Context(), "silent", nil, nil, func(_ Ack, err error) { done <- err }))
	}
	r.srv.Stop()
	for range 50 {
		if err := check.Receive(t, "a report", done); !errors.Is(err, ErrNotAcked) {
			t.Errorf("got %v", err)
		}
	}
	check.Await(t, "the connection is lost", func() bool { return !r.nc.IsConnected() })
	before := len(done)
	if err := w.Publish(t.Context(), "silent", nil, nil, func(_ Ack, err error) { done <- err }); err == nil {
		t.Error("a publish without a connection was taken")
	}
	if len(done) != before || w.Unanswered() != 0 {
		t.Errorf("%d reports too many, %d unanswered", len(done)-before, w.Unanswered())
	}
}

// However the end comes, each publish that was taken is reported exactly once.
func TestWindowClosedInTheMiddle(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ensure()
	for range 20 {
		w, err := NewWindow(r.nc, 16, 5*time.Second)
		check.OK(t, err)
		var taken, told atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					err := w.Publish(t.Context(), StatusSubject("x"), nil, nil, func(Ack, error) { told.Add(1) })
					if err != nil {
						return
					}
					taken.Add(1)
				}
			})
		}
		check.Await(t, "some were taken", func() bool { return taken.Load() > 50 })
		w.Close()
		wg.Wait()
		check.Await(t, "as many reports as were taken", func() bool { return told.Load() == taken.Load() })
		if n := w.Unanswered(); n != 0 {
			t.Errorf("%d unanswered", n)
		}
	}
}
