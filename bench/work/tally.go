package work

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/bench/world"
)

// tally notes when each of a number of jobs started first. Jobs have numbers from base on; others are not looked at.
type tally struct {
	base    uint64
	starts  []atomic.Int64 // nanoseconds since 1970, 0 for not yet
	started atomic.Int64
	again   atomic.Int64 // starts of jobs that had started before
	all     chan struct{}
}

func newTally(base uint64, n int) *tally {
	return &tally{base: base, starts: make([]atomic.Int64, n), all: make(chan struct{})}
}

// start is for handlers.
func (t *tally) start(number uint64) {
	now := time.Now().UnixNano()
	i := number - t.base
	if number < t.base || i >= uint64(len(t.starts)) {
		return
	}
	if !t.starts[i].CompareAndSwap(0, now) {
		t.again.Add(1)
		return
	}
	if t.started.Add(1) == int64(len(t.starts)) {
		close(t.all)
	}
}

// at is when a job started.
func (t *tally) at(i int) time.Time { return time.Unix(0, t.starts[i].Load()) }

// span is the first and the last start.
func (t *tally) span() (first, last time.Time) {
	for i := range t.starts {
		at := t.at(i)
		if i == 0 || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return first, last
}

// book lets the tally of the moment have what starts: a contender takes one function for its whole life.
type book struct{ now atomic.Pointer[tally] }

func (b *book) start(number uint64, _ time.Time) {
	if t := b.now.Load(); t != nil {
		t.start(number)
	}
}

const (
	doneEvery = 5 * time.Millisecond
	// stuckAfter is how long nothing may start until a measure is given up.
	stuckAfter = 60 * time.Second
)

// finish waits until all of a tally have started and the contender has stored the end of everything, and returns when that was.
func finish(ctx context.Context, c contend.Contender, t *tally) (time.Time, error) {
	for seen := int64(-1); ; {
		limit := time.NewTimer(stuckAfter)
		select {
		case <-t.all:
			limit.Stop()
			return settle(ctx, c)
		case <-ctx.Done():
			limit.Stop()
			return time.Time{}, fmt.Errorf("%d of %d jobs started: %w", t.started.Load(), len(t.starts), context.Cause(ctx))
		case <-limit.C:
			if now := t.started.Load(); now != seen {
				seen = now
				continue
			}
			return time.Time{}, fmt.Errorf("%d of %d jobs started, and none more for %s", t.started.Load(), len(t.starts), stuckAfter)
		}
	}
}

// settle waits until the contender has stored the end of everything, and returns when that was.
func settle(ctx context.Context, c contend.Contender) (time.Time, error) {
	limit := time.Now().Add(stuckAfter)
	for {
		done, err := c.Done(ctx)
		now := time.Now()
		switch {
		case err != nil:
			return now, err
		case done:
			return now, nil
		case now.After(limit):
			return now, fmt.Errorf("all jobs started, but not all ends are stored %s later", stuckAfter)
		}
		if err := world.Wait(ctx, doneEvery); err != nil {
			return now, err
		}
	}
}

// warmBase is where the numbers of jobs begin that only warm up.
const (
	warmBase = 1 << 40
	warmJobs = 100
)

// startWork starts the contender's workers and runs a few jobs, so that what is made on first use is there.
func startWork(ctx context.Context, c contend.Contender, b *book) error {
	t := newTally(warmBase, warmJobs)
	b.now.Store(t)
	return warmUp(ctx, c, t, b.start)
}

// warmUp does that with a tally that the function for starts fills.
func warmUp(ctx context.Context, c contend.Contender, t *tally, started contend.Started) error {
	if err := c.Work(ctx, started); err != nil {
		return err
	}
	for i := range warmJobs {
		if err := c.Submit(ctx, contend.Job{Number: warmBase + uint64(i), Level: contend.Ordinary}); err != nil { //nolint:gosec // not negative
			return err
		}
	}
	select {
	case <-t.all:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(stuckAfter):
		return fmt.Errorf("%d of %d jobs of the warm-up started within %s", t.started.Load(), warmJobs, stuckAfter)
	}
}
