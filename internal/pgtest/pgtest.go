// Package pgtest gives tests a real PostgreSQL: one temporary cluster per test process, a fresh database per test, and clusters
// that a fault test may stop, restart and kill. It is not for programs, and it never touches a server that was there before.
// Tests of the stores, the roles and the binary call it. Unix only.
//
// A cluster runs as the caller, or as an unprivileged user where the caller is root, listens on 127.0.0.1 alone and trusts whoever
// connects. It ends with the test process, however that ends, and takes its folder with it: see supervisor.go.
package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// startLimit bounds a start, crash recovery included, and an end; callLimit bounds one statement of this package's own.
const (
	startLimit = 90 * time.Second
	callLimit  = 60 * time.Second
)

// Options are what a test may want otherwise than the defaults of a throw-away cluster.
type Options struct {
	// Fsync makes PostgreSQL wait for the disk, for tests and measurements where that matters. Off by default.
	Fsync bool
	// Settings are further settings of postgresql.conf by name, in its own units; they win over the defaults.
	Settings map[string]string
}

// Cluster is a running, stopped or killed PostgreSQL. Its address stays the same over Stop, Restart and Kill. Its methods that take a
// testing.TB fail that test instead of returning errors, so they belong on the test's own goroutine.
type Cluster struct {
	home   *home
	shared bool

	mu     sync.Mutex
	server *server // nil while stopped or killed
	killed bool    // the last end was Kill
}

var (
	sharedOnce    sync.Once
	sharedCluster *Cluster
	errShared     error
	databases     atomic.Int64
)

// Shared returns the cluster that all tests of this process use, and starts it on first use. It ends with the process. It cannot be
// stopped, restarted or killed, since other tests run on it in parallel: Start one for that. Calls Require.
func Shared(tb testing.TB) *Cluster {
	tb.Helper()
	bin := Require(tb)
	sharedOnce.Do(func() { sharedCluster, errShared = start(bin, Options{}, true) })
	if errShared != nil {
		tb.Fatalf("pgtest: start the shared cluster: %v", errShared)
	}
	return sharedCluster
}

// Start starts a cluster for this test alone and ends it when the test does. Calls Require.
func Start(tb testing.TB, options Options) *Cluster {
	tb.Helper()
	c, err := start(Require(tb), options, false)
	if err != nil {
		tb.Fatalf("pgtest: start a cluster: %v", err)
	}
	tb.Cleanup(func() {
		if err := c.close(); err != nil {
			tb.Errorf("pgtest: end the cluster: %v", err)
		}
	})
	return c
}

func start(bin string, options Options, shared bool) (*Cluster, error) {
	h, err := newHome(bin, options)
	if err != nil {
		return nil, err
	}
	s, err := h.startAnywhere()
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, note(os.RemoveAll(h.folder)))
	}
	return &Cluster{home: h, shared: shared, server: s}, nil
}

func note(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf(" (and then: %v)", err)
}

// Addr is the host and port where the cluster listens, for a proxy in between.
func (c *Cluster) Addr() string { return c.home.addr() }

// DSN is the URL of a database of this cluster, as its superuser.
func (c *Cluster) DSN(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: c.Addr(), Path: database, RawQuery: "sslmode=disable"}
	return u.String()
}

// NewDatabase makes an empty database, UTF-8 and sorted by bytes, and drops it when the test ends, whoever is still connected. It
// returns its DSN.
func (c *Cluster) NewDatabase(tb testing.TB) (dsn string) {
	tb.Helper()
	name := fmt.Sprintf("test_%d", databases.Add(1))
	if err := c.exec("CREATE DATABASE " + name + " TEMPLATE template0"); err != nil {
		tb.Fatalf("pgtest: create a database: %v", err)
	}
	tb.Cleanup(func() {
		if !c.Running() {
			return // it goes with the cluster
		}
		if err := c.exec("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			tb.Errorf("pgtest: drop a database: %v", err)
		}
	})
	return c.DSN(name)
}

func (c *Cluster) exec(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.DSN("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	if closeErr := conn.Close(ctx); err == nil {
		err = closeErr
	}
	return err
}

// Running says whether the cluster was last started and not ended since.
func (c *Cluster) Running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server != nil
}

// Stop ends the cluster in order: sessions are cut off, what is committed is kept. It returns when every process is gone; a stopped
// cluster stays stopped.
func (c *Cluster) Stop(tb testing.TB) {
	tb.Helper()
	c.change(tb, "stop", func() error { return c.end("INT") })
}

// Kill ends the cluster by SIGKILL, so that it must recover at the next start, and returns when every process of it is gone. What was
// committed is kept. A cluster that is not running stays as it is.
func (c *Cluster) Kill(tb testing.TB) {
	tb.Helper()
	c.change(tb, "kill", func() error {
		c.killed = c.killed || c.server != nil
		return c.end("KILL")
	})
}

// Restart stops the cluster if it runs, starts it at the same address and returns when it takes connections, after its recovery where
// it was killed.
func (c *Cluster) Restart(tb testing.TB) {
	tb.Helper()
	c.change(tb, "restart", func() error {
		if err := c.end("INT"); err != nil {
			return err
		}
		return c.begin()
	})
}

func (c *Cluster) change(tb testing.TB, what string, do func() error) {
	tb.Helper()
	if c.shared {
		tb.Fatalf("pgtest: %s: other tests run on the shared cluster; use pgtest.Start for one of your own", what)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := do(); err != nil {
		tb.Fatalf("pgtest: %s: %v", what, err)
	}
}

// begin starts the cluster where it was. The caller holds mu.
func (c *Cluster) begin() error {
	s, err := c.home.start()
	if err != nil {
		return err
	}
	c.server, c.killed = s, false
	return nil
}

// end sends the signal and waits for the end. The caller holds mu.
func (c *Cluster) end(signal string) error {
	if c.server == nil {
		return nil
	}
	s := c.server
	c.server = nil
	return s.end(signal)
}

func (c *Cluster) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.killed && c.server == nil {
		// A killed server leaves a System V segment behind that only its next start removes.
		if err := c.begin(); err != nil {
			return err
		}
	}
	if err := c.end("QUIT"); err != nil {
		return err
	}
	return os.RemoveAll(c.home.folder)
}
