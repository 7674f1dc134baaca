package submit

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// gate is a store whose transactions wait to be let through.
type gate struct {
	begun  chan int // sizes
	open   chan error
	poison uuid.UUID
}

var errPoison = errors.New("this row cannot be written")

func (g *gate) Submit(_ context.Context, subs []store.Submission) ([]store.SubmitResult, error) {
	g.begun <- len(subs)
	if err := <-g.open; err != nil {
		return nil, err
	}
	out := make([]store.SubmitResult, len(subs))
	for i := range subs {
		if subs[i].Job.ID == g.poison {
			return nil, errPoison
		}
		out[i].Job = subs[i].Job
	}
	return out, nil
}

func one(id uuid.UUID) []store.Submission { return []store.Submission{{Job: &job.Job{ID: id}}} }

// waits returns once n submissions wait; the group has no other signal of that, and needs none.
func (g *group) waits(t *testing.T, n int) {
	t.Helper()
	for {
		g.mu.Lock()
		have := g.count
		g.mu.Unlock()
		if have == n {
			return
		}
		runtime.Gosched()
		if t.Context().Err() != nil {
			t.Fatal("the test has ended")
		}
	}
}

func TestSubmitsGatherWhileOneIsUnderWay(t *testing.T) {
	t.Parallel()
	s := &gate{begun: make(chan int, 10), open: make(chan error, 10)}
	g := newGroup(s, 100)
	var wg sync.WaitGroup
	submit := func(ctx context.Context, want error) {
		wg.Go(func() {
			if _, err := g.submit(ctx, one(uuid.New())); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
	submit(t.Context(), nil)
	if n := <-s.begun; n != 1 {
		t.Fatalf("the first waited for company: %d", n)
	}
	for range 50 {
		submit(t.Context(), nil)
	}
	gone, cancel := context.WithCancel(t.Context())
	submit(gone, context.Canceled)
	g.waits(t, 51)
	cancel()
	g.waits(t, 50)
	for range 50 {
		submit(t.Context(), nil)
	}
	g.waits(t, 100)
	if _, err := g.submit(t.Context(), one(uuid.New())); !errors.Is(err, ErrBusy) {
		t.Errorf("one too many: %v", err)
	}
	s.open <- nil
	if n := <-s.begun; n != 100 {
		t.Errorf("the next transaction has %d, want 100", n)
	}
	s.open <- nil
	wg.Wait()
	g.stop()
	g.stop()
	if _, err := g.submit(t.Context(), one(uuid.New())); !errors.Is(err, ErrStopped) {
		t.Errorf("after stop: %v", err)
	}
}

func TestOneBadRowDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	s := &gate{begun: make(chan int, 100), open: make(chan error, 100), poison: uuid.New()}
	for range 100 {
		s.open <- nil
	}
	g := newGroup(s, 1000)
	var subs []store.Submission
	for i := range 9 {
		id := uuid.New()
		if i == 4 {
			id = s.poison
		}
		subs = append(subs, one(id)...)
	}
	res, err := g.submit(t.Context(), subs)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range res {
		if (i == 4) != errors.Is(r.Err, errPoison) || (i != 4 && r.Job.ID != subs[i].Job.ID) {
			t.Errorf("%d: %v", i, r.Err)
		}
	}
}

func TestLostAnswerIsSettledByRepeating(t *testing.T) {
	t.Parallel()
	s := &gate{begun: make(chan int, 100), open: make(chan error, 100)}
	g := newGroup(s, 1000)
	s.open <- store.ErrUnknownOutcome
	s.open <- nil
	if res, err := g.submit(t.Context(), one(uuid.New())); err != nil || res[0].Err != nil {
		t.Errorf("%v %v", res, err)
	}
	s.open <- store.ErrUnavailable
	res, err := g.submit(t.Context(), append(one(uuid.New()), one(uuid.New())...))
	if err != nil || !errors.Is(res[1].Err, store.ErrUnavailable) || len(s.begun) != 3 {
		t.Errorf("a store that is away is not asked again for each: %v %v %d", res, err, len(s.begun))
	}
}
