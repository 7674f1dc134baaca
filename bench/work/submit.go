package work

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waterclock-io/waterclock/bench/contend"
)

const (
	clients      = 64
	batchClients = 4
	// later is when jobs are due that are only stored.
	later = 24 * time.Hour
)

// singles measures how quickly single jobs of tomorrow are stored for many clients.
func singles(ctx context.Context, t *Task, c contend.Contender) (Values, error) {
	return stored(ctx, t, t.Sizes.Singles, func(ctx context.Context) ([]time.Duration, error) {
		due := time.Now().Add(later)
		return by(ctx, clients, t.Sizes.Singles, func(ctx context.Context, i int) error {
			return c.Submit(ctx, contend.Job{Number: uint64(i), Due: due.Add(time.Duration(i) * time.Millisecond), Level: contend.Ordinary}) //nolint:gosec // not negative
		})
	})
}

// batches measures the same for batches.
func batches(ctx context.Context, t *Task, c contend.Contender) (Values, error) {
	return stored(ctx, t, t.Sizes.Batches*contend.BatchSize, func(ctx context.Context) ([]time.Duration, error) {
		due := time.Now().Add(later)
		return by(ctx, batchClients, t.Sizes.Batches, func(ctx context.Context, i int) error {
			return c.SubmitMany(ctx, jobs(i*contend.BatchSize, contend.BatchSize, func(j *contend.Job) {
				j.Due = due.Add(time.Duration(j.Number) * time.Millisecond) //nolint:gosec // small
			}))
		})
	})
}

// stored measures a function that submits.
func stored(ctx context.Context, t *Task, n int, submit func(context.Context) ([]time.Duration, error)) (Values, error) {
	mark, err := t.Meter.Mark(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	took, err := submit(ctx)
	if err != nil {
		return nil, err
	}
	gone := time.Since(began)
	u, err := t.Meter.Since(ctx, mark)
	if err != nil {
		return nil, err
	}
	v := Values{"rate": float64(n) / gone.Seconds()}
	v.lags(took)
	v.Used(u, n)
	return v, nil
}

// by has several clients do a number of things, each the next one as soon as it has done one, and returns how long each took.
func by(ctx context.Context, clients, n int, do func(ctx context.Context, i int) error) ([]time.Duration, error) {
	took := make([]time.Duration, n)
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range clients {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				began := time.Now()
				if err := do(ctx, i); err != nil {
					return err
				}
				took[i] = time.Since(began)
			}
		})
	}
	return took, g.Wait()
}

// jobs makes n jobs with numbers from first on.
func jobs(first, n int, change func(*contend.Job)) []contend.Job {
	out := make([]contend.Job, n)
	for i := range out {
		out[i] = contend.Job{Number: uint64(first + i), Level: contend.Ordinary} //nolint:gosec // not negative
		change(&out[i])
	}
	return out
}

// submitAll stores jobs as quickly as may be; it is not measured.
func submitAll(ctx context.Context, c contend.Contender, all []contend.Job) error {
	pieces := (len(all) + contend.BatchSize - 1) / contend.BatchSize
	_, err := by(ctx, batchClients, pieces, func(ctx context.Context, i int) error {
		return c.SubmitMany(ctx, all[i*contend.BatchSize:min(len(all), (i+1)*contend.BatchSize)])
	})
	return err
}
