// Package sqlite is the embedded store: one file, no server. It is what a single process of Waterclock uses unless it is told of a database.
//
// It is not for several processes: the folder of the file is locked, and there is one shard. All writes go through one goroutine that commits those
// that wait together; reads have connections of their own and see snapshots. An answer means that the data is on disk (synchronous=FULL). Ids of jobs
// ascend, because a page that is filled in order is written once.
//
// cmd/waterclock opens it; the roles know it as store.Store.
package sqlite

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/store"
)

// Options are the choices of whoever opens a store. The zero value suits a test; a server sets Migrate as it likes.
type Options struct {
	// NoMigrate makes Open fail with store.ErrSchemaOlder where the schema is behind, instead of migrating it.
	NoMigrate bool
	// Lock is a hold that the caller has already, on the folder of the file or one around it. Where nil, Open locks the folder and Close lets go of it.
	Lock *FolderLock
	// Readers is the number of connections that read, 4 where zero.
	Readers int
	// Queue is how many calls may wait for the writer before callers are held up, 1024 where zero.
	Queue int
	// CacheKiB is the page cache of the writer, 32 MiB where zero. Each reader has a quarter of that.
	CacheKiB int
	// Now is the clock, time.Now where nil.
	Now func() time.Time
}

// Store is a store.Store in one SQLite file.
type Store struct {
	now     func() time.Time
	writer  *writer
	readers *readers
	lock    *FolderLock // nil where the caller keeps it

	mu     sync.RWMutex // held for reading by every call, for writing by Close
	closed bool
}

var _ store.Store = (*Store)(nil)

// Open opens or makes the database at path, in a folder that exists. Errors: store.ErrHeld where another process has the folder, store.ErrSchemaNewer,
// store.ErrSchemaOlder with Options.NoMigrate.
func Open(ctx context.Context, path string, opts Options) (_ *Store, err error) {
	s := &Store{now: opts.Now}
	if s.now == nil {
		s.now = time.Now
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if opts.Lock == nil {
		if s.lock, err = LockFolder(filepath.Dir(path)); err != nil {
			return nil, err
		}
	}
	if opts.NoMigrate {
		err = checkSchema(ctx, path)
	} else {
		_, _, err = Migrate(ctx, path)
	}
	if err != nil {
		return nil, err
	}
	cache := or(opts.CacheKiB, 32<<10)
	c, err := connect(path, cache, false)
	if err != nil {
		return nil, err
	}
	s.writer = startWriter(c, or(opts.Queue, 1024))
	if s.readers, err = openReaders(path, or(opts.Readers, 4), cache/4); err != nil {
		return nil, err
	}
	return s, s.introduce(ctx)
}

func or(n, otherwise int) int {
	if n > 0 {
		return n
	}
	return otherwise
}

// introduce makes the identity of the store at its first open.
func (s *Store) introduce(ctx context.Context) error {
	id, err := uuid.NewRandom()
	if err != nil {
		return fmt.Errorf("make store id: %w", err)
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("make cluster key: %w", err)
	}
	return s.write(ctx, 1, func(c *conn) error {
		_, err := c.exec("INSERT INTO cluster (one, store_id, key, pings) VALUES (1, ?, ?, 0) ON CONFLICT DO NOTHING", id[:], key)
		return err
	})
}

// Close waits for calls under way and lets go of the file. It may be called more than once.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	if s.readers != nil {
		errs = append(errs, s.readers.close())
	}
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Unlock())
	}
	return errors.Join(errs...)
}

// Traits implements store.Store.
func (s *Store) Traits() store.Traits {
	return store.Traits{Shards: 1, NewJobID: newJobID, Name: "sqlite"}
}

// newJobID makes ascending ids.
func newJobID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// Ping implements store.Store. It writes a byte, because a full disk can still be read.
func (s *Store) Ping(ctx context.Context) error {
	return s.write(ctx, 1, func(c *conn) error {
		_, err := c.exec("UPDATE cluster SET pings = pings + 1")
		return err
	})
}

// Now implements store.Clock. The process and its database share a clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if ctx.Err() != nil {
		return time.Time{}, context.Cause(ctx)
	}
	return s.clock(), nil
}

func (s *Store) clock() time.Time { return s.now().UTC().Truncate(time.Microsecond) }

// write runs a function in the transaction of the writer; rows is about how many it touches.
func (s *Store) write(ctx context.Context, rows int, apply func(c *conn) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return errClosed
	}
	return s.writer.do(ctx, rows, apply)
}

// read runs a function in a snapshot.
func (s *Store) read(ctx context.Context, read func(c *conn) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return errClosed
	}
	return s.readers.do(ctx, read)
}
