package work

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/bench/world"
)

const (
	readRate, besideRate = 10_000, 1000
	readClients          = 64
)

// reading measures reads of states at a fixed rate while jobs are submitted and run. What the clients cannot keep up with shows in the rate.
func reading(ctx context.Context, t *Task, c contend.Contender) (Values, error) {
	reader, ok := c.(contend.Reader)
	if !ok {
		return nil, errors.New("it cannot be read")
	}
	var b book
	if err := startWork(ctx, c, &b); err != nil {
		return nil, err
	}
	mark, err := t.Meter.Mark(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	var beside Values
	var reads []time.Duration
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		beside, _, err = hold(gctx, t, c, &b, 1<<32, besideRate)
		return err
	})
	g.Go(func() (err error) {
		reads, err = readFor(gctx, reader, t.Sizes.Hold)
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	gone := time.Since(began).Seconds()
	u, err := t.Meter.Since(ctx, mark)
	if err != nil {
		return nil, err
	}
	sorted := sortedCopy(reads)
	v := Values{
		"rate": float64(len(reads)) / t.Sizes.Hold.Seconds(), "jobs_rate": besideRate, "core": 100 * u.CPU.Seconds() / gone, "memory": float64(u.Memory) / (1 << 20),
		"read_p50": milliseconds(quantile(sorted, .5)), "read_p99": milliseconds(quantile(sorted, .99)), "read_max": milliseconds(quantile(sorted, 1)),
		"p50": beside["p50"], "p99": beside["p99"], "max": beside["max"],
	}
	return v, nil
}

// readFor reads for a time and returns how long each read took.
func readFor(ctx context.Context, r contend.Reader, d time.Duration) ([]time.Duration, error) {
	began := time.Now()
	took := make([]time.Duration, int(readRate*d.Seconds()))
	var next, done atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range readClients {
		g.Go(func() error {
			for time.Since(began) < d {
				i := int(next.Add(1)) - 1
				if i >= len(took) {
					return nil
				}
				if ahead := time.Until(began.Add(time.Duration(i) * time.Second / readRate)); ahead > 0 {
					if err := world.Wait(ctx, ahead); err != nil {
						return err
					}
				}
				at := time.Now()
				if err := r.Read(ctx, i); err != nil {
					return err
				}
				took[done.Add(1)-1] = time.Since(at)
			}
			return nil
		})
	}
	err := g.Wait()
	return took[:done.Load()], err
}
