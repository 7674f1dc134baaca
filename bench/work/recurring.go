package work

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/bench/world"
)

// fires notes when each occurrence of each series started first.
type fires struct {
	first   time.Time // of the first series
	period  time.Duration
	each    int
	starts  []atomic.Int64 // nanoseconds since 1970, by series and occurrence
	started atomic.Int64
	again   atomic.Int64
	strange atomic.Int64 // starts of no occurrence that should be
	all     chan struct{}
}

// due is when an occurrence is to start: the series begin evenly over one period.
func (f *fires) due(series, occurrence int) time.Time {
	n := len(f.starts) / f.each
	return f.first.Add(f.period * time.Duration(series) / time.Duration(n)).Truncate(time.Microsecond).Add(f.period * time.Duration(occurrence))
}

func (f *fires) start(number uint64, scheduled time.Time) {
	now := time.Now().UnixNano()
	if number >= uint64(len(f.starts)/f.each) {
		return // of the warm-up
	}
	series := int(number) //nolint:gosec // small
	occurrence := int(scheduled.Sub(f.due(series, 0)) / f.period)
	if occurrence < 0 || occurrence >= f.each || !f.due(series, occurrence).Equal(scheduled) {
		f.strange.Add(1)
		return
	}
	if !f.starts[series*f.each+occurrence].CompareAndSwap(0, now) {
		f.again.Add(1)
		return
	}
	if f.started.Add(1) == int64(len(f.starts)) {
		close(f.all)
	}
}

// lateFires is how long after the last fire what is missing may still come.
const lateFires = 10 * time.Second

// recurring measures whether series fire when they should, each time and once.
func recurring(ctx context.Context, t *Task, c contend.Contender) (Values, error) {
	n, each := t.Sizes.Series, t.Sizes.Fires
	f := &fires{
		first: time.Now().Add(leadFor(n) + quiet).Truncate(time.Second), period: t.Sizes.Period, each: each, starts: make([]atomic.Int64, n*each),
		all: make(chan struct{}),
	}
	warm := newTally(warmBase, warmJobs)
	if err := warmUp(ctx, c, warm, func(number uint64, scheduled time.Time) { warm.start(number); f.start(number, scheduled) }); err != nil {
		return nil, err
	}
	err := submitAll(ctx, c, jobs(0, n, func(j *contend.Job) {
		j.Due, j.Every = f.due(int(j.Number), 0), f.period //nolint:gosec // small
		j.Until = j.Due.Add(f.period * time.Duration(each))
	}))
	if err != nil {
		return nil, err
	}
	if ahead := time.Until(f.first) - settleBefore; ahead < 0 {
		return nil, fmt.Errorf("submitting %d series took until %s before the first is due; %s are needed", n, time.Until(f.first), settleBefore)
	} else if err := world.Wait(ctx, ahead); err != nil {
		return nil, err
	}
	mark, err := t.Meter.Mark(ctx)
	if err != nil {
		return nil, err
	}
	last := f.due(n-1, each-1)
	select {
	case <-f.all:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(time.Until(last) + lateFires):
	}
	if err := world.Wait(ctx, max(0, time.Until(last))+settleBefore); err != nil { // the ends are stored by then
		return nil, err
	}
	u, err := t.Meter.Since(ctx, mark)
	if err != nil {
		return nil, err
	}
	return f.values(u, last), nil
}

func (f *fires) values(u world.Usage, last time.Time) Values {
	var lags []time.Duration
	for i := range f.starts {
		if at := f.starts[i].Load(); at != 0 {
			lags = append(lags, time.Unix(0, at).Sub(f.due(i/f.each, i%f.each)))
		}
	}
	v := Values{
		"fires": float64(len(lags)), "missing": float64(len(f.starts) - len(lags)), "again": float64(f.again.Load() + f.strange.Load()),
		"rate": float64(len(lags)) / last.Sub(f.first).Seconds(),
	}
	v.lags(lags)
	v.Used(u, max(1, len(lags)))
	return v
}
