package contend

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock-io/waterclock/api/convert"
	"github.com/waterclock-io/waterclock/api/submit"
	"github.com/waterclock-io/waterclock/executor"
	"github.com/waterclock-io/waterclock/internal/dbclock"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/planner"
	"github.com/waterclock-io/waterclock/status"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/store/crdb"
	"github.com/waterclock-io/waterclock/store/sqlite"
	"github.com/waterclock-io/waterclock/streams"
)

// node is Waterclock with all its roles in this process, put together as the command server does it, with the defaults of its configuration.
type node struct {
	closers
	store     *counted
	clock     *dbclock.Clock
	nc        *nats.Conn
	metrics   *prometheus.Registry
	submits   *submit.Service
	submitted atomic.Int64
}

// The defaults of the configuration that are not those of the packages.
const (
	streamBytes  = 1 << 30  // nats.max_bytes
	sqliteCache  = 12 << 10 // KiB; of the command
	keepHistory  = 90 * 24 * time.Hour
	databaseConn = 8 // store.max_conns
)

func openPostgresNode(ctx context.Context, env Env) (Contender, error) {
	s, err := crdb.Open(ctx, env.PostgresDSN, crdb.Options{MaxConns: databaseConn, Log: logger()})
	if err != nil {
		return nil, err
	}
	return openNode(ctx, env, s)
}

func openSQLiteNode(ctx context.Context, env Env) (Contender, error) {
	s, err := sqlite.Open(ctx, filepath.Join(env.Dir, "waterclock.db"), sqlite.Options{CacheKiB: sqliteCache})
	if err != nil {
		return nil, err
	}
	return openNode(ctx, env, s)
}

func openNode(ctx context.Context, env Env, s store.Store) (_ Contender, err error) {
	n := &node{store: &counted{Store: s}, metrics: prometheus.NewRegistry()}
	n.add(func(context.Context) error { return s.Close() })
	defer func() {
		if err != nil {
			_ = n.Close(context.WithoutCancel(ctx)) // the first error is the one to tell
		}
	}()
	n.clock = dbclock.New(s, logger())
	if err := n.clock.Start(ctx); err != nil {
		return nil, err
	}
	n.add(func(context.Context) error { n.clock.Stop(); return nil })
	server, err := streams.StartEmbedded(streams.EmbeddedOptions{Dir: filepath.Join(env.Dir, "nats"), Listen: "127.0.0.1:0", Logger: logger()})
	if err != nil {
		return nil, err
	}
	n.add(func(context.Context) error { server.Stop(); return nil })
	if n.nc, err = streams.Connect(streams.Dial{Embedded: server, Name: "bench", Logger: logger()}); err != nil {
		return nil, err
	}
	n.add(func(context.Context) error { n.nc.Close(); return nil })
	js, err := jetstream.New(n.nc)
	if err != nil {
		return nil, err
	}
	if _, err := streams.Ensure(ctx, js, s, limits, logger()); err != nil {
		return nil, err
	}
	validator, err := convert.NewValidator()
	if err != nil {
		return nil, err
	}
	n.submits = submit.New(submit.Config{
		Store: s, Clock: n.clock, Waker: streams.NewWaker(streams.NewNotifier(n.nc, logger()), logger()), Validator: validator,
		Metrics: submit.NewMetrics(n.metrics),
	})
	n.add(func(context.Context) error { n.submits.Stop(); return nil })
	return n, nil
}

var limits = streams.Limits{Replicas: 1, RunsBytes: streamBytes, StatusBytes: 2 * streamBytes, SubmitBytes: streamBytes}

func (n *node) Submit(ctx context.Context, j Job) error { return n.SubmitMany(ctx, []Job{j}) }

func (n *node) SubmitMany(ctx context.Context, jobs []Job) error {
	n.submitted.Add(int64(len(jobs)))
	reqs := make([]submit.Request, len(jobs))
	for i := range jobs {
		reqs[i] = submit.Request{Namespace: job.DefaultNamespace, Message: request(jobs[i])}
	}
	for i, r := range n.submits.Submit(ctx, reqs) {
		if r.Err != nil {
			return fmt.Errorf("job %d: %w", jobs[i].Number, r.Err)
		}
	}
	return nil
}

// Work starts recorder, executor and planner, in the order of the command.
func (n *node) Work(ctx context.Context, started Started) error {
	r, err := status.New(status.Config{Store: n.store, Conn: n.nc, Logger: logger(), Metrics: status.NewMetrics(n.metrics), Keep: keepHistory})
	if err != nil {
		return err
	}
	n.add(func(context.Context) error { r.Stop(); return nil })
	if err := r.Start(ctx); err != nil {
		return err
	}
	e, err := startExecutor(ctx, n.nc, executor.NewMetrics(n.metrics), started)
	if err != nil {
		return err
	}
	n.add(func(ctx context.Context) error { e.Stop(ctx); return nil })
	p, err := planner.New(planner.Config{Store: n.store, Clock: n.clock, Conn: n.nc, Limits: limits, Logger: logger(), Metrics: planner.NewMetrics(n.metrics)})
	if err != nil {
		return err
	}
	n.add(func(context.Context) error { p.Stop(); return nil })
	return p.Start(ctx)
}

// Done counts runs that ended, so it is of no use for series.
func (n *node) Done(context.Context) (bool, error) {
	return n.store.ended.Load() >= n.submitted.Load(), nil
}

func (n *node) Close(ctx context.Context) error { return n.close(ctx) }

// counted counts the runs that ended for good.
type counted struct {
	store.Store
	ended atomic.Int64
}

func (c *counted) Record(
	ctx context.Context, reports []store.Report, decide func(i int, t *store.Timer, j *job.Job, now time.Time) store.Change,
) ([]store.ReportResult, error) {
	results, err := c.Store.Record(ctx, reports, decide)
	for i := range results {
		if reports[i].Kind == store.ReportEnd && results[i].Applied && len(results[i].Put) == 0 {
			c.ended.Add(1)
		}
	}
	return results, err
}
