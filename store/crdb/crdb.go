// Package crdb is the store for several processes: PostgreSQL and CockroachDB, by the same statements over the same wire.
//
// It is not for embedded use (store/sqlite is), and it asks of a database nothing that CockroachDB does not have: no sequences, advisory locks,
// notifications or procedures. PostgreSQL runs at READ COMMITTED, where guarded statements and rows locked in the order of the contract make it right;
// CockroachDB runs at SERIALIZABLE, at which PostgreSQL is tested as well.
//
// A call is one round trip where its statements need no answers of each other (pipelined, with BEGIN and COMMIT around them), and batches are arrays in
// binary form. cmd/waterclock opens it; the roles know it as store.Store.
package crdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waterclock-io/waterclock/store"
)

// Isolation is the level of every transaction.
type Isolation string

// The isolation levels.
const (
	ReadCommitted Isolation = "read committed"
	Serializable  Isolation = "serializable"
)

// Options are the choices of whoever opens a store. The zero value is good.
type Options struct {
	// NoMigrate makes Open fail with store.ErrSchemaOlder where the schema is behind, instead of migrating it.
	NoMigrate bool
	// Isolation is ReadCommitted on PostgreSQL and Serializable on CockroachDB where empty.
	Isolation Isolation
	// MaxConns is how many connections serve the roles at most, 8 where zero.
	MaxConns int32
	// ReadConns is how many more serve lists and history, so that these never hold up the roles; 4 where zero.
	ReadConns int32
	// FollowerReads lets CockroachDB answer lists and history from the nearest copy, some seconds old. PostgreSQL does not look at it.
	FollowerReads bool
	// Retried, where not nil, is called for each repetition of a transaction, with the SQLSTATE that caused it.
	Retried func(state string)
	// Log hears of transactions that had to be repeated, at debug level; slog.Default where nil.
	Log *slog.Logger
}

// Store is a store.Store in PostgreSQL or CockroachDB.
type Store struct {
	retried func(state string)
	dialect dialect
	log     *slog.Logger
	hot     *pgxpool.Pool // for the roles
	lists   *pgxpool.Pool // for lists and history
	shards  int32
	closed  atomic.Bool
}

var _ store.Store = (*Store)(nil)

// Open connects to the database that dsn names: postgres://… or cockroach://… (which are the same to it: it asks the database which one it is).
// Errors: store.ErrUnavailable, store.ErrSchemaNewer, store.ErrSchemaOlder with Options.NoMigrate.
func Open(ctx context.Context, dsn string, opts Options) (_ *Store, err error) {
	s := &Store{log: opts.Log, retried: opts.Retried}
	if s.log == nil {
		s.log = slog.Default()
	}
	switch opts.Isolation {
	case "", ReadCommitted, Serializable:
	default:
		return nil, fmt.Errorf("isolation: %q is not known; it must be %q or %q", opts.Isolation, ReadCommitted, Serializable)
	}
	base, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	if s.dialect, err = detect(ctx, base); err != nil {
		return nil, fmt.Errorf("open database: %w", opening(err))
	}
	if opts.NoMigrate {
		err = checkSchema(ctx, dsn)
	} else {
		_, _, err = Migrate(ctx, dsn)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.hot, err = openPool(ctx, base, s.dialect, opts, false); err != nil {
		return nil, err
	}
	if s.lists, err = openPool(ctx, base, s.dialect, opts, true); err != nil {
		return nil, err
	}
	return s, s.introduce(ctx)
}

// introduce makes the identity of the store at its first open; of several processes that open it at once, one makes it. It counts the shards too.
func (s *Store) introduce(ctx context.Context) error {
	id, err := uuid.NewRandom()
	if err != nil {
		return fmt.Errorf("make store id: %w", err)
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("make cluster key: %w", err)
	}
	err = s.write(ctx, statement{
		text: "INSERT INTO cluster (one, store_id, key, pings) VALUES (1, $1, $2, 0) ON CONFLICT DO NOTHING", args: []any{[16]byte(id), key},
	})
	if err != nil {
		return fmt.Errorf("make identity of store: %w", err)
	}
	err = s.read(ctx, s.hot, statement{
		text: "SELECT count(*) FROM shards", each: func(r *row) error { s.shards = int32(r.int64()); return nil }, //nolint:gosec // shards are few
	})
	if err != nil {
		return fmt.Errorf("count shards: %w", err)
	}
	return nil
}

// Close waits for calls under way and ends all connections. It may be called more than once.
func (s *Store) Close() error {
	s.closed.Store(true)
	for _, p := range []*pgxpool.Pool{s.hot, s.lists} {
		if p != nil {
			p.Close()
		}
	}
	return nil
}

// Traits implements store.Store. Ids are random, so that inserts spread over the ranges of CockroachDB.
func (s *Store) Traits() store.Traits {
	return store.Traits{Shards: s.shards, NewJobID: uuid.New, Name: s.dialect.name()}
}

// Ping implements store.Store. It writes, because a full disk or a standby can still be read.
func (s *Store) Ping(ctx context.Context) error {
	return s.write(ctx, statement{text: "UPDATE cluster SET pings = pings + 1 WHERE one = 1"})
}

// sqlNow is the time of the database in microseconds, worked out once per statement.
const sqlNow = "(SELECT round(extract(epoch FROM clock_timestamp()) * 1000000)::int8)"

// Now implements store.Clock.
func (s *Store) Now(ctx context.Context) (now time.Time, err error) {
	err = s.read(ctx, s.hot, readNow(&now))
	return now, err
}

func readNow(now *time.Time) statement {
	return statement{text: "SELECT " + sqlNow, each: func(r *row) error { *now = r.time(); return nil }}
}
