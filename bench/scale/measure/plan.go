package measure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// mark hands all rows out, in batches as they fall due, and times small ones and full ones.
func (b *bench) mark(ctx context.Context) error {
	var small, full []float64
	rows := b.rows
	for id := int64(1); len(rows) > 0; id++ {
		n := min(planBatch, len(rows))
		if id%4 == 0 {
			n = 1
		}
		m := store.Mark{ID: id, Generation: 1, Items: make([]store.MarkItem, n)}
		for i := range m.Items {
			t := rows[i]
			m.Items[i] = store.MarkItem{Key: t.TimerKey, Version: t.Version, Dispatch: t.Dispatch, JobID: t.JobID, ScheduledAt: t.ScheduledAt}
		}
		began := time.Now()
		results, err := b.store.MarkDispatched(ctx, m)
		if err != nil {
			return err
		}
		took := float64(time.Since(began).Nanoseconds()) / 1000
		switch n {
		case 1:
			small = append(small, took)
		case planBatch:
			full = append(full, took)
		}
		if slices.Contains(results, store.MarkStale) {
			return fmt.Errorf("batch %d: a row was not marked", id)
		}
		rows = rows[n:]
	}
	if len(small) == 0 || len(full) == 0 {
		return fmt.Errorf("%d jobs are too few; %d are needed", b.jobs, 4*planBatch)
	}
	b.facts.Costs.Mark, b.facts.Costs.MarkRow = line(1, quick(small), planBatch, quick(full))
	return nil
}

// record ends all runs.
func (b *bench) record(ctx context.Context) error {
	for rows := b.rows; len(rows) > 0; {
		n := min(planBatch, len(rows))
		reports := make([]store.Report, n)
		for i := range reports {
			t := rows[i]
			reports[i] = store.Report{Kind: store.ReportEnd, Key: t.TimerKey, JobID: t.JobID, Dispatch: t.Dispatch + 1}
		}
		results, err := b.store.Record(ctx, reports, func(_ int, t *store.Timer, _ *job.Job, now time.Time) store.Change {
			r := t.History(job.StepSucceeded, true, "ok", now)
			r.Executor, r.StartedAt = "worker-host-1a2b3c4d5e6f", now
			return store.Change{Runs: []store.RunRow{r}}
		})
		if err != nil {
			return err
		}
		for i := range results {
			if !results[i].Applied {
				return fmt.Errorf("report %d of %d was not applied", i, n)
			}
		}
		rows = rows[n:]
	}
	return b.size(ctx, "runs")
}

// purge removes all that is left, as the recorder does when its time is over.
func (b *bench) purge(ctx context.Context) error {
	for {
		n, err := b.store.Purge(ctx, b.due.Add(time.Hour), purgeBatch, nil)
		if err != nil || n < purgeBatch {
			return err
		}
	}
}
