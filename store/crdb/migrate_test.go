package crdb

import (
	"errors"
	"sync"
	"testing"

	"github.com/waterclock-io/waterclock/store"
)

const newest = 3

func TestMigrateFromNothing(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	status := func(want int64) {
		t.Helper()
		if current, known, err := MigrationStatus(t.Context(), dsn); current != want || known != newest || err != nil {
			t.Fatalf("status %d of %d, %v; want %d of %d", current, known, err, want, newest)
		}
	}
	status(0)
	if _, err := Open(t.Context(), dsn, Options{NoMigrate: true}); !errors.Is(err, store.ErrSchemaOlder) {
		t.Fatalf("open of an empty database: %v, want ErrSchemaOlder", err)
	}
	status(0)
	for _, before := range []int64{0, newest} {
		if from, to, err := Migrate(t.Context(), dsn); from != before || to != newest || err != nil {
			t.Fatalf("migrate: from %d to %d, %v; want from %d to %d", from, to, err, before, newest)
		}
		status(newest)
	}
	if s := open(t, dsn, Options{NoMigrate: true}); s.Traits().Shards != 64 || s.Traits().Name != "postgres" {
		t.Errorf("traits %+v", s.Traits())
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	if _, _, err := Migrate(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	run(t, rawConn(t, dsn), "INSERT INTO schema_version (version_id, is_applied) VALUES (99, true)")
	if _, _, err := Migrate(t.Context(), dsn); !errors.Is(err, store.ErrSchemaNewer) {
		t.Errorf("migrate: %v, want ErrSchemaNewer", err)
	}
	for _, noMigrate := range []bool{false, true} {
		if _, err := Open(t.Context(), dsn, Options{NoMigrate: noMigrate}); !errors.Is(err, store.ErrSchemaNewer) {
			t.Errorf("open, no migrate %v: %v, want ErrSchemaNewer", noMigrate, err)
		}
	}
}

func TestSeveralMigrateAtOnce(t *testing.T) {
	t.Parallel()
	for range 5 {
		dsn := newDatabase(t)
		ids := make(chan store.Cluster, 4)
		var wg sync.WaitGroup
		for range cap(ids) {
			wg.Go(func() {
				s, err := Open(t.Context(), dsn, Options{})
				if err != nil {
					t.Errorf("open: %v", err)
					return
				}
				defer func() {
					if err := s.Close(); err != nil {
						t.Errorf("close: %v", err)
					}
				}()
				c, err := s.Cluster(t.Context())
				if err != nil {
					t.Errorf("cluster: %v", err)
				}
				ids <- c
			})
		}
		wg.Wait()
		close(ids)
		first := <-ids
		for c := range ids {
			if c.StoreID != first.StoreID || string(c.Key) != string(first.Key) || len(c.Key) != 32 {
				t.Error("processes do not agree on the store's identity")
			}
		}
	}
}

func TestAddressIsChecked(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"", "mysql://localhost/x", "postgres://host:notaport/x", "postgres://u:p%zz@h/x"} {
		if _, err := Open(t.Context(), dsn, Options{}); err == nil || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("dsn %q: %v", dsn, err)
		}
	}
	cluster := newDatabase(t)
	s := open(t, "cockroach"+cluster[len("postgres"):], Options{})
	if s.Traits().Name != "postgres" {
		t.Errorf("name %q: the database was not asked what it is", s.Traits().Name)
	}
}
