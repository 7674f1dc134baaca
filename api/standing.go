package api

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/internal/gather"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// standing is a job, its live rows, and its last ended run where it has no live row. Callers that asked together share it, and do not change it.
type standing struct {
	job    *job.Job // without its payload
	timers []store.Timer
	last   *store.RunRow
}

// Reads of one run come by the thousand, from dashboards and from clients that wait, so those that come together share the questions to SQL.
var standingsConfig = gather.Config{Most: 200, AtOnce: 4, Patience: 50 * time.Millisecond, Timeout: 10 * time.Second}

func newStandings(s Store) *gather.Gatherer[store.JobRef, *standing] {
	return gather.New(func(ctx context.Context, refs []store.JobRef) (map[store.JobRef]*standing, error) {
		jobs, err := s.JobsByID(ctx, refs)
		if err != nil {
			return nil, err
		}
		all := make([]*job.Job, 0, len(jobs))
		for _, j := range jobs {
			all = append(all, j)
		}
		// In this order: a run leaves the live rows for history, and what comes back is found at the next try.
		timers, err := s.Timers(ctx, all)
		if err != nil {
			return nil, err
		}
		out := make(map[store.JobRef]*standing, len(jobs))
		var over []uuid.UUID
		for ref, j := range jobs {
			out[ref] = &standing{job: j, timers: timers[j.ID]}
			if len(timers[j.ID]) == 0 {
				over = append(over, j.ID)
			}
		}
		if len(over) == 0 {
			return out, nil
		}
		last, err := s.LastRuns(ctx, over)
		if err != nil {
			return nil, err
		}
		for ref := range out {
			if r, ok := last[ref.ID]; ok {
				out[ref].last = &r
			}
		}
		return out, nil
	}, standingsConfig)
}

// standing returns how a job of the caller's stands. store.ErrNotFound.
func (s *service) standing(ctx context.Context, id uuid.UUID) (*standing, error) {
	st, found, err := s.standings.Get(ctx, store.JobRef{Namespace: callerOf(ctx).Namespace, ID: id})
	if err == nil && !found {
		err = fmt.Errorf("job %s: %w", id, store.ErrNotFound)
	}
	return st, err //nolint:wrapcheck // the store's, or the caller's own
}
