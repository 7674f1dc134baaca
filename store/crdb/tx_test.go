package crdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waterclock-io/waterclock/store"
)

func TestRepeat(t *testing.T) {
	t.Parallel()
	answered := func(code string) error { return fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code}) }
	errOwn := errors.New("an error of decide")
	for _, tc := range []struct {
		name     string
		fails    int // how often, then it works
		err      error
		attempts int
		want     error
	}{
		{"serialization failure", 3, answered("40001"), 4, nil},
		{"deadlock", 3, answered("40P01"), 4, nil},
		{"for ever", 1 << 30, answered("40001"), maxAttempts, store.ErrUnavailable},
		{"outcome unknown", 1, answered("40003"), 1, store.ErrUnknownOutcome},
		{"serialization failure of a commit whose answer was lost", 1, &commitError{answered("40001")}, 1, store.ErrUnknownOutcome},
		{"constraint", 1, answered("23505"), 1, answered("23505")},
		{"connection lost", 1, io.ErrUnexpectedEOF, 1, store.ErrUnavailable},
		{"own", 1, errOwn, 1, errOwn},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &Store{log: slog.New(slog.DiscardHandler)}
				n := 0
				began := time.Now()
				err := s.repeat(t.Context(), func(context.Context) error {
					if n++; n <= tc.fails {
						return tc.err
					}
					return nil
				})
				switch {
				case tc.want == nil && err != nil, tc.want != nil && !errors.Is(err, tc.want) && err.Error() != tc.want.Error():
					t.Errorf("error %v, want %v", err, tc.want)
				case n > tc.attempts || (n < tc.attempts && time.Since(began) < callLimit):
					t.Errorf("%d attempts in %v, want %d", n, time.Since(began), tc.attempts)
				case time.Since(began) > callLimit:
					t.Errorf("took %v", time.Since(began))
				}
			})
		})
	}
}

func TestCallIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Store{log: slog.New(slog.DiscardHandler)}
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		began := time.Now()
		if err := s.repeat(t.Context(), hang); !errors.Is(err, store.ErrUnavailable) || time.Since(began) != callLimit {
			t.Errorf("error %v after %v, want ErrUnavailable after %v", err, time.Since(began), callLimit)
		}
		// The caller's own limit is the caller's own error.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.repeat(ctx, hang); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("error %v, want the caller's deadline", err)
		}
		if err := s.repeat(t.Context(), func(ctx context.Context) error { return &commitError{hang(ctx)} }); !errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("error %v, want ErrUnknownOutcome", err)
		}
	})
}

// sent counts round trips.
type sent struct {
	to    batcher
	trips int
}

func (s *sent) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	s.trips++
	return s.to.SendBatch(ctx, b)
}

// Whoever commits to know the answer leaves nothing to commit for the one who ends the transaction: a second COMMIT costs a trip, a warning of PostgreSQL, and where
// it fails, the word on what is committed.
func TestCommitIsSentOnce(t *testing.T) {
	t.Parallel()
	to := &sent{to: rawConn(t, newDatabase(t))}
	for _, statements := range []int{1, 2} {
		tx := &tx{to: to, dialect: postgres}
		to.trips = 0
		for range statements {
			tx.queue(statement{text: "SELECT 1"})
		}
		for range 2 {
			if err := tx.commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if to.trips != 1 {
			t.Errorf("%d statements were sent in %d round trips", statements, to.trips)
		}
		tx.queue(statement{text: "SELECT 1"})
		if err := tx.flush(t.Context()); err != nil || !tx.begun {
			t.Errorf("a transaction after a commit has begun: %t, %v", tx.begun, err)
		}
		if err := tx.commit(t.Context()); err != nil || tx.begun {
			t.Errorf("it is over: %t, %v", !tx.begun, err)
		}
	}
}
