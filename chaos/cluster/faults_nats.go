package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/waterclock-io/waterclock/chaos/fault"
)

// natsFaults hit the NATS servers. Each begins and ends with all of them whole: of three copies one may be lost at a time, and a second that was lost while the
// first is made again would be this harness's doing.
func (c *Cluster) natsFaults() []fault.Fault {
	var out []fault.Fault
	on := func(kind, group string, bring func(ctx context.Context, rng *rand.Rand, n *node) error) {
		for _, n := range c.nats.nodes {
			out = append(out, newFault(kind, group, n.target, c.whole(func(ctx context.Context, rng *rand.Rand) error { return bring(ctx, rng, n) })))
		}
	}
	on("kill -9 nats node", fault.NATS, func(ctx context.Context, rng *rand.Rand, n *node) error {
		return n.replace(ctx, fault.Between(rng, 0, downFor), func() error { return nil })
	})
	on("stop nats node", fault.Stop, func(ctx context.Context, rng *rand.Rand, n *node) error {
		return fault.Lasting(ctx, fault.Between(rng, time.Second, 6*time.Second), n.Stop, n.Cont)
	})
	on("nats node back with empty data", fault.NATS, func(ctx context.Context, rng *rand.Rand, n *node) error {
		return n.replace(ctx, fault.Between(rng, 0, time.Second), func() error { return os.RemoveAll(n.store) })
	})
	on("nats node back with older data", fault.NATS, func(ctx context.Context, rng *rand.Rand, n *node) (err error) {
		defer func() { err = errors.Join(err, os.RemoveAll(n.earlier())) }()
		// A process that is stopped has its files as they would be after a kill in that moment.
		keep := func() error { return os.CopyFS(n.earlier(), os.DirFS(n.store)) }
		if err := fault.Lasting(ctx, 0, n.Stop, func() error { return errors.Join(keep(), n.Cont()) }); err != nil {
			return err
		}
		if err := fault.Wait(ctx, fault.Between(rng, time.Second, 6*time.Second)); err != nil {
			return err
		}
		if err := c.nats.awaitCurrent(ctx); err != nil {
			return err
		}
		return n.replace(ctx, fault.Between(rng, 0, time.Second), func() error {
			return errors.Join(os.RemoveAll(n.store), os.Rename(n.earlier(), n.store))
		})
	})
	return append(out, newFault("all nats nodes killed", fault.NATS, c.nats.nodes[0].target, c.whole(c.killNATS)))
}

// whole brings a fault only while NATS has all its copies, and waits until it has them again.
func (c *Cluster) whole(bring fault.Bringer) fault.Bringer {
	return func(ctx context.Context, rng *rand.Rand) error {
		if err := c.nats.awaitCurrent(ctx); err != nil {
			return err
		}
		if err := bring(ctx, rng); err != nil {
			return err
		}
		return c.nats.awaitCurrent(ctx)
	}
}

// replace kills a node, does something with its data while it is away, and starts it again.
func (n *node) replace(ctx context.Context, away time.Duration, data func() error) error {
	if err := n.Kill(); err != nil {
		return err
	}
	if err := data(); err != nil {
		return fmt.Errorf("data of %s: %w", n.Name(), err)
	}
	if err := fault.Wait(ctx, away); err != nil {
		return err
	}
	return n.Start(ctx)
}

// killNATS kills all nodes, one right after the other, so that which of them has the last word is left to chance.
func (c *Cluster) killNATS(ctx context.Context, rng *rand.Rand) error {
	order := rng.Perm(len(c.nats.nodes))
	for _, i := range order {
		if err := c.nats.nodes[i].Kill(); err != nil {
			return err
		}
	}
	if err := fault.Wait(ctx, fault.Between(rng, 0, downFor)); err != nil {
		return err
	}
	var starts []func() error
	for _, n := range c.nats.nodes {
		starts = append(starts, func() error { return n.Start(ctx) })
	}
	return together(starts...)
}
