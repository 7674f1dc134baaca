package work

import (
	"context"
	"fmt"
	"time"

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/bench/world"
)

// quiet is how long an idle contender is left alone before it is watched: what the submits left behind, such as garbage, is not idleness.
const quiet = 5 * time.Second

// counted is how long PostgreSQL's processes may keep to themselves what they have written. A vacuum before that does not keep its launcher from making another one,
// which is no work of the contender's.
const counted = 11 * time.Second

// idle measures what a contender costs that has nothing to do before tomorrow. One that is a process of its own has workers there; none are started here.
func idle(ctx context.Context, t *Task, c contend.Contender) (Values, error) {
	n := t.Sizes.Idle
	if !t.Kind.SubmitsOnly {
		var b book
		if err := startWork(ctx, c, &b); err != nil {
			return nil, err
		}
	}
	due := time.Now().Add(later)
	began := time.Now()
	err := submitAll(ctx, c, jobs(0, n, func(j *contend.Job) { j.Due = due.Add(time.Duration(j.Number) * time.Millisecond) })) //nolint:gosec // small
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	// What the submits left behind is not idleness.
	if dsn := t.Env.PostgresDSN; dsn != "" {
		if err := world.Wait(ctx, counted); err != nil {
			return nil, err
		}
		if err := world.Tidy(ctx, dsn); err != nil {
			return nil, err
		}
	}
	if err := world.Wait(ctx, quiet); err != nil {
		return nil, err
	}
	mark, err := t.Meter.Mark(ctx)
	if err != nil {
		return nil, err
	}
	began = time.Now()
	if err := world.Wait(ctx, t.Sizes.Watch); err != nil {
		return nil, err
	}
	u, err := t.Meter.Since(ctx, mark)
	if err != nil {
		return nil, err
	}
	gone := time.Since(began).Seconds()
	v := Values{
		"rate": float64(n) / took.Seconds(), "core": 100 * u.CPU.Seconds() / gone, "database_core": 100 * u.DatabaseCPU.Seconds() / gone,
		"memory": float64(u.Memory) / (1 << 20), "wal_rate": float64(u.WAL) / gone,
	}
	if t.Env.PostgresDSN != "" {
		v["transactions"] = float64(u.Transactions) / gone
	}
	// Where the contender is this process, so is its client.
	v["server_memory"] = float64(u.Memory-u.DatabaseMemory) / (1 << 20)
	if u.ChildMemory > 0 {
		v["server_memory"] = float64(u.ChildMemory) / (1 << 20)
	}
	return v, nil
}

// lonePause is how long after the start of a lone job the next one is submitted: long enough for everything to be asleep again.
const lonePause = 20 * time.Millisecond

// lone measures from the submit of a job to its start, where nothing else goes on.
func lone(ctx context.Context, t *Task, c contend.Contender) (Values, error) {
	var b book
	if err := startWork(ctx, c, &b); err != nil {
		return nil, err
	}
	lags := make([]time.Duration, t.Sizes.Lone)
	for i := range lags {
		tally := newTally(uint64(i), 1) //nolint:gosec // not negative
		b.now.Store(tally)
		began := time.Now()
		if err := c.Submit(ctx, contend.Job{Number: uint64(i), Level: contend.Ordinary}); err != nil { //nolint:gosec // not negative
			return nil, err
		}
		select {
		case <-tally.all:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(stuckAfter):
			return nil, fmt.Errorf("lone job %d did not start within %s", i, stuckAfter)
		}
		lags[i] = tally.at(0).Sub(began)
		if err := world.Wait(ctx, lonePause); err != nil {
			return nil, err
		}
	}
	v := Values{}
	v.lags(lags)
	return v, nil
}
