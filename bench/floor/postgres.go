package floor

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/store/crdb"
)

// The five row writes, in the three transactions in which they come: submit, mark, record.
const (
	pgJobs = `INSERT INTO jobs (job_id, namespace, name, shard, version, state, kind, queue, queue_namespace, priority, spec, labels, recurring, body_hash,
		due_at, paused_by, paused_at, pause_note, created_at, updated_at)
		SELECT u.job_id, 'default', NULL, u.shard, 1, 'active', 'bench', 'bench', 'default', 3, '` + specText + `', '{}', false, $3, $4, '', 0, '', $4, $4
		FROM unnest($1::uuid[], $2::int4[]) AS u(job_id, shard)`
	pgTimers = `INSERT INTO timers (shard, bucket, due_at, run_id, job_id, namespace, queue_namespace, queue, priority, kind, step, origin, scheduled_at, civil,
		attempt, version, dispatch, dispatched_at, started_at, executor, generation, cancel_at, wait_reason, last_error, recurring, listed, followed)
		SELECT u.shard, $4, $5, u.run_id, u.job_id, 'default', 'default', 'bench', 3, 'bench', 2, 'schedule', $5, '', 1, 1, 0, 0, 0, '', 0, 0, '', '', false, false,
		false FROM unnest($1::uuid[], $2::int4[], $3::uuid[]) AS u(job_id, shard, run_id)`
	// Written so that no statistics make anything but look-ups by the whole key of it.
	pgOfKey = `unnest($1::int4[], $2::int8[], $3::int8[], $4::uuid[]) AS u(shard, bucket, due_at, run_id)
		WHERE t.shard = ANY (ARRAY[u.shard]) AND t.bucket = u.bucket AND t.due_at = u.due_at AND t.run_id = u.run_id`
	pgMark = `UPDATE timers AS t SET step = 3, dispatch = t.dispatch + 1, dispatched_at = $5, generation = 1, mark_id = $6 FROM ` + pgOfKey +
		` AND t.step = 2 AND t.version = 1 AND t.dispatch = 0 RETURNING t.run_id`
	pgEnd  = `DELETE FROM timers AS t USING ` + pgOfKey + ` AND t.dispatch = 1 RETURNING t.run_id, t.job_id`
	pgRuns = `INSERT INTO runs (job_id, scheduled_at, run_id, attempt, namespace, queue, priority, kind, origin, civil, due_at, dispatch, executor, started_at,
		ended_at, step, final, reason, message, code, result, result_ref, log_ref)
		SELECT u.job_id, $3, u.run_id, 1, 'default', 'bench', 3, 'bench', 'schedule', '', $3, 1, '` + executor + `', $3, $3, 6, true, 'ok', '', 0, '', '', ''
		FROM unnest($1::uuid[], $2::uuid[]) AS u(job_id, run_id)`
)

func postgres(size int) func(context.Context, contend.Env, int) (func(context.Context) error, func(), error) {
	return func(ctx context.Context, env contend.Env, jobs int) (func(context.Context) error, func(), error) {
		if _, _, err := crdb.Migrate(ctx, env.PostgresDSN); err != nil {
			return nil, nil, err
		}
		conn, err := pgx.Connect(ctx, env.PostgresDSN)
		if err != nil {
			return nil, nil, err
		}
		end := func() { _ = conn.Close(context.WithoutCancel(ctx)) } // what is measured is committed
		// Tables that were empty a moment ago have statistics that make poor plans.
		for _, set := range []string{"SET enable_seqscan = off", "SET enable_hashjoin = off", "SET enable_mergejoin = off", "SET jit = off", "SET plan_cache_mode = force_generic_plan"} {
			if _, err := conn.Exec(ctx, set); err != nil {
				end()
				return nil, nil, err
			}
		}
		return func(ctx context.Context) error {
			for i, n := range sizesOf(jobs, size) {
				b, err := newBatch(n, int64(i+1), false)
				if err == nil {
					err = pgBatch(ctx, conn, &b)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}, end, nil
	}
}

// pgBatch writes one batch in three transactions, each in one round trip.
func pgBatch(ctx context.Context, conn *pgx.Conn, b *batch) error {
	jobs, runs, shards := uuids(b.jobs), uuids(b.runs), pgtype.FlatArray[int32](b.shards)
	buckets, dues := same(b.bucket, len(b.jobs)), same(b.due, len(b.jobs))
	var marked, ended int
	submit := &pgx.Batch{}
	submit.Queue("BEGIN")
	submit.Queue(pgJobs, jobs, shards, b.hash, b.due)
	submit.Queue(pgTimers, jobs, shards, runs, b.bucket, b.due)
	submit.Queue("COMMIT")
	mark := &pgx.Batch{}
	mark.Queue("BEGIN")
	mark.Queue(pgMark, shards, buckets, dues, runs, b.due, b.mark).Query(counting(&marked))
	mark.Queue("COMMIT")
	record := &pgx.Batch{}
	record.Queue("BEGIN")
	record.Queue(pgEnd, shards, buckets, dues, runs).Query(counting(&ended))
	record.Queue(pgRuns, jobs, runs, b.due)
	record.Queue("COMMIT")
	for _, tx := range []*pgx.Batch{submit, mark, record} {
		if err := conn.SendBatch(ctx, tx).Close(); err != nil {
			return err
		}
	}
	if marked != len(b.jobs) || ended != len(b.jobs) {
		return fmt.Errorf("of %d rows %d were marked and %d ended", len(b.jobs), marked, ended)
	}
	return nil
}

func counting(n *int) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			*n++
		}
		return rows.Err()
	}
}

func same(v int64, n int) pgtype.FlatArray[int64] { return slices.Repeat([]int64{v}, n) }

func uuids(ids []uuid.UUID) pgtype.FlatArray[pgtype.UUID] {
	out := make(pgtype.FlatArray[pgtype.UUID], len(ids))
	for i, id := range ids {
		out[i] = pgtype.UUID{Bytes: id, Valid: true}
	}
	return out
}
