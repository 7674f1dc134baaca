package work

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/bench/world"
)

const (
	// ladderFirst and ladderStep make the rates that are tried: the same for all contenders.
	ladderFirst, ladderStep = 500, 1.1
	// maxOutstanding bounds what has been submitted and has not started while the first rate is looked for.
	maxOutstanding = 2000
	// A rate holds if the clients kept it and everything has ended this long after the last submit.
	keptWithin, endedWithin = 0.03, time.Second
)

// down are the rungs that are gone down after each that did not hold: a little at first, then more, so that an end comes.
var down = [...]int{1, 1, 1, 2, 2, 4, 4, 8}

// ladder is the highest of the fixed rates that is not above the given one.
func ladder(rate float64) float64 {
	if rate < ladderFirst {
		return rate // a contender, or a machine, below all of them
	}
	return ladderFirst * math.Pow(ladderStep, math.Floor(math.Log(rate/ladderFirst)/math.Log(ladderStep)))
}

// below is some rungs further down.
func below(rate float64, rungs int) float64 {
	return ladder(rate / math.Pow(ladderStep, float64(rungs)) * 1.001)
}

// together measures submits and runs at the highest rate that holds: it looks how much goes through with a bound on what is outstanding, and goes down the
// ladder from there.
func together(ctx context.Context, t *Task, c contend.Contender) (Values, error) {
	var b book
	if err := startWork(ctx, c, &b); err != nil {
		return nil, err
	}
	through, next, err := probe(ctx, c, &b, t.Sizes.Probe)
	if err != nil {
		return nil, err
	}
	if through == 0 {
		return nil, fmt.Errorf("nothing went through in %s", t.Sizes.Probe)
	}
	rate := ladder(through)
	for _, rungs := range down {
		v, held, err := hold(ctx, t, c, &b, next, rate)
		if err != nil {
			return nil, err
		}
		if held {
			v["probe"] = through
			return v, nil
		}
		next += 1 << 32
		rate = below(rate, rungs)
	}
	return nil, fmt.Errorf("no rate held: %.0f/s went through in the search, and none of %d rungs down to %.0f/s held", through, len(down), rate)
}

// probe returns the rate that goes through, and the next number for jobs.
func probe(ctx context.Context, c contend.Contender, b *book, d time.Duration) (float64, uint64, error) {
	const most = 10_000_000
	var submitted atomic.Int64
	tally := &tally{base: 0, starts: make([]atomic.Int64, most), all: make(chan struct{})}
	b.now.Store(tally)
	began := time.Now()
	end := began.Add(d)
	g, gctx := errgroup.WithContext(ctx)
	for range clients {
		g.Go(func() error {
			for time.Now().Before(end) {
				if submitted.Load()-tally.started.Load() > maxOutstanding {
					if err := world.Wait(gctx, time.Millisecond); err != nil {
						return err
					}
					continue
				}
				i := submitted.Add(1) - 1
				if i >= most {
					return errors.New("more jobs than the search has room for")
				}
				if err := c.Submit(gctx, contend.Job{Number: uint64(i), Level: contend.Ordinary}); err != nil { //nolint:gosec // not negative
					return err
				}
			}
			return nil
		})
	}
	// The first part does not count: everything is empty then.
	from := d * 3 / 10
	if err := world.Wait(ctx, from); err != nil {
		return 0, 0, errors.Join(err, g.Wait())
	}
	before := tally.started.Load()
	if err := g.Wait(); err != nil {
		return 0, 0, err
	}
	rate := float64(tally.started.Load()-before) / time.Since(began.Add(from)).Seconds()
	for tally.started.Load() < submitted.Load() {
		if time.Since(end) > stuckAfter {
			return 0, 0, fmt.Errorf("%d of %d jobs started", tally.started.Load(), submitted.Load())
		}
		if err := world.Wait(ctx, doneEvery); err != nil {
			return 0, 0, err
		}
	}
	_, err := settle(ctx, c)
	return rate, 1 << 32, err
}

// hold submits at a rate and tells whether it held.
func hold(ctx context.Context, t *Task, c contend.Contender, b *book, base uint64, rate float64) (Values, bool, error) {
	n := max(1, int(rate*t.Sizes.Hold.Seconds()))
	tally := newTally(base, n)
	b.now.Store(tally)
	asked := make([]time.Time, n)
	mark, err := t.Meter.Mark(ctx)
	if err != nil {
		return nil, false, err
	}
	began := time.Now()
	took := make([]time.Duration, n)
	_, err = by(ctx, clients, n, func(ctx context.Context, i int) error {
		at := began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		if d := time.Until(at); d > 0 {
			if err := world.Wait(ctx, d); err != nil {
				return err
			}
		}
		asked[i] = time.Now()
		err := c.Submit(ctx, contend.Job{Number: base + uint64(i), Level: contend.Ordinary}) //nolint:gosec // not negative
		took[i] = time.Since(asked[i])
		return err
	})
	if err != nil {
		return nil, false, err
	}
	submitted := time.Now()
	end, err := finish(ctx, c, tally)
	if err != nil {
		return nil, false, err
	}
	u, err := t.Meter.Since(ctx, mark)
	if err != nil {
		return nil, false, err
	}
	kept := submitted.Sub(began).Seconds() <= t.Sizes.Hold.Seconds()*(1+keptWithin)+.05
	lags := make([]time.Duration, n)
	for i := range lags {
		lags[i] = tally.at(i).Sub(asked[i])
	}
	v := Values{"rate": rate, "submit_p50": milliseconds(quantile(sortedCopy(took), .5)), "again": float64(tally.again.Load())}
	v.lags(lags)
	v.Used(u, n)
	return v, kept && end.Sub(submitted) <= endedWithin, nil
}
