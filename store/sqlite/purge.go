package sqlite

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
)

// Purge implements store.Retention. What is old is looked for in a snapshot, so that a scan of the tables does not hold up the writer.
func (s *Store) Purge(ctx context.Context, before time.Time, limit int, drop func(context.Context, []string) error) (int, error) {
	var old oldRows
	if err := s.read(ctx, func(c *conn) error { return c.findOld(&old, micros(before), limit) }); err != nil {
		return 0, err
	}
	if old.count() == 0 {
		return 0, nil
	}
	if drop != nil && len(old.blobs) > 0 {
		if err := drop(ctx, old.blobs); err != nil {
			return 0, err
		}
	}
	deleted := 0
	err := s.write(ctx, old.count(), func(c *conn) (err error) {
		deleted, err = c.deleteOld(&old, micros(before))
		return err
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}

// oldRows are the keys of what may go.
type oldRows struct {
	runs  []runKey
	blobs []string // that the runs name
	skips []skipKey
	jobs  []uuid.UUID
}

type runKey struct {
	job, run             uuid.UUID
	scheduledAt, attempt int64
}

type skipKey struct {
	job       uuid.UUID
	nominalAt int64
}

func (o *oldRows) count() int { return len(o.runs) + len(o.skips) + len(o.jobs) }

// oldJob is the condition for a job that nothing can come of, but for its timers. The row of a one-time job does not tell when its run ended; its
// history does.
const oldJob = "j.updated_at < ?1 AND j.due_at < ?1 AND (j.state IN ('deleted', 'completed') OR NOT j.recurring) " +
	"AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.job_id = j.job_id AND r.ended_at >= ?1)"

func (c *conn) findOld(old *oldRows, before int64, limit int) error {
	err := c.query("SELECT job_id, run_id, scheduled_at, attempt, result_ref, log_ref FROM runs WHERE ended_at < ? LIMIT ?", func(r *row) error {
		old.runs = append(old.runs, runKey{job: r.uuid(), run: r.uuid(), scheduledAt: r.int64(), attempt: r.int64()})
		for range 2 {
			if blob := r.string(); blob != "" {
				old.blobs = append(old.blobs, blob)
			}
		}
		return nil
	}, before, int64(limit))
	if err != nil {
		return err
	}
	err = c.query("SELECT job_id, nominal_at FROM skips WHERE at < ? LIMIT ?", func(r *row) error {
		old.skips = append(old.skips, skipKey{job: r.uuid(), nominalAt: r.int64()})
		return nil
	}, before, int64(limit-old.count()))
	if err != nil {
		return err
	}
	return c.findOldJobs(old, before, limit)
}

// findOldJobs pages through the jobs: those that still have a timer are met again at each call, and must not count.
func (c *conn) findOldJobs(old *oldRows, before int64, limit int) error {
	after := []byte{}
	for old.count() < limit {
		var page []*job.Job
		err := c.query("SELECT "+jobColumns+" FROM jobs j WHERE j.job_id > ?2 AND "+oldJob+" ORDER BY j.job_id LIMIT ?3", func(r *row) error {
			j, err := scanJob(r)
			page = append(page, j)
			return err
		}, before, after, int64(limit))
		if err != nil {
			return err
		}
		for _, j := range page {
			live, err := c.live(j)
			if err != nil {
				return err
			}
			if !live && old.count() < limit {
				old.jobs = append(old.jobs, j.ID)
			}
		}
		if len(page) < limit {
			return nil
		}
		after = page[len(page)-1].ID[:]
	}
	return nil
}

func (c *conn) deleteOld(old *oldRows, before int64) (int, error) {
	deleted := 0
	for i := range old.runs {
		k := &old.runs[i]
		n, err := c.exec("DELETE FROM runs WHERE job_id = ? AND scheduled_at = ? AND run_id = ? AND attempt = ?", k.job[:], k.scheduledAt, k.run[:], k.attempt)
		if err != nil {
			return 0, err
		}
		deleted += int(n)
	}
	for i := range old.skips {
		k := &old.skips[i]
		n, err := c.exec("DELETE FROM skips WHERE job_id = ? AND nominal_at = ?", k.job[:], k.nominalAt)
		if err != nil {
			return 0, err
		}
		deleted += int(n)
	}
	for i := range old.jobs {
		n, err := c.deleteOldJob(old.jobs[i], before)
		if err != nil {
			return 0, err
		}
		deleted += n
	}
	return deleted, nil
}

// deleteOldJob looks again: since the snapshot a user may have given the job a new run.
func (c *conn) deleteOldJob(id uuid.UUID, before int64) (int, error) {
	j, err := c.job(id)
	if j == nil || err != nil {
		return 0, err
	}
	if live, err := c.live(j); live || err != nil {
		return 0, err
	}
	n, err := c.exec("DELETE FROM jobs AS j WHERE j.job_id = ?2 AND "+oldJob, before, id[:])
	if err != nil || n == 0 {
		return 0, err
	}
	_, err = c.exec("DELETE FROM payloads WHERE job_id = ?", id[:])
	return 1, err
}
