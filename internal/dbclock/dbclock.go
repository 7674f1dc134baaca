// Package dbclock keeps an estimate of database time, which decides what is due, so that nobody asks the database for each decision.
//
// The estimate is never ahead of the database: it is an answer of the database plus the time that has gone by since the answer arrived, on the monotonic
// clock of this process. It lags by at most the way of the answer. So what it calls due is due.
package dbclock

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Source is what gives the time of the database.
type Source interface {
	Now(ctx context.Context) (time.Time, error)
}

// every is how often the database is asked: a clock that is set on the database's machine is noticed within this time.
const every = time.Second

type sample struct {
	db   time.Time
	here time.Time // monotonic
}

// Clock estimates database time. Start must have succeeded before Now is called.
type Clock struct {
	src  Source
	log  *slog.Logger
	last atomic.Pointer[sample]
	stop context.CancelFunc
	done sync.WaitGroup
}

// New returns a clock that is not running.
func New(src Source, log *slog.Logger) *Clock { return &Clock{src: src, log: log} }

// Start takes the first sample and keeps sampling until Stop.
func (c *Clock) Start(ctx context.Context) error {
	if err := c.sample(ctx); err != nil {
		return fmt.Errorf("read database time: %w", err)
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	c.done.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		failed := false
		for {
			select {
			case <-run.Done():
				return
			case <-tick.C:
			}
			err := c.sample(run)
			if err != nil && run.Err() == nil && !failed {
				c.log.Warn("cannot read database time; going on by this machine's clock", "error", err)
			}
			failed = err != nil
		}
	})
	return nil
}

// Stop ends sampling. It may be called more than once, and without Start.
func (c *Clock) Stop() {
	if c.stop != nil {
		c.stop()
	}
	c.done.Wait()
}

// Now returns a lower bound of the time of the database, in UTC, in whole microseconds.
func (c *Clock) Now() time.Time {
	s := c.last.Load()
	return s.db.Add(time.Since(s.here)).Truncate(time.Microsecond)
}

func (c *Clock) sample(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	db, err := c.src.Now(ctx)
	if err != nil {
		return err
	}
	c.last.Store(&sample{db.UTC(), time.Now()})
	return nil
}
