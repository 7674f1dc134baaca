package fault

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestRetryGivesEachTryItsTimeAndStopsAtAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answer, began := errors.New("an answer"), time.Now()
		tries := 0
		err := Retry(t.Context(), 2*time.Second, time.Second, func(err error) bool { return !errors.Is(err, answer) }, func(ctx context.Context) error {
			if tries++; tries == 3 {
				return answer
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, answer) || tries != 3 || time.Since(began) != 6*time.Second {
			t.Errorf("%v after %d tries and %s", err, tries, time.Since(began))
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errors.New("too late"))
		defer cancel()
		err = Retry(ctx, time.Second, time.Second, nil, func(context.Context) error { return answer })
		if !errors.Is(err, answer) || !errors.Is(err, context.Cause(ctx)) || ctx.Err() == nil {
			t.Errorf("where nobody waits any more: %v", err)
		}
	})
}

func TestWhatWasDoneIsUndoneInAnyCase(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	failed := errors.New("failed")
	for _, tt := range []struct{ do, want error }{{nil, context.Canceled}, {failed, failed}} {
		undone := false
		err := Lasting(ctx, time.Hour, func() error { return tt.do }, func() error { undone = true; return nil })
		if !errors.Is(err, tt.want) || !undone {
			t.Errorf("%v, undone: %t; want %v", err, undone, tt.want)
		}
	}
}

func TestDrawsHaveBothEnds(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	var drawn []time.Duration
	for range 100 {
		drawn = append(drawn, Between(rng, 3, 5))
	}
	slices.Sort(drawn)
	if got := slices.Compact(drawn); !slices.Equal(got, []time.Duration{3, 4, 5}) || Between(rng, 7, 7) != 7 {
		t.Errorf("drawn: %v", got)
	}
}
