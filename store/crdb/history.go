package crdb

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// Timers implements store.History.
func (s *Store) Timers(ctx context.Context, jobs []*job.Job) (map[uuid.UUID][]store.Timer, error) {
	all := make(map[uuid.UUID][]store.Timer, len(jobs))
	if len(jobs) == 0 {
		return all, nil
	}
	ids, keys := idsAndKeys(jobs)
	var probed, listed []store.Timer
	// In this order, as in jobChange.readTimers.
	err := s.read(ctx, s.hot, collect(&probed, scanTimer, readTimers, keysArgs(keys)...), collect(&listed, scanTimer, listedTimers, uuids(ids)))
	if err != nil {
		return nil, err
	}
	for _, t := range listed {
		all[t.JobID] = append(all[t.JobID], t)
	}
	for _, t := range probed {
		if !slices.ContainsFunc(all[t.JobID], func(l store.Timer) bool { return l.RunID == t.RunID }) {
			all[t.JobID] = append(all[t.JobID], t)
		}
	}
	for _, ts := range all {
		sortTimers(ts)
	}
	return all, nil
}

var lastRuns = "SELECT " + runColumns + " FROM unnest($1::uuid[]) AS u(job_id) CROSS JOIN LATERAL " +
	"(SELECT * FROM runs AS h WHERE h.job_id = u.job_id AND h.final ORDER BY h.scheduled_at DESC, h.run_id DESC LIMIT 1) AS r"

// LastRuns implements store.History.
func (s *Store) LastRuns(ctx context.Context, jobIDs []uuid.UUID) (map[uuid.UUID]store.RunRow, error) {
	last := make(map[uuid.UUID]store.RunRow, len(jobIDs))
	if len(jobIDs) == 0 {
		return last, nil
	}
	err := s.read(ctx, s.lists, statement{text: lastRuns, args: []any{uuids(jobIDs)}, each: func(r *row) error {
		h, err := scanRun(r)
		last[h.JobID] = h
		return err
	}})
	if err != nil {
		return nil, err
	}
	return last, nil
}

var (
	runAttempts = "SELECT " + runColumns + " FROM runs AS r WHERE r.job_id = $1 AND r.run_id = $2 ORDER BY r.attempt"
	listRuns    = "SELECT " + runColumns + " FROM runs AS r WHERE r.job_id = $1 AND (r.scheduled_at, r.run_id) < ($2, $3) AND r.final " +
		"ORDER BY r.scheduled_at DESC, r.run_id DESC LIMIT $4::int8"
	// 7 is the number of the step "failed".
	listFailures = "SELECT " + runColumns + " FROM runs AS r WHERE r.namespace = $1 AND (r.ended_at, r.run_id) < ($2, $3) AND r.final AND r.step = 7 " +
		"ORDER BY r.ended_at DESC, r.run_id DESC LIMIT $4::int8"
	listSkips = "SELECT " + skipColumns + " FROM skips AS k WHERE k.job_id = $1 AND k.nominal_at < $2 ORDER BY k.nominal_at DESC LIMIT $3::int8"
)

// RunAttempts implements store.History.
func (s *Store) RunAttempts(ctx context.Context, jobID, runID uuid.UUID) ([]store.RunRow, error) {
	return s.runs(ctx, runAttempts, [16]byte(jobID), [16]byte(runID))
}

// ListRuns implements store.History.
func (s *Store) ListRuns(ctx context.Context, jobID uuid.UUID, before store.RunPosition, limit int) ([]store.RunRow, error) {
	return s.runs(ctx, listRuns, [16]byte(jobID), startOf(before.At), [16]byte(before.RunID), int64(limit))
}

// ListFailures implements store.History.
func (s *Store) ListFailures(ctx context.Context, namespace string, before store.RunPosition, limit int) ([]store.RunRow, error) {
	return s.runs(ctx, listFailures, clean(namespace), startOf(before.At), [16]byte(before.RunID), int64(limit))
}

func (s *Store) runs(ctx context.Context, text string, args ...any) (list []store.RunRow, err error) {
	err = s.read(ctx, s.lists, collect(&list, scanRun, text, args...))
	return list, err
}

// ListSkips implements store.History.
func (s *Store) ListSkips(ctx context.Context, jobID uuid.UUID, before time.Time, limit int) (list []store.SkipRow, err error) {
	err = s.read(ctx, s.lists, collect(&list, scanSkip, listSkips, [16]byte(jobID), startOf(before), int64(limit)))
	return list, err
}
