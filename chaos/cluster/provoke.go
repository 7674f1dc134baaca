package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/chaos/proxy"
	"github.com/waterclock-io/waterclock/internal/failpoint"
	"github.com/waterclock-io/waterclock/streams"
)

const (
	// garbageCount is how much of it is published: several processes take it by turns, so there is some for each.
	garbageCount = 10
	garbageEvery = 20 * time.Millisecond
	// awayFor is how long executors are kept from runs, so that some are stored before they are back.
	awayFor = 1500 * time.Millisecond
)

// provocations bring a process, whose turn it is, to places that ordinary load does not reach. They are done once it is armed, and again until it dies, at its first pass.
func (c *Cluster) provocations(m *member) map[string]func(context.Context) error {
	lose := func(ctx context.Context) error {
		if err := c.nats.turn.take(ctx); err != nil {
			return err
		}
		defer c.nats.turn.release()
		if err := c.deleteStream(ctx, streams.RunsStream); !errors.Is(err, fault.ErrNotLanded) {
			return err
		}
		return nil
	}
	publish := func(subject string) func(context.Context) error {
		return func(ctx context.Context) error {
			for range garbageCount {
				// What is lost because NATS is in trouble of its own is not missed: all of this is done again until the process dies.
				_ = errors.Join(c.nats.admin.Publish(subject, []byte(fault.Garbage)), c.nats.admin.Flush())
				if err := fault.Wait(ctx, garbageEvery); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return map[string]func(context.Context) error{
		failpoint.StreamsGeneration: lose,
		failpoint.PlannerLost:       lose,
		failpoint.ExecutorSettled:   func(ctx context.Context) error { return c.keepExecutorsAway(ctx, m) },
		failpoint.RecorderBurying:   publish(streams.StatusSubject("chaos")),
		failpoint.RecorderBuried:    publish(streams.StatusSubject("chaos")),
		failpoint.EnqueueBurying:    publish("enqueue.default"),
		failpoint.EnqueueBuried:     publish("enqueue.default"),
	}
}

// keepExecutorsAway cuts this executor off NATS for a moment, and each other that no fault has at this time.
func (c *Cluster) keepExecutorsAway(ctx context.Context, this *member) error {
	var links []*proxy.Proxy
	for _, m := range c.of("executor") {
		if m != this {
			if !m.turn.try() {
				continue
			}
			defer m.turn.release()
		}
		links = append(links, m.nats...)
	}
	return onLinks(ctx, links, awayFor, (*proxy.Proxy).Cut)
}
