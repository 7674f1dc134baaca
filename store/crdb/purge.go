package crdb

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
)

var (
	runKeyCols  = []column{{"job_id", uuidKind, ""}, {"scheduled_at", int8Kind, ""}, {"run_id", uuidKind, ""}, {"attempt", int4Kind, ""}}
	skipKeyCols = []column{{"job_id", uuidKind, ""}, {"nominal_at", int8Kind, ""}}
	oldRuns     = "SELECT " + selected("r", runKeyCols) + ", r.result_ref, r.log_ref FROM runs AS r WHERE r.ended_at < $1 LIMIT $2::int8"
	oldSkips    = "SELECT " + selected("k", skipKeyCols) + " FROM skips AS k WHERE k.at < $1 LIMIT $2::int8"
	// What was found is deleted by key, as rows of history never change.
	deleteRuns = "DELETE FROM runs AS r USING " + unnest(1, runKeyCols) + " WHERE r.job_id = ANY (ARRAY[u.job_id]) AND r.scheduled_at = u.scheduled_at " +
		"AND r.run_id = u.run_id AND r.attempt = u.attempt RETURNING 1"
	deleteSkips = "DELETE FROM skips AS k USING " + unnest(1, skipKeyCols) + " WHERE k.job_id = ANY (ARRAY[u.job_id]) AND k.nominal_at = u.nominal_at RETURNING 1"
)

// oldJob is the condition for a job that nothing can come of, but for its timers. The row of a one-time job does not tell when its run ended; its
// history does.
const oldJob = "j.updated_at < $1 AND j.due_at < $1 AND (j.state IN ('deleted', 'completed') OR NOT j.recurring) " +
	"AND NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.job_id = ANY (ARRAY[j.job_id]) AND r.ended_at >= $1 OFFSET 0)"

var (
	oldJobs     = "SELECT " + jobColumns + " FROM jobs AS j WHERE j.job_id > $2 AND " + oldJob + " ORDER BY j.job_id LIMIT $3::int8"
	lockOldJobs = "SELECT " + jobColumns + " FROM jobs AS j WHERE j.job_id = ANY ($2::uuid[]) AND " + oldJob + " ORDER BY j.job_id FOR UPDATE OF j"
)

// Purge implements store.Retention.
func (s *Store) Purge(ctx context.Context, before time.Time, limit int, drop func(context.Context, []string) error) (int, error) {
	deleted, err := s.purgeRuns(ctx, micros(before), limit, drop)
	if err != nil {
		return 0, err
	}
	for _, part := range []func(context.Context, int64, int) (int, error){s.purgeSkips, s.purgeJobs} {
		if deleted >= limit {
			break
		}
		n, err := part(ctx, micros(before), limit-deleted)
		if err != nil {
			return 0, err
		}
		deleted += n
	}
	return deleted, nil
}

func (s *Store) purgeRuns(ctx context.Context, before int64, limit int, drop func(context.Context, []string) error) (int, error) {
	var b *batch
	var blobs []string
	err := s.read(ctx, s.hot, statement{
		text: oldRuns, args: []any{before, int64(limit)},
		begin: func() { b, blobs = newBatch(runKeyCols, limit), nil },
		each: func(r *row) error {
			b.uuid(r.uuid())
			b.int8(r.int64())
			b.uuid(r.uuid())
			b.int4(r.int32())
			for range 2 {
				if blob := r.string(); blob != "" {
					blobs = append(blobs, blob)
				}
			}
			return nil
		},
	})
	if err == nil && drop != nil && len(blobs) > 0 {
		err = drop(ctx, blobs)
	}
	if err != nil {
		return 0, err
	}
	return s.deleteRows(ctx, deleteRuns, b)
}

func (s *Store) purgeSkips(ctx context.Context, before int64, limit int) (int, error) {
	var b *batch
	err := s.read(ctx, s.hot, statement{
		text: oldSkips, args: []any{before, int64(limit)},
		begin: func() { b = newBatch(skipKeyCols, limit) },
		each: func(r *row) error {
			b.uuid(r.uuid())
			b.int8(r.int64())
			return nil
		},
	})
	if err != nil {
		return 0, err
	}
	return s.deleteRows(ctx, deleteSkips, b)
}

func (s *Store) deleteRows(ctx context.Context, text string, b *batch) (n int, err error) {
	if b.rows() == 0 {
		return 0, nil
	}
	err = s.write(ctx, statement{text: text, args: b.args(), begin: func() { n = 0 }, each: func(*row) error { n++; return nil }})
	return n, err
}

// purgeJobs pages through the jobs: those that still have a timer are met again at each call, and must not count.
func (s *Store) purgeJobs(ctx context.Context, before int64, limit int) (int, error) {
	deleted := 0
	var after uuid.UUID
	for deleted < limit {
		var page []*job.Job
		err := s.read(ctx, s.lists, collect(&page, scanJob, oldJobs, before, [16]byte(after), int64(limit-deleted)))
		if err != nil || len(page) == 0 {
			return deleted, err
		}
		n, err := s.deleteJobs(ctx, before, page)
		if err != nil {
			return deleted, err
		}
		deleted += n
		after = page[len(page)-1].ID
	}
	return deleted, nil
}

// deleteJobs locks the jobs and looks again: a user may have given one a new run since. A job that is locked and has no timer gets none.
func (s *Store) deleteJobs(ctx context.Context, before int64, page []*job.Job) (n int, err error) {
	ids, keys := idsAndKeys(page)
	err = s.transact(ctx, func(ctx context.Context, t *tx) error {
		n = 0
		gone := map[uuid.UUID]bool{}
		live := func(r *row) error { delete(gone, r.uuid()); return nil }
		t.queue(
			statement{text: lockOldJobs, args: []any{before, uuids(ids)}, each: func(r *row) error {
				j, err := scanJob(r)
				if err == nil {
					gone[j.ID] = true
				}
				return err
			}},
			statement{text: liveProbed, args: keysArgs(keys), each: live},
			statement{text: liveListed, args: []any{uuids(ids)}, each: live})
		if err := t.flush(ctx); err != nil {
			return err
		}
		dead := slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool { return !gone[id] })
		n = len(dead)
		if n == 0 {
			return nil
		}
		t.queue(
			statement{text: "DELETE FROM payloads WHERE job_id = ANY ($1::uuid[])", args: []any{uuids(dead)}},
			statement{text: "DELETE FROM jobs WHERE job_id = ANY ($1::uuid[])", args: []any{uuids(dead)}})
		return nil
	})
	return n, err
}
