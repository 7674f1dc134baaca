package crdb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cockroachdb/cockroach-go/v2/crdb"
	"github.com/cockroachdb/cockroach-go/v2/crdb/crdbpgxv5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waterclock-io/waterclock/internal/failpoint"
	"github.com/waterclock-io/waterclock/store"
)

// statement is one statement of a round trip.
type statement struct {
	text string
	args []any
	// begin is called before each attempt, each for each row. A call may be attempted more than once, so begin forgets what each has gathered.
	begin func()
	each  func(r *row) error
}

// collect is a statement whose rows go to a list.
func collect[T any](list *[]T, scan func(r *row) (T, error), text string, args ...any) statement {
	return statement{
		text: text, args: args,
		begin: func() { *list = (*list)[:0] },
		each: func(r *row) error {
			v, err := scan(r)
			*list = append(*list, v)
			return err
		},
	}
}

// batcher is a connection or a transaction.
type batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// send runs statements in one round trip. It returns how many of them the server completed; after an error it ran none of those that follow.
func send(ctx context.Context, to batcher, list []statement) (completed int, err error) {
	if err := failpoint.Err(failpoint.StoreRetry); err != nil {
		return 0, &pgconn.PgError{Severity: "ERROR", Code: serializationFailure, Message: err.Error()}
	}
	var b pgx.Batch
	for i := range list {
		b.Queue(list[i].text, list[i].args...)
	}
	results := to.SendBatch(ctx, &b)
	defer func() {
		if closing := results.Close(); err == nil {
			err = closing
		}
	}()
	var r row
	for i := range list {
		st := &list[i]
		if st.begin != nil {
			st.begin()
		}
		rows, err := results.Query()
		if err != nil {
			return completed, err
		}
		for rows.Next() {
			if st.each == nil {
				continue
			}
			r.values, r.next = rows.RawValues(), 0
			if err := st.each(&r); err != nil {
				rows.Close()
				return completed, err
			}
		}
		if rows.CommandTag().String() != "" {
			completed++
		}
		if err := rows.Err(); err != nil {
			return completed, err
		}
	}
	return completed, nil
}

// tx is a transaction that sends its statements as late as it can: those that need no answers of each other, BEGIN and COMMIT among them, share a trip.
type tx struct {
	to      batcher
	queued  []statement
	begun   bool
	dialect dialect
	managed bool // by CockroachDB's retry wrapper, which begins and commits
}

// queue adds statements to the next flush.
func (t *tx) queue(list ...statement) { t.queued = append(t.queued, t.dialect.rewrite(list)...) }

// flush sends what is queued.
func (t *tx) flush(ctx context.Context) error {
	if len(t.queued) == 0 {
		return nil
	}
	list := t.queued
	if !t.begun && !t.managed {
		list = append([]statement{{text: "BEGIN"}}, list...)
		t.begun = true
	}
	t.queued = nil
	_, err := send(ctx, t.to, list)
	return err
}

// commit sends what is queued with the commit. A lone statement is its own transaction. After a commit there is nothing left to commit: it may be called by
// whoever needs to know the answer, and again by transact.
func (t *tx) commit(ctx context.Context) error {
	if t.managed {
		return t.flush(ctx)
	}
	list := t.queued
	t.queued = nil
	last := len(list)
	switch {
	case !t.begun && len(list) == 0:
		return nil
	case !t.begun && len(list) > 1:
		list = append([]statement{{text: "BEGIN"}}, list...)
		last, t.begun = len(list), true
	}
	if t.begun {
		list = append(list, statement{text: "COMMIT"})
	}
	completed, err := send(ctx, t.to, list)
	if err == nil {
		t.begun = false
		err = failpoint.Err(failpoint.StoreCommit)
	}
	return undecided(completed, last, err)
}

// undecided tells a commit that failed from one of which nobody knows. An answer of the server to a statement before the commit, and one that does not
// end the connection, say that nothing was done.
func undecided(completed, before int, err error) error {
	switch {
	case err == nil:
		return nil
	case sqlState(err) != "" && (completed < before || !fatal(err)):
		return err
	case sqlState(err) == "" && repeatable(err):
		return err // nothing was sent
	}
	return &commitError{err}
}

