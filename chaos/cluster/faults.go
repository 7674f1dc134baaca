package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/chaos/process"
)

// target is what a fault hits, and whose turn it takes for that: two faults at once could not say what either did.
type target struct {
	*process.Process
	turn turn
	// mortal: it may die of its own work, as a job can kill the executor that runs it. It is started again then.
	mortal bool
}

// newFault makes a fault that has its turn to itself, and says so in the log of what it hits.
func newFault(kind, group string, hit target, bring fault.Bringer) fault.Fault {
	return fault.Fault{Kind: kind, Group: group, Bring: func(ctx context.Context, rng *rand.Rand) error {
		if err := hit.turn.take(ctx); err != nil {
			return err
		}
		defer hit.turn.release()
		if err := hit.revive(ctx); err != nil {
			return err
		}
		hit.Note("fault: %s", kind)
		err := bring(ctx, rng)
		if errors.Is(err, os.ErrProcessDone) && hit.mortal {
			if err = hit.revive(ctx); err == nil {
				err = fault.ErrNotLanded // something else was quicker
			}
		}
		switch {
		case errors.Is(err, fault.ErrNotLanded):
			hit.Note("did not land: %s", kind)
		case err != nil:
			return fmt.Errorf("%s (%s): %w", kind, hit.Name(), err)
		default:
			hit.Note("over: %s", kind)
		}
		return err
	}}
}

// revive starts what has died of its work.
func (t target) revive(ctx context.Context) error {
	if !t.mortal || t.Running() {
		return nil
	}
	t.Note("died of its work; starting it again")
	return t.Start(ctx)
}

// supervise starts executors again that have died of their work, as whoever looks after processes does, until ctx ends.
func (c *Cluster) supervise(ctx context.Context) error {
	var starts []func() error
	for _, m := range c.of("executor") {
		starts = append(starts, func() error {
			for {
				select {
				case <-m.Ended():
				case <-ctx.Done():
					return nil
				}
				if m.turn.take(ctx) != nil {
					return nil
				}
				err := m.revive(ctx)
				m.turn.release()
				if ctx.Err() != nil {
					return nil
				}
				if err != nil {
					return err
				}
			}
		})
	}
	return together(starts...)
}

// of lists the members of the roles, in their order.
func (c *Cluster) of(roles ...string) []*member {
	var out []*member
	for _, role := range roles {
		for _, m := range c.members {
			if m.role == role {
				out = append(out, m)
			}
		}
	}
	return out
}

// turn lets one fault at a time have what it belongs to.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// try takes the turn if nobody has it.
func (t turn) try() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t turn) release() { <-t }
