// Package serve wires the server commands: it opens what a process needs, starts its roles in order, and stops them in the order that loses nothing.
//
// It is the one place where several roles meet; they do not know each other.
package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/waterclock-io/waterclock/cmd/waterclock/internal/config"
	"github.com/waterclock-io/waterclock/internal/blobs"
	"github.com/waterclock-io/waterclock/internal/dbclock"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/store/sqlite"
	"github.com/waterclock-io/waterclock/streams"
)

// Roles says which roles a process has.
type Roles struct {
	API, Planner, Executor, Recorder bool
}

// AllRoles is what a single host runs.
var AllRoles = Roles{API: true, Planner: true, Executor: true, Recorder: true}

func (r Roles) needStore() bool { return r.API || r.Planner || r.Recorder }

// Options are what commands decide beyond the configuration.
type Options struct {
	Roles Roles
	// AllowAllCommands lets the kind exec run any program: for dev only.
	AllowAllCommands bool
	// Version of the binary.
	Version string
	Stdout  io.Writer
	Logger  *slog.Logger
}

// Node is a running process.
type Node struct {
	cfg      config.Config
	opt      Options
	log      *slog.Logger
	registry *prometheus.Registry

	lock     *sqlite.FolderLock
	embedded *streams.Embedded
	store    store.Store
	nc       *nats.Conn
	js       jetstream.JetStream
	notify   *streams.Notifier
	blobs    *blobs.Store
	clock    *dbclock.Clock

	listener net.Listener
	stops    []stopper // in the order in which they were started; ended in the reverse
	failed   chan error
}

type stopper struct {
	name string
	stop func(ctx context.Context)
}

// Start starts a process: its storage, its connections, its roles. On an error everything that was started is stopped again.
func Start(ctx context.Context, cfg config.Config, opt Options) (_ *Node, err error) {
	n := &Node{cfg: cfg, opt: opt, log: opt.Logger, registry: prometheus.NewRegistry(), failed: make(chan error, 1)}
	n.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	defer func() {
		if err != nil {
			n.Stop(context.WithoutCancel(ctx))
		}
	}()
	steps := []func(context.Context) error{n.listenHTTP, n.openFolder, n.openNATS}
	if opt.Roles.needStore() {
		steps = append(steps, n.openStore, n.ensureStreams)
	}
	steps = append(steps, n.openBlobs)
	// Recorder before executor, planner after it and the API last: nothing is handed out that nobody would record, nothing accepted that nobody would hand out.
	// The reverse is the order of the stop.
	if opt.Roles.Recorder {
		steps = append(steps, n.startRecorder)
	}
	if opt.Roles.Executor {
		steps = append(steps, n.startExecutor)
	}
	if opt.Roles.Planner {
		steps = append(steps, n.startPlanner)
	}
	steps = append(steps, n.startHTTP)
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// HTTPAddr is host:port of the API.
func (n *Node) HTTPAddr() string { return n.listener.Addr().String() }

// NATSAddr is host:port of the embedded NATS server, or the URL of the one that is used.
func (n *Node) NATSAddr() string {
	if n.embedded != nil {
		return "nats://" + n.embedded.Addr()
	}
	return n.nc.ConnectedUrlRedacted()
}

// Failed yields an error that the process cannot go on after.
func (n *Node) Failed() <-chan error { return n.failed }

// Stop ends everything in the reverse order of its start. It may be called more than once.
func (n *Node) Stop(ctx context.Context) {
	for len(n.stops) > 0 {
		s := n.stops[len(n.stops)-1]
		n.stops = n.stops[:len(n.stops)-1]
		n.log.Debug("stopping", "part", s.name)
		s.stop(ctx)
	}
}

func (n *Node) onStop(name string, stop func(ctx context.Context)) {
	n.stops = append(n.stops, stopper{name, stop})
}

// openFolder takes the data folder where this process keeps something in it.
func (n *Node) openFolder(context.Context) error {
	embedded := string(n.cfg.NATS.URL) == config.Embedded
	local := n.opt.Roles.needStore() && strings.HasPrefix(string(n.cfg.Store.URL), "sqlite:")
	if !embedded && !local {
		return nil
	}
	if err := os.MkdirAll(n.cfg.Data.Dir, 0o700); err != nil {
		return fmt.Errorf("data.dir: %w", err)
	}
	lock, err := sqlite.LockFolder(n.cfg.Data.Dir)
	if err != nil {
		return fmt.Errorf("data.dir: %w", err)
	}
	n.lock = lock
	n.onStop("data folder", func(context.Context) {
		if err := lock.Unlock(); err != nil {
			n.log.Warn("cannot unlock the data folder", "error", err)
		}
	})
	return nil
}

func (n *Node) openNATS(ctx context.Context) error {
	if string(n.cfg.NATS.URL) == config.Embedded {
		e, err := streams.StartEmbedded(streams.EmbeddedOptions{
			Dir: filepath.Join(n.cfg.Data.Dir, "nats"), Listen: n.cfg.NATS.Listen, Logger: n.log,
		})
		if err != nil {
			return err
		}
		n.embedded = e
		n.onStop("NATS server", func(context.Context) { e.Stop() })
	}
	err := n.await(ctx, "NATS", func(context.Context) error {
		nc, err := streams.Connect(streams.Dial{
			URL: string(n.cfg.NATS.URL), Embedded: n.embedded, Credentials: n.cfg.NATS.Credentials, Name: "waterclock", Logger: n.log,
		})
		n.nc = nc
		return err
	})
	if err != nil {
		return err
	}
	n.onStop("NATS connection", func(context.Context) { n.nc.Close() })
	n.notify = streams.NewNotifier(n.nc, n.log)
	n.js, err = jetstream.New(n.nc)
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	return nil
}

func (n *Node) openStore(ctx context.Context) error {
	retries := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "waterclock_transaction_retries_total", Help: "Transactions that were repeated, by SQLSTATE.",
	}, []string{"state"})
	n.registry.MustRegister(retries)
	err := n.await(ctx, "the database", func(ctx context.Context) error {
		s, err := OpenStore(ctx, n.cfg, n.lock, func(state string) { retries.WithLabelValues(state).Inc() }, n.log)
		n.store = s
		return err
	})
	if err != nil {
		return err
	}
	n.onStop("database", func(context.Context) {
		if err := n.store.Close(); err != nil {
			n.log.Warn("cannot close the database", "error", err)
		}
	})
	n.clock = dbclock.New(n.store, n.log)
	if err := n.askSQL(ctx, n.clock.Start); err != nil {
		return err
	}
	n.onStop("clock", func(context.Context) { n.clock.Stop() })
	return nil
}

