package planner

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

const (
	sweepEvery = 10 * time.Minute
	sweepPage  = 500
)

// sweep proves now and then that each active series of the owned shards has its next occurrence, and makes it where not.
func (p *Planner) sweep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.life.Done():
			return
		case <-tick.C:
		}
		shards, ok := ask(p, func() []int32 {
			var out []int32
			for id := range p.owned {
				out = append(out, id)
			}
			return out
		})
		if !ok {
			return
		}
		for _, s := range shards {
			if err := p.sweepShard(p.life, s); err != nil && p.life.Err() == nil {
				p.log.Warn("cannot sweep a shard", "shard", s, "error", err)
			}
		}
	}
}

func (p *Planner) sweepShard(ctx context.Context, shard int32) error {
	var after uuid.UUID
	for {
		ids, err := p.cfg.Store.BrokenSeries(ctx, shard, time.Time{}, after, sweepPage)
		if err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			if err := p.mend(ctx, id); err != nil {
				return err
			}
		}
		after = ids[len(ids)-1]
	}
}

// mend makes the next occurrence of a series that has none: the one after the last that history knows.
func (p *Planner) mend(ctx context.Context, id uuid.UUID) error {
	namespace, err := p.cfg.Store.JobNamespace(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	last, err := p.lastNominal(ctx, id)
	if err != nil {
		return err
	}
	mended := false
	_, _, err = p.cfg.Store.ChangeJob(ctx, namespace, id, func(j *job.Job, timers []store.Timer, now time.Time) (store.Change, error) {
		c := mendSeries(j, timers, last, now)
		mended = len(c.Put) > 0
		return c, nil
	})
	if mended {
		p.cfg.Metrics.mended.Inc()
		p.log.Error("a series had no next occurrence; it is made", "job", id, "after", last)
	}
	return err
}

func (p *Planner) lastNominal(ctx context.Context, id uuid.UUID) (time.Time, error) {
	runs, err := p.cfg.Store.LastRuns(ctx, []uuid.UUID{id})
	if err != nil {
		return time.Time{}, err
	}
	last := runs[id].ScheduledAt
	skips, err := p.cfg.Store.ListSkips(ctx, id, time.Time{}, 1)
	if err != nil {
		return time.Time{}, err
	}
	if len(skips) > 0 && skips[0].ThroughAt.After(last) {
		last = skips[0].ThroughAt
	}
	return last, nil
}

// mendSeries is the pure part: nothing for a series that has a run of its schedule to come, or that has come to its end.
func mendSeries(j *job.Job, timers []store.Timer, last, now time.Time) store.Change {
	if j.State != job.Active || !j.Spec.Recurring() {
		return store.Change{}
	}
	for i := range timers {
		if timers[i].Origin == job.FromSchedule {
			return store.Change{}
		}
	}
	if last.Before(j.UpdatedAt) {
		last = j.UpdatedAt
	}
	occ, ok := j.Spec.Schedule.Next(last)
	if !ok {
		done := *j
		done.State, done.UpdatedAt = job.Completed, now
		return store.Change{Job: &done}
	}
	return store.Change{Put: []store.Timer{store.NewTimer(j, occ, now)}}
}
