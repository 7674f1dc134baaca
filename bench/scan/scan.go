// Package scan measures what a planner's look for due rows costs while ever more rows of later lie in the same table, and after many rows before its place
// have been deleted. It calls the product's stores, and fills their tables by SQL of its own. cmd/bench calls it.
package scan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/bench/work"
	"github.com/waterclock-io/waterclock/bench/world"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/store"
)

// Workload is the name under which this is measured, Title what it is.
const (
	Workload = "W9"
	Title    = "the look for due rows, with 10⁴ … timers of later and after deletions"
)

const (
	dueRows  = 512 // that each read returns
	reads    = 100
	perShard = 62     // about the planner's page, divided by its shards
	first    = 10_000 // the smallest number of timers

	// As the planner's: how far ahead and back it reads each second, and how far once every so many reads.
	ahead        = 250 * time.Millisecond
	glance       = 5 * time.Second
	lookBack     = 70 * time.Second
	lookBackEach = 10
)

// Store is a store that can be measured.
type Store struct {
	Name     string // of the contender
	Postgres bool

	open func(ctx context.Context, env contend.Env) (filler, error)
}

// filler is a store with a way to fill it.
type filler struct {
	store.Store
	// fill adds rows due evenly between two times; empty deletes rows due before a time.
	fill  func(ctx context.Context, n int, from, to time.Time) error
	empty func(ctx context.Context, before time.Time) error
	// history adds runs of one job, a second apart from a time on.
	history func(ctx context.Context, job uuid.UUID, runs int, from time.Time) error
	close   func() error
}

// Stores are all of them.
var Stores = []Store{{"waterclock-postgres", true, openPostgres}, {"waterclock-sqlite", false, openSQLite}}

// Find returns the store of a name.
func Find(name string) (Store, error) {
	for _, s := range Stores {
		if s.Name == name {
			return s, nil
		}
	}
	return Store{}, fmt.Errorf("%s of %q: no such store", Workload, name)
}

// Do measures once, up to a number of timers, a power of ten times 10⁴; a tenth of them are deleted.
func (s *Store) Do(ctx context.Context, env contend.Env, meter *world.Meter, most int) (_ work.Values, err error) {
	f, err := s.open(ctx, env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	base := time.Now().Truncate(time.Second)
	if err := f.due(ctx, base); err != nil {
		return nil, err
	}
	v := work.Values{}
	there := 0
	for n := first; n <= most; n *= 10 {
		if err := f.fill(ctx, n-there, base.Add(time.Hour), base.Add(25*time.Hour)); err != nil {
			return nil, err
		}
		there = n
		if err := f.look(ctx, meter, base, v, fmt.Sprint(n)); err != nil {
			return nil, err
		}
		v["growth"] = v[fmt.Sprint(n)] / v[fmt.Sprint(first)]
	}
	if err := f.fill(ctx, most/10, base.Add(-lookBack), base.Add(-time.Millisecond)); err != nil {
		return nil, err
	}
	if err := f.empty(ctx, base); err != nil {
		return nil, err
	}
	if err := f.look(ctx, meter, base, v, "deleted"); err != nil {
		return nil, err
	}
	v["deleted_growth"] = v["deleted"] / v[fmt.Sprint(first)]
	return v, nil
}

// due stores the rows that reads return, spread over the shards.
func (f *filler) due(ctx context.Context, at time.Time) error {
	subs := make([]store.Submission, dueRows)
	for i := range subs {
		id := f.Traits().NewJobID()
		j := &job.Job{
			ID: id, Namespace: job.DefaultNamespace, Shard: job.ShardOf(id, f.Traits().Shards), Version: 1, State: job.Active, Kind: "bench", Queue: "bench",
			QueueNamespace: job.DefaultNamespace, Priority: job.Normal, Spec: job.Spec{Schedule: schedule.Schedule{Kind: schedule.Once, At: at}},
			Payload: []byte("12345678"), BodyHash: make([]byte, 32), DueAt: at, CreatedAt: at, UpdatedAt: at,
		}
		t := store.NewTimer(j, schedule.Occurrence{At: at}, at)
		subs[i] = store.Submission{Job: j, Timer: &t}
	}
	results, err := f.Submit(ctx, subs)
	for i := range results {
		err = errors.Join(err, results[i].Err)
	}
	return err
}

// look reads as a planner does each second, many times, and notes the milliseconds and the CPU milliseconds of one read. Of ten reads one goes back for more than a
// minute; the time is the mean of ten, each the median of its kind.
func (f *filler) look(ctx context.Context, meter *world.Meter, base time.Time, v work.Values, name string) error {
	from := make([]store.ShardCursor, f.Traits().Shards)
	limit := dueRows
	if len(from) > 1 {
		limit = perShard
	}
	mark, err := meter.Mark(ctx)
	if err != nil {
		return err
	}
	var glances, looksBack []time.Duration
	for i := range reads {
		back, took := glance, &glances
		if i%lookBackEach == 0 {
			back, took = lookBack, &looksBack
		}
		for shard := range from {
			from[shard] = store.ShardCursor{Shard: int32(shard), From: store.TimerKey{Shard: int32(shard), DueAt: base.Add(-back)}} //nolint:gosec // few
		}
		began := time.Now()
		rows, err := f.ReadDue(ctx, from, base.Add(ahead), limit)
		if err != nil {
			return err
		}
		if len(rows) != dueRows {
			return fmt.Errorf("%d rows were read, %d are due", len(rows), dueRows)
		}
		*took = append(*took, time.Since(began))
	}
	u, err := meter.Since(ctx, mark)
	if err != nil {
		return err
	}
	v[name+"_first"] = looksBack[0].Seconds() * 1000
	slices.Sort(glances)
	slices.Sort(looksBack)
	v[name] = (looksBack[len(looksBack)/2] + (lookBackEach-1)*glances[len(glances)/2]).Seconds() * 1000 / lookBackEach
	v[name+"_cpu"] = u.CPU.Seconds() * 1000 / reads
	return nil
}
