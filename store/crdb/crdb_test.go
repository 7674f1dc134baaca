package crdb

import (
	"os"
	"os/exec"
	"testing"

	"github.com/cockroachdb/cockroach-go/v2/testserver"

	"github.com/waterclock-io/waterclock/internal/pgtest"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/store/storetest"
)

// open makes a store of its own in a new database.
func open(tb testing.TB, dsn string, opts Options) *Store {
	tb.Helper()
	s, err := Open(tb.Context(), dsn, opts)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return s
}

func newDatabase(tb testing.TB) string { return pgtest.Shared(tb).NewDatabase(tb) }

func TestPostgresReadCommitted(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(tb *testing.T) store.Store { return open(tb, newDatabase(tb), Options{}) })
}

func TestPostgresSerializable(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(tb *testing.T) store.Store { return open(tb, newDatabase(tb), Options{Isolation: Serializable}) })
}

// TestCockroachWay runs what is only done for CockroachDB, its statements and its retry wrapper, on PostgreSQL, at a level where nothing fails at the
// commit: there the wrapper does not hear of it. It says nothing about CockroachDB's own grammar.
func TestCockroachWay(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(tb *testing.T) store.Store {
		s := open(tb, newDatabase(tb), Options{})
		s.dialect = cockroach
		return s
	})
}

func TestCockroach(t *testing.T) {
	t.Parallel()
	binary := os.Getenv("COCKROACH_BINARY")
	if binary == "" {
		binary, _ = exec.LookPath("cockroach")
	}
	if binary == "" {
		t.Skip("SKIPPED: NOTHING WAS TESTED ON COCKROACHDB: no binary on PATH and COCKROACH_BINARY is not set (tests download none)")
	}
	storetest.Run(t, func(tb *testing.T) store.Store {
		server, err := testserver.NewTestServer(testserver.CockroachBinaryPathOpt(binary))
		if err != nil {
			tb.Fatalf("start CockroachDB: %v", err)
		}
		tb.Cleanup(server.Stop)
		return open(tb, server.PGURL().String(), Options{})
	})
}
