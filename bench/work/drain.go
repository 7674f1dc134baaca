package work

import (
	"context"
	"fmt"
	"time"

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/bench/world"
)

// drain measures how quickly jobs that are due are run to their stored end, from the first start on. The CPU time is that from the start of the workers.
func drain(ctx context.Context, t *Task, c contend.Contender) (Values, error) {
	n := t.Sizes.Drain
	if err := submitAll(ctx, c, jobs(0, n, func(*contend.Job) {})); err != nil {
		return nil, err
	}
	var b book
	tally := newTally(0, n)
	b.now.Store(tally)
	mark, err := t.Meter.Mark(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := c.Work(ctx, b.start); err != nil {
		return nil, err
	}
	end, err := finish(ctx, c, tally)
	if err != nil {
		return nil, err
	}
	u, err := t.Meter.Since(ctx, mark)
	if err != nil {
		return nil, err
	}
	first, last := tally.span()
	v := Values{
		"rate": float64(n) / end.Sub(first).Seconds(), "start_rate": float64(n) / last.Sub(first).Seconds(), "first": milliseconds(first.Sub(began)),
		"again": float64(tally.again.Load()),
	}
	v.Used(u, n)
	return v, nil
}

// leadFor is how long ahead of their time jobs are submitted: the slowest contender must be done with it well before, and River looks for what comes due only every 5 s.
func leadFor(n int) time.Duration { return 7*time.Second + time.Duration(n)*200*time.Microsecond }

// settleBefore is how long nothing is submitted before the first job is due.
const settleBefore = time.Second

// spread measures how late jobs start whose times are spread evenly.
func spread(ctx context.Context, t *Task, c contend.Contender) (Values, error) {
	n := t.Sizes.Spread
	apart := t.Sizes.Over / time.Duration(n)
	v, _, _, err := timed(ctx, t, c, n, func(first time.Time, j *contend.Job) {
		j.Due = first.Add(time.Duration(j.Number) * apart).Truncate(time.Microsecond) //nolint:gosec // small
	})
	return v, err
}

// instant measures how late jobs start that are all due together, and whether the urgent ones come first.
func instant(ctx context.Context, t *Task, c contend.Contender) (Values, error) {
	v, all, tally, err := timed(ctx, t, c, t.Sizes.Instant, func(first time.Time, j *contend.Job) {
		j.Due, j.Level = first, int(j.Number%contend.Levels) //nolint:gosec // small
	})
	if err != nil {
		return nil, err
	}
	first, last := tally.span()
	v["rate"] = float64(len(all)) / last.Sub(first).Seconds()
	var urgent time.Time // the last start of the most urgent
	for i := range all {
		if at := tally.at(i); all[i].Level == 0 && at.After(urgent) {
			urgent = at
		}
	}
	v["urgent_max"] = milliseconds(urgent.Sub(all[0].Due))
	before, others := 0, 0
	for i := range all {
		if all[i].Level > 0 {
			others++
			if tally.at(i).Before(urgent) {
				before++
			}
		}
	}
	v["overtaken"] = 100 * float64(before) / float64(max(1, others))
	return v, nil
}

// timed submits jobs ahead of their time to a contender at work and measures how late they start, from shortly before the first is due.
func timed(ctx context.Context, t *Task, c contend.Contender, n int, plan func(first time.Time, j *contend.Job)) (Values, []contend.Job, *tally, error) {
	var b book
	if err := startWork(ctx, c, &b); err != nil {
		return nil, nil, nil, err
	}
	first := time.Now().Add(leadFor(n)).Truncate(time.Second)
	all := jobs(0, n, func(j *contend.Job) { plan(first, j) })
	tally := newTally(0, n)
	b.now.Store(tally)
	if err := submitAll(ctx, c, all); err != nil {
		return nil, nil, nil, err
	}
	ahead := time.Until(first) - settleBefore
	if ahead < 0 {
		return nil, nil, nil, fmt.Errorf("submitting %d jobs took until %s before the first is due; %s are needed", n, time.Until(first), settleBefore)
	}
	if err := world.Wait(ctx, ahead); err != nil {
		return nil, nil, nil, err
	}
	mark, err := t.Meter.Mark(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	if _, err := finish(ctx, c, tally); err != nil {
		return nil, nil, nil, err
	}
	u, err := t.Meter.Since(ctx, mark)
	if err != nil {
		return nil, nil, nil, err
	}
	lags := make([]time.Duration, n)
	for i := range lags {
		lags[i] = tally.at(i).Sub(all[i].Due)
	}
	v := Values{"again": float64(tally.again.Load())}
	v.lags(lags)
	v.Used(u, n)
	return v, all, tally, nil
}
