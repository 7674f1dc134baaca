package e2e

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // to write a schema version from the future

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/internal/pgtest"
	"github.com/waterclock-io/waterclock/streams"
)

// fails runs the program and returns what it said; it must end by itself and not with 0.
func fails(t *testing.T, args ...string) string {
	t.Helper()
	path, err := binary()
	check.OK(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err == nil || ctx.Err() != nil {
		t.Fatalf("%v: ended with %v after saying\n%s", args, err, &said)
	}
	return said.String()
}

func mustSay(t *testing.T, said string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(said, w) {
			t.Errorf("it does not say %q:\n%s", w, said)
		}
	}
}

func taken(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// closed returns an address that nobody listens on.
func closed(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestStartRefusals(t *testing.T) {
	dev := func(t *testing.T, more ...string) []string {
		return append([]string{"dev", "--data", filepath.Join(t.TempDir(), "data"), "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0"}, more...)
	}
	t.Run("HTTP port in use", func(t *testing.T) {
		addr := taken(t)
		mustSay(t, fails(t, dev(t, "--http", addr)...), "http.listen", addr, "in use")
	})
	t.Run("NATS port in use", func(t *testing.T) {
		addr := taken(t)
		mustSay(t, fails(t, dev(t, "--nats", addr)...), "nats.listen", addr, "in use")
	})
	t.Run("unknown configuration key", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "w.yaml")
		write(t, file, "http:\n  listen: 127.0.0.1:0\n  lisen: 1\n")
		mustSay(t, fails(t, dev(t, "--config", file)...), file+":3", "lisen")
	})
	t.Run("beyond loopback without a key", func(t *testing.T) {
		mustSay(t, fails(t, dev(t, "--http", "0.0.0.0:0")...), "keys create", "0.0.0.0:0")
	})
	t.Run("NATS unreachable", func(t *testing.T) {
		addr := closed(t)
		said := fails(t, "executor", "--nats", "nats://"+addr, "--startup.timeout", "1s", "--http", "127.0.0.1:0", "--data", t.TempDir())
		mustSay(t, said, "waiting for NATS", "gave up", "startup.timeout", addr)
	})
	t.Run("SQL unreachable", func(t *testing.T) {
		addr := closed(t)
		said := fails(t, dev(t, "--store.url", "postgres://nobody@"+addr+"/none", "--startup.timeout", "1s")...)
		mustSay(t, said, "waiting for the database", "gave up", "startup.timeout")
	})
	t.Run("data folder held", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "data")
		first := start(t, "dev", "--data", dir, "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0")
		said := fails(t, "dev", "--data", dir, "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0")
		mustSay(t, said, "data.dir", strconv.Itoa(first.cmd.Process.Pid))
	})
	t.Run("schema newer than the binary", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "data")
		p := start(t, "dev", "--data", dir, "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0")
		p.kill()
		db, err := sql.Open("sqlite", filepath.Join(dir, "waterclock.db"))
		check.OK(t, err)
		if _, err := db.ExecContext(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)"); err != nil {
			t.Fatal(err)
		}
		check.OK(t, db.Close())
		mustSay(t, fails(t, "dev", "--data", dir, "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0"), "newer", "9999")
	})
	t.Run("schema not migrated", func(t *testing.T) {
		dsn := pgtest.Shared(t).NewDatabase(t)
		mustSay(t, fails(t, dev(t, "--store.url", dsn)...), "migrate up")
	})
}