func (n *Node) limits() streams.Limits {
	size := int64(n.cfg.NATS.MaxBytes)
	return streams.Limits{Replicas: n.cfg.NATS.Replicas, RunsBytes: size, StatusBytes: 2 * size, SubmitBytes: size}
}

func (n *Node) ensureStreams(ctx context.Context) error {
	return n.await(ctx, "JetStream", func(ctx context.Context) error {
		_, err := streams.Ensure(ctx, n.js, n.store, n.limits(), n.log)
		return err
	})
}

func (n *Node) openBlobs(ctx context.Context) error {
	b, err := blobs.Open(ctx, string(n.cfg.Blob.URL))
	if err != nil {
		return fmt.Errorf("blob.url: %w", err)
	}
	n.blobs = b
	n.onStop("blob store", func(context.Context) {
		if err := b.Close(); err != nil {
			n.log.Warn("cannot close the blob store", "error", err)
		}
	})
	return nil
}

// await tries until it succeeds, the start-up limit is over, or the error is one that waiting does not mend. It says what it waits for.
func (n *Node) await(ctx context.Context, what string, try func(ctx context.Context) error) error {
	limit := time.Now().Add(n.cfg.Startup.Timeout)
	for told := false; ; {
		one, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := try(one)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case hopeless(err):
			return err
		case time.Now().After(limit):
			return fmt.Errorf("gave up waiting for %s after %s (startup.timeout): %w", what, n.cfg.Startup.Timeout, err)
		case !told:
			n.log.Warn("waiting for "+what, "error", err, "limit", n.cfg.Startup.Timeout)
			told = true
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// askSQL awaits an answer of the database. One that it has given is the answer, whatever it says.
func (n *Node) askSQL(ctx context.Context, ask func(ctx context.Context) error) error {
	var answer error
	err := n.await(ctx, "the database", func(ctx context.Context) error {
		answer = ask(ctx)
		if errors.Is(answer, store.ErrUnavailable) || errors.Is(answer, context.DeadlineExceeded) {
			return answer
		}
		return nil
	})
	return cmp.Or(err, answer)
}

func hopeless(err error) bool {
	return errors.Is(err, store.ErrSchemaNewer) || errors.Is(err, store.ErrSchemaOlder) || errors.Is(err, store.ErrHeld) || errors.Is(err, errBadStore)
}
