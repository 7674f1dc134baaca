package scan

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite" // the driver

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/store/crdb"
	"github.com/waterclock-io/waterclock/store/sqlite"
)

const columns = `(shard, bucket, due_at, run_id, job_id, namespace, queue_namespace, queue, priority, kind, step, origin, scheduled_at, civil, attempt, version,
	dispatch, dispatched_at, started_at, executor, generation, cancel_at, wait_reason, last_error, recurring, listed, followed)`

// In both, the first argument is how many, the second and third are microseconds.
const (
	pgFill = `INSERT INTO timers ` + columns + ` SELECT (random() * 63)::int4, due / 60000000, due, gen_random_uuid(), gen_random_uuid(), 'default', 'default',
		'bench', 3, 'bench', 2, 'schedule', due, '', 1, 1, 0, 0, 0, '', 0, 0, '', '', false, false, false
		FROM (SELECT $2::int8 + ($3::int8 - $2::int8) * i / $1::int8 AS due FROM generate_series(0, $1::int8 - 1) AS i) AS all_of_them`
	liteFill = `INSERT INTO timers ` + columns + ` SELECT 0, due / 60000000, due, randomblob(16), randomblob(16), 'default', 'default', 'bench', 3, 'bench', 2,
		'schedule', due, '', 1, 1, 0, 0, 0, '', 0, 0, '', '', 0, 0, 0
		FROM (WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1) SELECT ?2 + (?3 - ?2) * i / ?1 AS due FROM n)`
)

const runColumns = `(job_id, scheduled_at, run_id, attempt, namespace, queue, priority, kind, origin, civil, due_at, dispatch, executor, started_at, ended_at, step,
	final, reason, message, code, result, result_ref, log_ref)`

// In both, the arguments are the job, how many, the first time in microseconds, and of how many runs one failed.
const (
	pgHistory = `INSERT INTO runs ` + runColumns + ` SELECT $1::uuid, at, gen_random_uuid(), 1, 'default', 'bench', 3, 'bench', 'schedule', '', at, 1,
		'worker-host-1a2b3c4d5e6f', at, at, CASE WHEN i % $4::int8 = 0 THEN 7 ELSE 6 END, true, 'ok', '', 0, '', '', ''
		FROM (SELECT i, $3::int8 + i * 1000000 AS at FROM generate_series(0, $2::int8 - 1) AS i) AS all_of_them`
	liteHistory = `INSERT INTO runs ` + runColumns + ` SELECT ?1, ?3 + i * 1000000, randomblob(16), 1, 'default', 'bench', 3, 'bench', 'schedule', '',
		?3 + i * 1000000, 1, 'worker-host-1a2b3c4d5e6f', ?3 + i * 1000000, ?3 + i * 1000000, CASE WHEN i % ?4 = 0 THEN 7 ELSE 6 END, 1, 'ok', '', 0, NULL, '', ''
		FROM (WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?2) SELECT i FROM n)`
)

func openPostgres(ctx context.Context, env contend.Env) (filler, error) {
	s, err := crdb.Open(ctx, env.PostgresDSN, crdb.Options{})
	if err != nil {
		return filler{}, err
	}
	conn, err := pgx.Connect(ctx, env.PostgresDSN)
	if err != nil {
		return filler{}, errors.Join(err, s.Close())
	}
	return filler{
		Store: s,
		fill: func(ctx context.Context, n int, from, to time.Time) error {
			_, err := conn.Exec(ctx, pgFill, n, from.UnixMicro(), to.UnixMicro())
			return err
		},
		empty: func(ctx context.Context, before time.Time) error {
			_, err := conn.Exec(ctx, "DELETE FROM timers WHERE due_at < $1", before.UnixMicro())
			return err
		},
		history: func(ctx context.Context, job uuid.UUID, runs int, from time.Time) error {
			_, err := conn.Exec(ctx, pgHistory, [16]byte(job), runs, from.UnixMicro(), failedOf)
			return err
		},
		close: func() error { return errors.Join(conn.Close(context.WithoutCancel(ctx)), s.Close()) },
	}, nil
}

func openSQLite(ctx context.Context, env contend.Env) (filler, error) {
	path := filepath.Join(env.Dir, "waterclock.db")
	s, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return filler{}, err
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)&_pragma=cache_size(-65536)")
	if err != nil {
		return filler{}, errors.Join(err, s.Close())
	}
	db.SetMaxOpenConns(1)
	return filler{
		Store: s,
		fill: func(ctx context.Context, n int, from, to time.Time) error {
			_, err := db.ExecContext(ctx, liteFill, n, from.UnixMicro(), to.UnixMicro())
			return err
		},
		empty: func(ctx context.Context, before time.Time) error {
			_, err := db.ExecContext(ctx, "DELETE FROM timers WHERE due_at < ?", before.UnixMicro())
			return err
		},
		history: func(ctx context.Context, job uuid.UUID, runs int, from time.Time) error {
			_, err := db.ExecContext(ctx, liteHistory, job[:], runs, from.UnixMicro(), failedOf)
			return err
		},
		close: func() error { return errors.Join(db.Close(), s.Close()) },
	}, nil
}
