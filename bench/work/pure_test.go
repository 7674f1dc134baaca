package work

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock-io/waterclock/bench/world"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	all := make([]time.Duration, 100)
	for i := range all {
		all[99-i] = time.Duration(i + 1)
	}
	sorted := sortedCopy(all)
	for part, want := range map[float64]time.Duration{0: 1, .5: 50, .95: 95, .99: 99, 1: 100} {
		if got := quantile(sorted, part); got != want {
			t.Errorf("quantile %v is %d, want %d", part, got, want)
		}
	}
	if got := quantile(nil, .5); got != 0 {
		t.Errorf("quantile of nothing is %d", got)
	}
	if all[0] != 100 {
		t.Error("the argument was sorted itself")
	}
}

func TestLadder(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{500, 777, 5300, 48_000} {
		got := ladder(rate)
		if got > rate*1.000001 || got*ladderStep < rate*.999999 {
			t.Errorf("the rung for %v is %v", rate, got)
		}
		if under := below(got, 1); math.Abs(under*ladderStep-got) > 1 && got > ladderFirst {
			t.Errorf("the rung below %v is %v", got, under)
		}
	}
	if got := ladder(20); got != 20 {
		t.Errorf("below the ladder: %v", got)
	}
}

func TestLagsAndUse(t *testing.T) {
	t.Parallel()
	v := Values{}
	v.lags([]time.Duration{-2 * time.Millisecond, 3 * time.Millisecond, -time.Millisecond, 8 * time.Millisecond})
	v.Used(world.Usage{CPU: 2 * time.Second, DatabaseCPU: time.Second, Written: 4000, WAL: 8000, Memory: 3 << 20, DatabaseMemory: 1 << 20}, 4)
	want := Values{
		"min": -2, "p50": -1, "p95": 8, "p99": 8, "max": 8, "early": 2,
		"cpu": 500, "database_cpu": 250, "written": 1000, "wal": 2000, "memory": 3, "database_memory": 1, "jobs": 4,
	}
	if diff := cmp.Diff(want, v); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTally(t *testing.T) {
	t.Parallel()
	tally := newTally(1000, 50)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range uint64(60) { // ten of them are not of this tally
				tally.start(1000 + i)
			}
			tally.start(999)
		})
	}
	wg.Wait()
	<-tally.all
	if tally.started.Load() != 50 || tally.again.Load() != 150 {
		t.Errorf("%d started, %d again", tally.started.Load(), tally.again.Load())
	}
	first, last := tally.span()
	for i := range 50 {
		if at := tally.at(i); at.Before(first) || at.After(last) {
			t.Errorf("job %d started at %s, outside %s to %s", i, at, first, last)
		}
	}
}

func TestByDoesEachOnce(t *testing.T) {
	t.Parallel()
	var done [100]atomic.Int32
	took, err := by(t.Context(), 7, len(done), func(_ context.Context, i int) error { done[i].Add(1); return nil })
	if err != nil || len(took) != len(done) {
		t.Fatal(len(took), err)
	}
	for i := range done {
		if n := done[i].Load(); n != 1 {
			t.Errorf("%d was done %d times", i, n)
		}
	}
	wrong := errors.New("wrong")
	if _, err := by(t.Context(), 7, 100, func(_ context.Context, i int) error {
		if i == 50 {
			return wrong
		}
		return nil
	}); !errors.Is(err, wrong) {
		t.Errorf("error %v, want %v", err, wrong)
	}
}
