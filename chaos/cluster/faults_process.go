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
		out = append(out, newFault("kill -9 "+m.role, groupProcess, m.turn, m.Process, func(ctx context.Context, rng *rand.Rand) error {
			if err := m.Kill(); err != nil {
				return err
			}
			if rng.IntN(2) == 0 {
				if err := fault.Wait(ctx, between(rng, 0, downFor)); err != nil {
					return err
				}
			}
			return m.Start(ctx)
		}))
	}
	stop := func(kind string, roles string, from, to time.Duration) {
		for _, m := range c.of(roles) {
			out = append(out, newFault(kind, groupStop, m.turn, m.Process, func(ctx context.Context, rng *rand.Rand) error {
				return lasting(ctx, between(rng, from, to), m.Stop, m.Cont)
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
	if err := m.Terminate(c.endLimit()); err != nil && (m.Running() || !mortal(m.Process) || !errors.Is(err, os.ErrProcessDone)) {
		return err
	}
	return m.start(ctx, path, env...)
}

// deployFaults restart everything, one process after the other, in the order that operations.md gives.
func (c *Cluster) deployFaults() []fault.Fault {
	all := newTurn() // two deploys at once are no deploy
	order := c.of("recorder")
	order = append(order, c.of("planner")...)
	order = append(order, c.of("api")...)
	order = append(order, c.of("executor")...)
	roll := func(ctx context.Context, path string) error {
		for _, m := range order {
			if err := m.turn.take(ctx); err != nil {
				return err
			}
			m.note("rolled to %s", path)
			err := c.again(ctx, m, path)
			m.turn.release()
			if err != nil {
				return err
			}
		}
		return nil
	}
	out := []fault.Fault{newFault("terminate and restart", groupDeploy, all, order[0].Process, func(ctx context.Context, _ *rand.Rand) error {
		return roll(ctx, c.o.Waterclock)
	})}
	if c.o.Old == "" {
		return out
	}
	return append(out, newFault("rolling deploy old and new", groupDeploy, all, order[0].Process, func(ctx context.Context, rng *rand.Rand) error {
		if err := roll(ctx, c.o.Old); err != nil {
			return err
		}
		if err := fault.Wait(ctx, between(rng, 0, 3*time.Second)); err != nil {
			return err
		}
		return roll(ctx, c.o.Waterclock)
	}))
}
