package crdb

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waterclock-io/waterclock/internal/pgtest"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// bothLosses: whether the server did it cannot be told from a lost question or a lost answer.
var bothLosses = map[string]what{"question": question, "answer": answer}

func TestLostCommitOfOneTrip(t *testing.T) {
	t.Parallel()
	for name, kind := range bothLosses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, dsn := newProxy(t, newDatabase(t))
			s := open(t, dsn, Options{MaxConns: 1})
			jobs, timers := fill(t, s, 3)
			m := store.Mark{ID: 7, Generation: 1, Items: []store.MarkItem{{Key: timers[1].TimerKey, Version: 1, JobID: jobs[1].ID}}}
			warm := m
			warm.Items = []store.MarkItem{{Key: timers[2].TimerKey, Version: 1, JobID: jobs[2].ID}}
			mustDo(t)(s.MarkDispatched(t.Context(), warm))
			p.next(kind)
			if _, err := s.MarkDispatched(t.Context(), m); !errors.Is(err, store.ErrUnknownOutcome) || errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("mark: %v, want ErrUnknownOutcome alone", err)
			}
			// The mark id settles it.
			got, err := s.Marked(t.Context(), m)
			if err != nil || got[0] != (kind == answer) {
				t.Errorf("marked %v, %v; want %v", got, err, kind == answer)
			}
			// A new connection prepares what it runs in a trip of its own, before.
			other := *jobs[1]
			other.ID = s.Traits().NewJobID()
			mustDo(t)(s.Submit(t.Context(), []store.Submission{{Job: &other}}))
			again := *jobs[1]
			again.ID, again.Name = s.Traits().NewJobID(), "x"
			p.next(kind)
			if _, err := s.Submit(t.Context(), []store.Submission{{Job: &again}}); !errors.Is(err, store.ErrUnknownOutcome) {
				t.Fatalf("submit: %v, want ErrUnknownOutcome", err)
			}
			// Repeating it settles it.
			results, err := s.Submit(t.Context(), []store.Submission{{Job: &again}})
			if err != nil || results[0].Err != nil || results[0].Existed != (kind == answer) {
				t.Errorf("submit again: %+v, %v", results, err)
			}
		})
	}
}

func TestLostCommitOfTwoTrips(t *testing.T) {
	t.Parallel()
	for name, kind := range bothLosses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, dsn := newProxy(t, newDatabase(t))
			s := open(t, dsn, Options{MaxConns: 1})
			jobs, timers := fill(t, s, 4)
			m := store.Mark{ID: 7, Generation: 1}
			for i := range timers {
				m.Items = append(m.Items, store.MarkItem{Key: timers[i].TimerKey, Version: 1, JobID: jobs[i].ID})
			}
			mustDo(t)(s.MarkDispatched(t.Context(), m))
			end := func(i int, before func()) error {
				_, err := s.Record(t.Context(), []store.Report{{Kind: store.ReportEnd, Key: timers[i].TimerKey, JobID: jobs[i].ID, Dispatch: 1, NeedJob: true}},
					func(_ int, tm *store.Timer, _ *job.Job, now time.Time) store.Change {
						before()
						return store.Change{Runs: []store.RunRow{tm.History(job.StepSucceeded, true, "", now)}}
					})
				return err
			}
			if err := end(0, func() {}); err != nil {
				t.Fatal(err)
			}
			// Lost before the commit was asked for: nothing was done.
			p.next(kind)
			if err := end(1, func() {}); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknownOutcome) {
				t.Fatalf("first trip lost: %v, want ErrUnavailable alone", err)
			}
			left, err := s.ReadTimers(t.Context(), []store.TimerKey{timers[1].TimerKey})
			if err != nil || len(left) != 1 {
				t.Fatalf("rows %v, %v; want the row as it was", left, err)
			}
			// A new connection prepares what it runs in a trip of its own, before.
			if err := end(3, func() {}); err != nil {
				t.Fatal(err)
			}
			if err := end(2, func() { p.next(kind) }); !errors.Is(err, store.ErrUnknownOutcome) {
				t.Fatalf("commit lost: %v, want ErrUnknownOutcome", err)
			}
			left, err = s.ReadTimers(t.Context(), []store.TimerKey{timers[2].TimerKey})
			if err != nil || (len(left) == 0) != (kind == answer) {
				t.Errorf("rows %v, %v; want it gone: %v", left, err, kind == answer)
			}
			runs, err := s.RunAttempts(t.Context(), jobs[2].ID, timers[2].RunID)
			if err != nil || (len(runs) == 1) != (kind == answer) {
				t.Errorf("history %v, %v; want it written: %v", runs, err, kind == answer)
			}
		})
	}
}

