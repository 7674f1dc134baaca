package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/store/sqlite"
	"github.com/waterclock-io/waterclock/store/storetest"
)

func open(t testing.TB) *sqlite.Store {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "waterclock.db"), sqlite.Options{})
}

func openAt(t testing.TB, path string, opts sqlite.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(context.Background(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store { return open(t) })
}

func BenchmarkStore(b *testing.B) {
	storetest.Bench(b, func(b *testing.B) store.Store { return open(b) })
}

func TestReopenKeepsIdentity(t *testing.T) {
	t.Parallel()
	// A path with all that a URI could misread.
	path := filepath.Join(t.TempDir(), "a b?c#d%41&.db")
	s := openAt(t, path, sqlite.Options{})
	before, err := s.Cluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if found, err := filepath.Glob(filepath.Dir(path) + "/*.db"); err != nil || len(found) != 1 || found[0] != path {
		t.Errorf("files %q, error %v, want %q", found, err, path)
	}
	after, err := openAt(t, path, sqlite.Options{}).Cluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if before.StoreID != after.StoreID || string(before.Key) != string(after.Key) {
		t.Error("the store has another identity after it was opened again")
	}
}

func TestSchemaVersions(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "waterclock.db")
	if s, err := sqlite.Open(t.Context(), path, sqlite.Options{NoMigrate: true}); !errors.Is(err, store.ErrSchemaOlder) || s != nil {
		t.Errorf("open of an empty file without migration: error %v, want ErrSchemaOlder", err)
	}
	current, known, err := sqlite.MigrationStatus(t.Context(), path)
	if err != nil || current != 0 || known < 1 {
		t.Errorf("status %d of %d, error %v, want 0 of at least 1", current, known, err)
	}
	for _, from := range []int64{0, known} {
		if was, is, err := sqlite.Migrate(t.Context(), path); was != from || is != known || err != nil {
			t.Errorf("migrated from %d to %d, error %v; want %d to %d", was, is, err, from, known)
		}
	}
	if err := openAt(t, path, sqlite.Options{NoMigrate: true}).Close(); err != nil {
		t.Error(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (?, 1)", known+1); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, noMigrate := range []bool{false, true} {
		if _, err := sqlite.Open(t.Context(), path, sqlite.Options{NoMigrate: noMigrate}); !errors.Is(err, store.ErrSchemaNewer) {
			t.Errorf("open of a newer schema: error %v, want ErrSchemaNewer", err)
		}
	}
	if _, _, err := sqlite.Migrate(t.Context(), path); !errors.Is(err, store.ErrSchemaNewer) {
		t.Errorf("migrate of a newer schema: error %v, want ErrSchemaNewer", err)
	}
	// A failed open lets go of the folder.
	lock, err := sqlite.LockFolder(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "none", "waterclock.db")
	if _, err := sqlite.Open(t.Context(), missing, sqlite.Options{}); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("open in a folder that is not there: error %v, want one that names it", err)
	}
	dir := t.TempDir()
	lock, err := sqlite.LockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock() //nolint:errcheck // tested elsewhere
	// The path is a folder, which is no database.
	if _, err := sqlite.Open(t.Context(), dir, sqlite.Options{Lock: lock}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("open of a folder as a database: error %v, want ErrUnavailable", err)
	}
}
