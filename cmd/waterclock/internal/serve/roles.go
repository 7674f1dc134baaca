package serve

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waterclock-io/waterclock/executor"
	"github.com/waterclock-io/waterclock/executor/kinds/command"
	"github.com/waterclock-io/waterclock/executor/kinds/webcall"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/planner"
	"github.com/waterclock-io/waterclock/status"
	"github.com/waterclock-io/waterclock/streams"
)

func (n *Node) startRecorder(ctx context.Context) error {
	metrics := status.NewMetrics(n.registry)
	return startRole(ctx, n, "recorder", func() (*status.Recorder, error) {
		return status.New(status.Config{
			Store: n.store, Conn: n.nc, Batch: n.cfg.Recorder.Batch, Linger: n.cfg.Recorder.Linger, Logger: n.log, Metrics: metrics,
			Keep: n.cfg.Retention.History, Drop: n.blobs.Drop,
		})
	})
}

// startRole starts a role. Where what it needs is away in that moment it is made anew and tried again: a process that ends because NATS elects a leader just
// now, or SQL is being restarted, helps nobody.
func startRole[R interface {
	Start(ctx context.Context) error
	Stop()
}](ctx context.Context, n *Node, name string, create func() (R, error)) error {
	role, err := create()
	if err != nil {
		return err
	}
	err = n.await(ctx, "what the "+name+" needs", func(ctx context.Context) error {
		err := role.Start(ctx)
		if err == nil {
			return nil
		}
		role.Stop()
		again, broken := create()
		if broken == nil {
			role = again
		}
		return errors.Join(err, broken)
	})
	if err != nil {
		return err
	}
	n.onStop(name, func(context.Context) { role.Stop() })
	return nil
}

func (n *Node) startPlanner(ctx context.Context) error {
	metrics := planner.NewMetrics(n.registry)
	return startRole(ctx, n, "planner", func() (*planner.Planner, error) {
		return planner.New(planner.Config{
			Store: n.store, Clock: n.clock, Conn: n.nc, Limits: n.limits(), Horizon: n.cfg.Planner.Horizon, MarkAhead: n.cfg.Planner.MarkAhead,
			LaneLimit: n.cfg.Planner.LaneLimit, AckWait: n.cfg.Lease.AckWait, Logger: n.log, Metrics: metrics,
		})
	})
}

func (n *Node) startExecutor(ctx context.Context) error {
	handlers := map[string]executor.Handler{"http": webcall.Handler(webcall.Config{AllowPrivate: n.cfg.Executor.Kinds.HTTP.AllowPrivate})}
	switch {
	case n.opt.AllowAllCommands:
		handlers["exec"] = command.Handler(command.Config{Allow: []string{"*"}})
	case n.cfg.Executor.Kinds.Exec.Enabled:
		handlers["exec"] = command.Handler(command.Config{Allow: n.cfg.Executor.Kinds.Exec.Allow})
	}
	lease := executor.Lease{AckWait: n.cfg.Lease.AckWait, Beat: n.cfg.Lease.Heartbeat, Margin: n.cfg.Lease.Margin}
	e, err := executor.New(executor.Config{
		Conn: n.nc, Queues: queuesOf(n.cfg.Executor.Queues), Slots: n.cfg.Executor.Slots, Handlers: handlers, Labels: n.cfg.Executor.Labels,
		Lease: lease, DrainGrace: n.cfg.Executor.DrainGrace, Blobs: n.blobs, Logger: n.log, Metrics: executor.NewMetrics(n.registry), Version: n.opt.Version,
	})
	if err != nil {
		return err
	}
	n.onStop("executor", e.Stop)
	wait, cancel := context.WithTimeout(ctx, n.cfg.Startup.Timeout)
	defer cancel()
	if err := e.Start(wait); err != nil {
		return fmt.Errorf("gave up after %s (startup.timeout): %w", n.cfg.Startup.Timeout.Round(time.Second), err)
	}
	return nil
}

// queuesOf reads names of queues: "default" is the one that all namespaces share, "namespace/queue" belongs to a namespace ("_" to all), and a bare name to the
// namespace "default".
func queuesOf(names []string) []streams.Queue {
	out := make([]streams.Queue, 0, len(names))
	for _, name := range names {
		ns, queue, ok := strings.Cut(name, "/")
		switch {
		case ok:
			out = append(out, streams.Queue{Namespace: ns, Name: queue})
		case name == job.DefaultQueue:
			out = append(out, streams.Queue{Namespace: job.SharedNamespace, Name: name})
		default:
			out = append(out, streams.Queue{Namespace: job.DefaultNamespace, Name: name})
		}
	}
	return out
}
