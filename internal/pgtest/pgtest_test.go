package pgtest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatalf("connect to %s: %v", dsn, err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // an error is usual: fault tests end the server first
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func value[T any](t *testing.T, conn *pgx.Conn, query string) T {
	t.Helper()
	var v T
	if err := conn.QueryRow(t.Context(), query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func TestDatabasesAreApartAndDropped(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	const list = "SELECT coalesce(array_agg(datname::text), '{}') FROM pg_database WHERE datname = $1 OR datname = $2"
	var made []string
	t.Run("two of them", func(t *testing.T) {
		for range 2 {
			conn := connect(t, c.NewDatabase(t))
			execute(t, conn, "CREATE TABLE here (id int)") // in the same database this would fail the second time
			made = append(made, value[string](t, conn, "SELECT current_database()"))
		}
	})
	var left []string
	if err := connect(t, c.DSN("postgres")).QueryRow(t.Context(), list, made[0], made[1]).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{}, left); diff != "" {
		t.Errorf("databases left after the test that made them (-want +got):\n%s", diff)
	}
}

func TestDatabasesMadeAtOnce(t *testing.T) {
	t.Parallel()
	for range 8 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			conn := connect(t, Shared(t).NewDatabase(t))
			execute(t, conn, "CREATE TABLE here (id int)")
		})
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	const ask = "SELECT string_agg(name || '=' || current_setting(name), ' ' ORDER BY name) FROM pg_settings WHERE name IN " +
		"('fsync', 'max_connections', 'shared_buffers', 'log_min_messages', 'synchronous_commit', 'TimeZone', 'listen_addresses')"
	tests := map[string]struct {
		cluster *Cluster
		want    string
	}{
		"shared": {Shared(t), "TimeZone=UTC fsync=off listen_addresses=127.0.0.1 log_min_messages=warning max_connections=200 " +
			"shared_buffers=64MB synchronous_commit=on"},
		"own": {Start(t, Options{Fsync: true, Settings: map[string]string{"max_connections": "20", "TimeZone": "Asia/Tokyo"}}),
			"TimeZone=Asia/Tokyo fsync=on listen_addresses=127.0.0.1 log_min_messages=warning max_connections=20 " +
				"shared_buffers=64MB synchronous_commit=on"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := value[string](t, connect(t, test.cluster.DSN("postgres")), ask)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{})
	dsn := c.NewDatabase(t)
	conn := connect(t, dsn)
	execute(t, conn, "CREATE TABLE kept (n int)")
	for n, fault := range []func(testing.TB){c.Stop, c.Kill, func(tb testing.TB) { c.Kill(tb); c.Stop(tb) }, func(testing.TB) {}} {
		if _, err := conn.Exec(t.Context(), "INSERT INTO kept VALUES ($1)", n); err != nil {
			t.Fatal(err)
		}
		fault(t)
		if n < 3 {
			if c.Running() {
				t.Fatal("the cluster runs after its end")
			}
			if err := conn.Ping(t.Context()); err == nil {
				t.Fatal("a session lives on after the end of the cluster")
			}
		}
		c.Restart(t)
		conn = connect(t, dsn)
		if got := value[int](t, conn, "SELECT count(*)::int FROM kept"); got != n+1 {
			t.Fatalf("%d rows after fault %d, want %d", got, n, n+1)
		}
	}
}

func TestEndLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]func(*Cluster, testing.TB){
		"running": func(*Cluster, testing.TB) {},
		"stopped": (*Cluster).Stop,
		"killed":  (*Cluster).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var folder string
			t.Run("inner", func(t *testing.T) {
				c := Start(t, Options{})
				folder = c.home.folder
				c.NewDatabase(t)
				last(c, t)
			})
			if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the folder of the cluster is still there: %s, %v", folder, err)
			}
		})
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{})
	h, err := newHome(c.home.bin, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(h.folder); err != nil {
			t.Error(err)
		}
	})
	h.port = c.home.port
	if _, err := h.start(); !errors.Is(err, errPortTaken) {
		t.Errorf("start at the port of another cluster: %v, want %v", err, errPortTaken)
	}
}

func TestBadSetting(t *testing.T) {
	t.Parallel()
	_, err := start(Require(t), Options{Settings: map[string]string{"max_connections": "many"}}, false)
	if !errors.Is(err, errEnded) {
		t.Errorf("start with a bad setting: %v, want %v", err, errEnded)
	}
}
