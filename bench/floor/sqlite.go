package floor

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"

	modernc "modernc.org/sqlite"

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/store/sqlite"
)

const (
	liteJobs = `INSERT INTO jobs (job_id, namespace, name, shard, version, state, kind, queue, queue_namespace, priority, spec, labels, recurring, body_hash,
		due_at, paused_by, paused_at, pause_note, created_at, updated_at)
		VALUES (?1, 'default', NULL, 0, 1, 'active', 'bench', 'bench', 'default', 3, '` + specText + `', '{}', 0, ?2, ?3, '', 0, '', ?3, ?3)`
	liteTimers = `INSERT INTO timers (shard, bucket, due_at, run_id, job_id, namespace, queue_namespace, queue, priority, kind, step, origin, scheduled_at, civil,
		attempt, version, dispatch, dispatched_at, started_at, executor, generation, cancel_at, wait_reason, last_error, recurring, listed, followed)
		VALUES (0, ?1, ?2, ?3, ?4, 'default', 'default', 'bench', 3, 'bench', 2, 'schedule', ?2, '', 1, 1, 0, 0, 0, '', 0, 0, '', '', 0, 0, 0)`
	liteMark = `UPDATE timers SET step = 3, dispatch = 1, dispatched_at = ?2, generation = 1, mark_id = ?4
		WHERE shard = 0 AND bucket = ?1 AND due_at = ?2 AND run_id = ?3 AND step = 2 AND version = 1 AND dispatch = 0`
	liteEnd  = `DELETE FROM timers WHERE shard = 0 AND bucket = ?1 AND due_at = ?2 AND run_id = ?3 AND dispatch = 1`
	liteRuns = `INSERT INTO runs (job_id, scheduled_at, run_id, attempt, namespace, queue, priority, kind, origin, civil, due_at, dispatch, executor, started_at,
		ended_at, step, final, reason, message, code, result, result_ref, log_ref)
		VALUES (?1, ?3, ?2, 1, 'default', 'bench', 3, 'bench', 'schedule', '', ?3, 1, '` + executor + `', ?3, ?3, 6, 1, 'ok', '', 0, NULL, '', '')`
)

// lite is a connection past database/sql, whose locks and conversions cost as much as the statements.
type lite struct {
	conn  driver.Conn
	stmts map[string]driver.StmtExecContext
	args  []driver.NamedValue
}

func sqliteRows(size int) func(context.Context, contend.Env, int) (func(context.Context) error, func(), error) {
	return func(ctx context.Context, env contend.Env, jobs int) (func(context.Context) error, func(), error) {
		path := filepath.Join(env.Dir, "floor.db")
		if _, _, err := sqlite.Migrate(ctx, path); err != nil {
			return nil, nil, err
		}
		conn, err := (&modernc.Driver{}).Open("file:" + path + "?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=cache_size(-12288)&_pragma=wal_autocheckpoint(2000)")
		if err != nil {
			return nil, nil, err
		}
		l := &lite{conn: conn, stmts: map[string]driver.StmtExecContext{}}
		return func(ctx context.Context) error {
			for i, n := range sizesOf(jobs, size) {
				b, err := newBatch(n, int64(i+1), true)
				if err == nil {
					err = l.batch(ctx, &b)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}, func() { _ = conn.Close() }, nil // what is measured is committed
	}
}

// batch writes one batch in three transactions.
func (l *lite) batch(ctx context.Context, b *batch) error {
	return errors.Join(
		l.transact(ctx, b, func(i int) error {
			return errors.Join(l.exec(ctx, liteJobs, b.jobs[i][:], b.hash, b.due), l.exec(ctx, liteTimers, b.bucket, b.due, b.runs[i][:], b.jobs[i][:]))
		}),
		l.transact(ctx, b, func(i int) error { return l.exec(ctx, liteMark, b.bucket, b.due, b.runs[i][:], b.mark) }),
		l.transact(ctx, b, func(i int) error {
			return errors.Join(l.exec(ctx, liteEnd, b.bucket, b.due, b.runs[i][:]), l.exec(ctx, liteRuns, b.jobs[i][:], b.runs[i][:], b.due))
		}),
	)
}

func (l *lite) transact(ctx context.Context, b *batch, each func(i int) error) error {
	if err := l.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	for i := range b.jobs {
		if err := each(i); err != nil {
			return err
		}
	}
	return l.exec(ctx, "COMMIT")
}

// exec runs a statement; one with arguments must change a row.
func (l *lite) exec(ctx context.Context, text string, args ...any) error {
	s := l.stmts[text]
	if s == nil {
		raw, err := l.conn.Prepare(text)
		if err != nil {
			return fmt.Errorf("prepare %q: %w", text, err)
		}
		s = raw.(driver.StmtExecContext) //nolint:forcetypeassert // this driver's are
		l.stmts[text] = s
	}
	l.args = l.args[:0]
	for i, a := range args {
		l.args = append(l.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	res, err := s.ExecContext(ctx, l.args)
	if err != nil || len(args) == 0 {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n != 1 {
		err = fmt.Errorf("%d rows changed by %q", n, text)
	}
	return err
}
