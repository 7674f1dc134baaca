package sqlite

import (
	"context"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// runColumns are the columns of history in the order of scanRun and insertRun.
const runColumns = "job_id, run_id, namespace, queue, priority, kind, origin, scheduled_at, civil, due_at, attempt, dispatch, executor, started_at, ended_at, " +
	"step, final, reason, message, code, result, result_ref, log_ref"

func scanRun(r *row) store.RunRow {
	return store.RunRow{
		JobID: r.uuid(), RunID: r.uuid(), Namespace: r.string(), Queue: r.string(), Priority: job.Priority(r.int32()), Kind: r.string(),
		Origin: job.Origin(r.string()), ScheduledAt: r.time(), Civil: r.string(), DueAt: r.time(), Attempt: r.int32(), Dispatch: r.int64(),
		Executor: r.string(), StartedAt: r.time(), EndedAt: r.time(), Step: job.Step(r.int32()), Final: r.bool(), Reason: r.string(),
		Message: r.string(), Code: r.int32(), Result: r.bytes(), ResultRef: r.string(), LogRef: r.string(),
	}
}

func (c *conn) insertRun(h *store.RunRow) error {
	_, err := c.exec("INSERT INTO runs ("+runColumns+") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING",
		h.JobID[:], h.RunID[:], h.Namespace, h.Queue, int64(h.Priority), h.Kind, string(h.Origin), micros(h.ScheduledAt), h.Civil, micros(h.DueAt),
		int64(h.Attempt), h.Dispatch, h.Executor, micros(h.StartedAt), micros(h.EndedAt), int64(h.Step), flag(h.Final), h.Reason, h.Message,
		int64(h.Code), blob(h.Result), h.ResultRef, h.LogRef)
	return err
}

func (c *conn) insertSkip(s *store.SkipRow) error {
	_, err := c.exec("INSERT INTO skips (job_id, nominal_at, through_at, count, reason, at) VALUES (?,?,?,?,?,?) ON CONFLICT DO NOTHING",
		s.JobID[:], micros(s.NominalAt), micros(s.ThroughAt), s.Count, s.Reason, micros(s.At))
	return err
}

// Timers implements store.History.
func (s *Store) Timers(ctx context.Context, jobs []*job.Job) (map[uuid.UUID][]store.Timer, error) {
	all := make(map[uuid.UUID][]store.Timer, len(jobs))
	err := s.read(ctx, func(c *conn) error {
		for _, j := range jobs {
			ts, err := c.timersOf(j)
			if err != nil {
				return err
			}
			if len(ts) > 0 {
				all[j.ID] = ts
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// LastRuns implements store.History.
func (s *Store) LastRuns(ctx context.Context, jobIDs []uuid.UUID) (map[uuid.UUID]store.RunRow, error) {
	last := make(map[uuid.UUID]store.RunRow, len(jobIDs))
	err := s.read(ctx, func(c *conn) error {
		for _, id := range jobIDs {
			err := c.query("SELECT "+runColumns+" FROM runs WHERE job_id = ? AND final ORDER BY scheduled_at DESC, run_id DESC LIMIT 1",
				func(r *row) error { last[id] = scanRun(r); return nil }, id[:])
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return last, nil
}

// RunAttempts implements store.History.
func (s *Store) RunAttempts(ctx context.Context, jobID, runID uuid.UUID) ([]store.RunRow, error) {
	return s.runs(ctx, "SELECT "+runColumns+" FROM runs WHERE job_id = ? AND run_id = ? ORDER BY attempt", jobID[:], runID[:])
}

// ListRuns implements store.History.
func (s *Store) ListRuns(ctx context.Context, jobID uuid.UUID, before store.RunPosition, limit int) ([]store.RunRow, error) {
	return s.runs(ctx, "SELECT "+runColumns+" FROM runs WHERE job_id = ? AND (scheduled_at, run_id) < (?, ?) AND final "+
		"ORDER BY scheduled_at DESC, run_id DESC LIMIT ?", jobID[:], startOf(before.At), before.RunID[:], int64(limit))
}

// ListFailures implements store.History.
func (s *Store) ListFailures(ctx context.Context, namespace string, before store.RunPosition, limit int) ([]store.RunRow, error) {
	return s.runs(ctx, "SELECT "+runColumns+" FROM runs WHERE namespace = ? AND (ended_at, run_id) < (?, ?) AND final AND step = 7 "+
		"ORDER BY ended_at DESC, run_id DESC LIMIT ?", namespace, startOf(before.At), before.RunID[:], int64(limit))
}

// startOf is where a list that runs downwards goes on; the zero time is its beginning.
func startOf(before time.Time) int64 {
	if before.IsZero() {
		return math.MaxInt64
	}
	return micros(before)
}

func (s *Store) runs(ctx context.Context, text string, args ...any) (list []store.RunRow, err error) {
	err = s.read(ctx, func(c *conn) error {
		return c.query(text, func(r *row) error { list = append(list, scanRun(r)); return nil }, args...)
	})
	return list, err
}

// ListSkips implements store.History.
func (s *Store) ListSkips(ctx context.Context, jobID uuid.UUID, before time.Time, limit int) (list []store.SkipRow, err error) {
	err = s.read(ctx, func(c *conn) error {
		return c.query("SELECT job_id, nominal_at, through_at, count, reason, at FROM skips WHERE job_id = ? AND nominal_at < ? "+
			"ORDER BY nominal_at DESC LIMIT ?", func(r *row) error {
			list = append(list, store.SkipRow{
				JobID: r.uuid(), NominalAt: r.time(), ThroughAt: r.time(), Count: r.int64(), Reason: r.string(), At: r.time(),
			})
			return nil
		}, jobID[:], startOf(before), int64(limit))
	})
	return list, err
}