// SQL and NATS that go away later do not end the process: it is not ready, and recovers.
func TestDependenciesThatGoAwayAndComeBack(t *testing.T) {
	pg := pgtest.Start(t, pgtest.Options{})
	dsn := pg.NewDatabase(t)
	path, err := binary()
	check.OK(t, err)
	if out, err := exec.CommandContext(t.Context(), path, "migrate", "up", "--store", dsn).CombinedOutput(); err != nil {
		t.Fatalf("migrate: %v\n%s", err, out)
	}
	log := newLog(t)
	folder := t.TempDir()
	broker, err := streams.StartEmbedded(streams.EmbeddedOptions{Dir: folder, Listen: "127.0.0.1:0", Logger: log})
	check.OK(t, err)
	addr := broker.Addr()
	dir := t.TempDir()
	p := start(t, "server", "--store", dsn, "--nats", "nats://"+addr, "--http", "127.0.0.1:0", "--data", dir,
		"--executor.kinds.exec.enabled", "--executor.kinds.exec.allow", "/bin/sh,/usr/bin/sh")
	file := filepath.Join(t.TempDir(), "notes")
	works := func(i int) {
		t.Helper()
		ids := submitMany(t, p.jobs(), specsOf(file, i))
		checkFinal(t, p, outcomes(t, p.jobs(), ids, 60*time.Second))
	}
	readyIs(t, p, http.StatusOK)
	works(0)

	pg.Stop(t)
	readyIs(t, p, http.StatusServiceUnavailable)
	pg.Restart(t)
	readyIs(t, p, http.StatusOK)
	works(1)

	broker.Stop()
	readyIs(t, p, http.StatusServiceUnavailable)
	broker, err = streams.StartEmbedded(streams.EmbeddedOptions{Dir: folder, Listen: addr, Logger: log})
	check.OK(t, err)
	t.Cleanup(broker.Stop)
	readyIs(t, p, http.StatusOK)
	works(2)
}

// readyIs waits until the process says that it is, or is not, ready.
func readyIs(t *testing.T, p *process, want int) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last string
	for range 300 {
		body, status := get(t, p.url+"/readyz")
		if status == want {
			return
		}
		last = fmt.Sprintf("%d %s", status, body)
		<-tick.C
	}
	t.Fatalf("readyz is %s, want %d; %s", last, want, p.errs)
}

// With a key the server listens beyond loopback; who shows it works in its namespace, and who shows none is not let in.
func TestKeysLetIn(t *testing.T) {
	path, err := binary()
	check.OK(t, err)
	dir := filepath.Join(t.TempDir(), "data")
	key := func(namespace string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), path, "keys", "create", "--namespace", namespace, "--data", dir).Output()
		if err != nil {
			t.Fatalf("keys create: %v", err)
		}
		return strings.TrimSpace(string(out))
	}
	mine, others := key("mine"), key("others")
	p := start(t, "server", "--data", dir, "--http", "0.0.0.0:0", "--nats", "embedded", "--nats.listen", "127.0.0.1:0")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(p.url, "http://"))
	check.OK(t, err)
	run := func(key string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Env = append(cmd.Environ(), "WATERCLOCK_SERVER=http://127.0.0.1:"+port, "WATERCLOCK_API_KEY="+key)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	mustSay(t, metrics(t, p), "\ngo_gc_gogc_percent 300\n") // of a service; dev keeps to the runtime's
	if out, err := run("", "job", "list"); err == nil || exitCode(err) != 5 {
		t.Errorf("without a key: %v\n%s", err, out)
	}
	if out, err := run(mine, "submit", "--in", "1h", "--name", "secret", "--", "true"); err != nil {
		t.Fatalf("with a key: %v\n%s", err, out)
	}
	if out, err := run(mine, "job", "list"); err != nil || !strings.Contains(out, "secret") {
		t.Errorf("its own job: %v\n%s", err, out)
	}
	if out, err := run(others, "job", "list"); err != nil || strings.Contains(out, "secret") {
		t.Errorf("the job of another namespace: %v\n%s", err, out)
	}
	if out, err := run(others, "job", "get", "secret"); exitCode(err) != 3 {
		t.Errorf("the job of another namespace by its name: %v\n%s", err, out)
	}
}

func exitCode(err error) int {
	var e *exec.ExitError
	if errors.As(err, &e) {
		return e.ExitCode()
	}
	return -1
}