// rollback ends the transaction on a connection that goes back to its pool. Where it fails the pool throws the connection away.
func (t *tx) rollback(ctx context.Context, conn *pgxpool.Conn) {
	if !t.begun || conn.Conn().IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = conn.Exec(ctx, "ROLLBACK")
}

// transact runs work in a transaction and repeats it on a serialization failure or deadlock.
func (s *Store) transact(ctx context.Context, work func(ctx context.Context, t *tx) error) error {
	if s.dialect == cockroach {
		return s.repeat(ctx, func(ctx context.Context) error {
			// The wrapper's own bound is small: it keeps its place in CockroachDB's queues of waiting transactions, ours begins anew.
			err := crdbpgx.ExecuteTx(crdb.WithMaxRetries(ctx, 10), s.hot, pgx.TxOptions{}, func(in pgx.Tx) error {
				t := &tx{to: in, managed: true, dialect: cockroach}
				if err := work(ctx, t); err != nil {
					return err
				}
				return t.commit(ctx)
			})
			if err == nil {
				err = undecided(1, 1, failpoint.Err(failpoint.StoreCommit))
			}
			return err
		})
	}
	// Not the wrapper: on PostgreSQL its RELEASE SAVEPOINT does not commit, and it ignores the answer of the COMMIT that does; and a snapshot that lost a
	// race is not renewed by going back to a savepoint.
	return s.repeat(ctx, func(ctx context.Context) error {
		conn, err := s.hot.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		t := &tx{to: conn}
		done := false
		defer func() {
			if !done {
				t.rollback(ctx, conn)
			}
		}()
		if err := work(ctx, t); err != nil {
			return err
		}
		err = t.commit(ctx)
		done = err == nil
		return err
	})
}

// write runs statements that need no answers of each other in one transaction and, but on CockroachDB for more than one, in one round trip.
func (s *Store) write(ctx context.Context, list ...statement) error {
	list = s.dialect.rewrite(list)
	if len(list) == 1 {
		return s.repeat(ctx, func(ctx context.Context) error {
			conn, err := s.hot.Acquire(ctx)
			if err != nil {
				return err
			}
			defer conn.Release()
			completed, err := send(ctx, conn, list)
			if err == nil {
				err = failpoint.Err(failpoint.StoreCommit)
			}
			return undecided(completed, 1, err)
		})
	}
	return s.transact(ctx, func(_ context.Context, t *tx) error {
		t.queue(list...)
		return nil
	})
}

// read runs statements that write nothing, in one round trip. Each of them sees a state of its own, not older than that of the one before.
func (s *Store) read(ctx context.Context, from *pgxpool.Pool, list ...statement) error {
	list = s.dialect.rewrite(list)
	return s.repeat(ctx, func(ctx context.Context) error {
		_, err := send(ctx, from, list)
		return err
	})
}

// The waits between attempts, each drawn from a range that doubles.
const (
	maxAttempts = 100
	firstWait   = time.Millisecond
	longestWait = 128 * time.Millisecond
)

// repeat attempts something until it works, fails for good, or the time of a call is over.
func (s *Store) repeat(ctx context.Context, attempt func(ctx context.Context) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if s.closed.Load() {
		return errClosed
	}
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	limit := firstWait
	for n := 1; ; n++ {
		err := attempt(limited)
		if err == nil {
			return nil
		}
		if !repeatable(err) || n == maxAttempts || !pause(limited, rand.N(limit)) { //nolint:gosec // no secret
			return s.outcome(ctx, limited, err)
		}
		s.log.DebugContext(ctx, "repeating a transaction", "attempt", n, "error", err)
		if s.retried != nil {
			s.retried(sqlState(err))
		}
		limit = min(2*limit, longestWait)
	}
}

// outcome is what the caller is told.
func (s *Store) outcome(ctx, limited context.Context, err error) error {
	switch {
	case unknownOutcome(err):
		return classify(err)
	case ctx.Err() != nil && (cancelled(err) || broken(err) || repeatable(err)):
		return context.Cause(ctx)
	case limited.Err() != nil && (cancelled(err) || broken(err)):
		return fmt.Errorf("no answer within %v: %w: %w", callLimit, store.ErrUnavailable, err)
	case s.closed.Load() && sqlState(err) == "" && !errors.As(err, new(*commitError)):
		return errClosed
	}
	return classify(err)
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
