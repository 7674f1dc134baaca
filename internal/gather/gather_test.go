package gather_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/internal/gather"
)

// held is a source that hands over each question and waits for leave to answer it.
type held struct {
	asked chan []int
	leave chan error
}

func newHeld() *held { return &held{asked: make(chan []int), leave: make(chan error)} }

func (h *held) ask(_ context.Context, keys []int) (map[int]int, error) {
	slices.Sort(keys)
	h.asked <- keys
	err := <-h.leave
	out := map[int]int{}
	for _, k := range keys {
		if k >= 0 {
			out[k] = 2 * k
		}
	}
	return out, err
}

type got struct {
	key, v int
	found  bool
	err    error
}

// gets asks for keys, each in a goroutine of its own, and returns once all wait.
func gets(t *testing.T, g *gather.Gatherer[int, int], answers chan<- got, keys ...int) {
	t.Helper()
	waiting := gather.Waiting(g)
	want := waiting
	for _, k := range keys {
		want++
		go func() {
			v, found, err := g.Get(t.Context(), k)
			answers <- got{k, v, found, err}
		}()
		check.Await(t, "it waits", func() bool { return gather.Waiting(g) >= want })
	}
}

func TestWhatComesMeanwhileIsAskedTogether(t *testing.T) {
	t.Parallel()
	h := newHeld()
	g := gather.New(h.ask, gather.Config{Most: 3, AtOnce: 1, Timeout: time.Minute})
	answers := make(chan got, 10)
	go func() {
		v, found, err := g.Get(t.Context(), 1)
		answers <- got{1, v, found, err}
	}()
	if keys := check.Receive(t, "the first question", h.asked); !slices.Equal(keys, []int{1}) {
		t.Fatalf("asked for %v", keys)
	}
	gets(t, g, answers, 2, -3, 1, 4, 5)
	for _, want := range [][]int{{-3, 1, 2}, {4, 5}} { // also the key that is asked for already: its answer may be of before
		h.leave <- nil
		if keys := check.Receive(t, "the next question", h.asked); !slices.Equal(keys, want) {
			t.Fatalf("asked for %v, want %v", keys, want)
		}
	}
	h.leave <- nil
	for range 6 {
		if a := check.Receive(t, "an answer", answers); a.err != nil || a.found != (a.key >= 0) || a.found && a.v != 2*a.key {
			t.Errorf("%+v", a)
		}
	}
}

func TestErrorsGoToThoseWhoAsked(t *testing.T) {
	t.Parallel()
	h := newHeld()
	g := gather.New(h.ask, gather.Config{Most: 10, AtOnce: 1, Timeout: time.Minute})
	answers := make(chan got, 10)
	go func() {
		v, found, err := g.Get(t.Context(), 1)
		answers <- got{1, v, found, err}
	}()
	check.Receive(t, "the question", h.asked)
	gets(t, g, answers, 2)
	boom := errors.New("boom")
	h.leave <- boom
	if a := check.Receive(t, "an answer", answers); a.key != 1 || !errors.Is(a.err, boom) {
		t.Errorf("%+v", a)
	}
	check.Receive(t, "the next question", h.asked)
	h.leave <- nil
	if a := check.Receive(t, "an answer", answers); a.key != 2 || a.err != nil || a.v != 4 {
		t.Errorf("%+v", a)
	}
	left := errors.New("left")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		_, _, err := g.Get(ctx, 3)
		answers <- got{key: 3, err: err}
	}()
	check.Receive(t, "the question", h.asked)
	cancel(left)
	if a := check.Receive(t, "the end of a caller", answers); !errors.Is(a.err, left) {
		t.Errorf("%+v", a)
	}
	h.leave <- nil
	panics := gather.New(func(context.Context, []int) (map[int]int, error) { panic("no") }, gather.Config{Most: 1, AtOnce: 1, Timeout: time.Minute})
	if _, _, err := panics.Get(t.Context(), 1); err == nil {
		t.Error("a panic is no error")
	}
}

func TestManyCallersAreAnsweredOnceEach(t *testing.T) {
	t.Parallel()
	var under, questions atomic.Int32
	g := gather.New(func(ctx context.Context, keys []int) (map[int]int, error) {
		if under.Add(1) > 2 {
			t.Error("more questions at once than allowed")
		}
		defer under.Add(-1)
		questions.Add(1)
		out := map[int]int{}
		for _, k := range keys {
			out[k] = k + 1
		}
		return out, ctx.Err()
	}, gather.Config{Most: 50, AtOnce: 2, Timeout: time.Minute})
	var wg sync.WaitGroup
	for c := range 64 {
		wg.Go(func() {
			for i := range 200 {
				if v, found, err := g.Get(t.Context(), c*1000+i); err != nil || !found || v != c*1000+i+1 {
					t.Errorf("%d, %t, %v", v, found, err)
				}
			}
		})
	}
	wg.Wait()
	if n := questions.Load(); n == 0 || n > 64*200 {
		t.Errorf("%d questions", n)
	}
}

// One question that is stuck holds up only those who asked with it.
func TestAnotherQuestionBesideOneThatIsStuck(t *testing.T) {
	t.Parallel()
	h := newHeld()
	answers := make(chan got, 2)
	for _, c := range []struct {
		patience time.Duration
		beside   bool
	}{{time.Hour, false}, {0, true}} {
		g := gather.New(h.ask, gather.Config{Most: 10, AtOnce: 2, Patience: c.patience, Timeout: time.Minute})
		for k := range 2 {
			go func() {
				v, found, err := g.Get(t.Context(), k)
				answers <- got{k, v, found, err}
			}()
			if k == 0 || c.beside {
				check.Receive(t, "a question", h.asked)
			}
		}
		if !c.beside {
			check.Await(t, "the second waits", func() bool { return gather.Waiting(g) == 1 })
			h.leave <- nil
			check.Receive(t, "the question after the answer", h.asked)
			h.leave <- nil
		} else {
			h.leave <- nil
			h.leave <- nil
		}
		for range 2 {
			if a := check.Receive(t, "an answer", answers); a.err != nil || a.v != 2*a.key {
				t.Errorf("%+v", a)
			}
		}
	}
}