func TestServerIsKilledAndComesBack(t *testing.T) {
	t.Parallel()
	cluster := pgtest.Start(t, pgtest.Options{Fsync: true})
	s := open(t, cluster.NewDatabase(t), Options{})
	jobs, _ := fill(t, s, 100)
	for _, end := range []func(testing.TB){cluster.Kill, cluster.Stop} {
		end(t)
		// The first call of a connection that does not know yet may have been heard, for all it knows.
		if _, err := s.Submit(t.Context(), []store.Submission{{Job: jobs[0]}}); !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrUnknownOutcome) {
			t.Fatalf("submit: %v", err)
		}
		for _, call := range []func() error{
			func() error { _, err := s.Now(t.Context()); return err },
			func() error { return s.Ping(t.Context()) },
			func() error { _, err := s.Submit(t.Context(), []store.Submission{{Job: jobs[0]}}); return err },
			func() error { _, err := Open(t.Context(), cluster.DSN("test_1"), Options{}); return err },
		} {
			if err := call(); !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("server is away: %v, want ErrUnavailable", err)
			}
		}
		cluster.Restart(t)
		began := time.Now()
		for s.Ping(t.Context()) != nil {
			if time.Since(began) > 5*time.Second || !pause(t.Context(), 10*time.Millisecond) {
				t.Fatal("no work 5 s after the server came back")
			}
		}
		for _, j := range jobs {
			if _, err := s.Job(t.Context(), j.Namespace, j.ID); err != nil {
				t.Fatalf("an acknowledged job: %v", err)
			}
		}
	}
}

func TestNoConnectionLeft(t *testing.T) {
	t.Parallel()
	cluster := pgtest.Start(t, pgtest.Options{Settings: map[string]string{"max_connections": "10", "superuser_reserved_connections": "0", "max_wal_senders": "0"}})
	dsn := cluster.NewDatabase(t)
	s := open(t, dsn, Options{})
	s.hot.Reset()
	s.lists.Reset()
	for {
		conn, err := pgx.Connect(t.Context(), dsn)
		if sqlState(err) == "53300" {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(context.Background()) }()
	}
	if err := s.Ping(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("ping: %v, want ErrUnavailable", err)
	}
	if _, err := Open(t.Context(), dsn, Options{}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("open: %v, want ErrUnavailable", err)
	}
}

// A server that lets nobody in says nothing of what was to be written: calls wait for it to do so again. Who starts is told the reason.
func TestServerLetsNobodyIn(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	admin := rawConn(t, dsn)
	role := "locked_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	run(t, admin, "CREATE ROLE "+role+" SUPERUSER LOGIN")
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	s := open(t, u.String(), Options{})
	run(t, admin, "ALTER ROLE "+role+" NOLOGIN")
	s.hot.Reset()
	if err := s.Ping(t.Context()); !errors.Is(err, store.ErrUnavailable) || sqlState(err) != "28000" {
		t.Errorf("ping: %v, want ErrUnavailable", err)
	}
	if _, err := Open(t.Context(), u.String(), Options{}); err == nil || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("open: %v, want what the server says", err)
	}
	run(t, admin, "ALTER ROLE "+role+" LOGIN")
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
}

