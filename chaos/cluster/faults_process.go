package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"time"

	"github.com/waterclock-io/waterclock/chaos/fault"
)

// downFor is how long a process that was killed stays away at most; half of them are started again at once.
const downFor = 3 * time.Second

// processFaults kill and stop the processes of the roles.
func (c *Cluster) processFaults() []fault.Fault {
	var out []fault.Fault
	for _, m := range c.members {
		out = append(out, newFault("kill -9 "+m.role, fault.Process, m.target, func(ctx context.Context, rng *rand.Rand) error {
			if err := m.Kill(); err != nil {
				return err
			}
			if rng.IntN(2) == 0 {
				if err := fault.Wait(ctx, fault.Between(rng, 0, downFor)); err != nil {
					return err
				}
			}
			return m.Start(ctx)
		}))
	}
	stop := func(kind, role string, from, to time.Duration) {
		for _, m := range c.of(role) {
			out = append(out, newFault(kind, fault.Stop, m.target, func(ctx context.Context, rng *rand.Rand) error {
				return fault.Lasting(ctx, fault.Between(rng, from, to), m.Stop, m.Cont)
			}))
		}
	}
	stop("stop executor past its lease", "executor", c.o.AckWait, c.o.AckWait+2500*time.Millisecond)
	stop("stop planner", "planner", time.Second, 6*time.Second) // it is gone for the others after 3 s
	stop("stop recorder", "recorder", time.Second, 6*time.Second)
	return out
}

// endLimit is how long a process may take to end in order: operations.md says drain_grace and 10 s more, and a machine that is busy needs its time.
func (c *Cluster) endLimit() time.Duration { return c.o.DrainGrace + 20*time.Second }

// again ends a process in order and starts it anew with another binary or environment.
func (c *Cluster) again(ctx context.Context, m *member, path string, env ...string) error {
	if err := m.Terminate(c.endLimit()); err != nil && (m.Running() || !m.mortal || !errors.Is(err, os.ErrProcessDone)) {
		return err
	}
	return m.StartOther(ctx, path, env...)
}

// deployFaults restart everything, one process after the other, in the order that operations.md gives.
func (c *Cluster) deployFaults() []fault.Fault {
	order := c.of("recorder", "planner", "api", "executor")
	all := target{Process: order[0].Process, turn: newTurn()} // two deploys at once are no deploy
	roll := func(ctx context.Context, path string) error {
		for _, m := range order {
			if err := m.turn.take(ctx); err != nil {
				return err
			}
			m.Note("rolled to %s", path)
			err := c.again(ctx, m, path)
			m.turn.release()
			if err != nil {
				return err
			}
		}
		return nil
	}
	out := []fault.Fault{newFault("terminate and restart", fault.Deploy, all, func(ctx context.Context, _ *rand.Rand) error {
		return roll(ctx, c.o.Waterclock)
	})}
	if c.o.Old == "" {
		return out
	}
	return append(out, newFault("rolling deploy old and new", fault.Deploy, all, func(ctx context.Context, rng *rand.Rand) error {
		if err := roll(ctx, c.o.Old); err != nil {
			return err
		}
		if err := fault.Wait(ctx, fault.Between(rng, 0, 3*time.Second)); err != nil {
			return err
		}
		return roll(ctx, c.o.Waterclock)
	}))
}