// A session that the operator ends while it waits for a lock has done nothing.
func TestSessionIsEndedBeforeItsCommit(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	s := open(t, dsn, Options{})
	jobs, timers := fill(t, s, 2)
	holder, operator := rawConn(t, dsn), rawConn(t, dsn)
	run(t, holder, "BEGIN")
	run(t, holder, "SELECT 1 FROM timers FOR UPDATE")
	m := store.Mark{ID: 1, Items: []store.MarkItem{{Key: timers[0].TimerKey, Version: 1, JobID: jobs[0].ID}}}
	failed := make(chan error, 1)
	go func() {
		_, err := s.MarkDispatched(t.Context(), m)
		failed <- err
	}()
	ended := 0
	for ended == 0 {
		err := operator.QueryRow(t.Context(), "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").Scan(&ended)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := <-failed; !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("mark: %v, want ErrUnavailable alone", err)
	}
}

// A caller that leaves gets its own cause.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	s := open(t, dsn, Options{MaxConns: 1})
	cause := errors.New("the caller has left")
	ctx, leave := context.WithCancelCause(t.Context())
	defer leave(nil)
	busy, err := s.hot.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		failed <- s.Ping(ctx)
	}()
	leave(cause)
	if err := <-failed; !errors.Is(err, cause) || errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("ping: %v, want the cause", err)
	}
	busy.Release()
	if _, err := s.Now(ctx); !errors.Is(err, cause) {
		t.Errorf("now: %v, want the cause", err)
	}
}

func TestAnswersOfTheServer(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]error{
		"08006": store.ErrUnavailable, "53100": store.ErrUnavailable, "53200": store.ErrUnavailable, "53300": store.ErrUnavailable,
		"57P01": store.ErrUnavailable, "57P03": store.ErrUnavailable, "57014": store.ErrUnavailable, "58030": store.ErrUnavailable,
		"25006": store.ErrUnavailable, "40001": store.ErrUnavailable, "40P01": store.ErrUnavailable, "40003": store.ErrUnknownOutcome,
		"23505": nil, "42601": nil, "22021": nil, "28P01": nil, "3D000": nil, "XX000": nil,
	} {
		err := classify(fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code}))
		for _, sentinel := range []error{store.ErrUnavailable, store.ErrUnknownOutcome} {
			if got := errors.Is(err, sentinel); got != (want == sentinel) {
				t.Errorf("%s: is %v: %v", code, sentinel, got)
			}
		}
	}
	for code, refused := range map[string]bool{"28P01": true, "3D000": true, "42501": true, "53300": false, "XX000": false} {
		// Whatever the reason for which nobody gets in: what was to be written is not to blame. Who starts with such an address is told so at once.
		err := fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code, SeverityUnlocalized: "FATAL"})
		if !errors.Is(classify(err), store.ErrUnavailable) || errors.Is(opening(err), store.ErrUnavailable) == refused {
			t.Errorf("%s: %v, and when it is opened %v", code, classify(err), opening(err))
		}
	}
	for name, tc := range map[string]struct {
		completed int
		err       error
		unknown   bool
	}{
		"fatal before the commit":        {0, &pgconn.PgError{Code: "57P01", SeverityUnlocalized: "FATAL"}, false},
		"fatal at the commit":            {1, &pgconn.PgError{Code: "57P01", SeverityUnlocalized: "FATAL"}, true},
		"serialization at the commit":    {1, &pgconn.PgError{Code: "40001", SeverityUnlocalized: "ERROR"}, false},
		"disk full at the commit":        {1, &pgconn.PgError{Code: "53100", SeverityUnlocalized: "ERROR"}, false},
		"no answer to the only question": {0, context.DeadlineExceeded, true},
	} {
		if got := unknownOutcome(undecided(tc.completed, 1, tc.err)); got != tc.unknown {
			t.Errorf("%s: unknown %v, want %v", name, got, tc.unknown)
		}
	}
}

func mustDo(t *testing.T) func(any, error) {
	t.Helper()
	return func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}
