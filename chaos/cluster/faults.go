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

// The groups of faults, by what FAULTS= selects.
const (
	groupProcess   = "process"
	groupStop      = "stop"
	groupLink      = "link"
	groupNATS      = "nats"
	groupStream    = "stream"
	groupSQL       = "sql"
	groupFailpoint = "failpoint"
	groupClock     = "clock"
	groupDeploy    = "deploy"
)

// bringer is Fault.Bring.
type bringer func(ctx context.Context, rng *rand.Rand) error

// between draws a time from one to the other.
func between(rng *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(rng.Int64N(int64(to-from)+1))
}

// oneOf draws an element.
func oneOf[T any](rng *rand.Rand, of []T) T { return of[rng.IntN(len(of))] }

// newFault makes a fault that has a turn to itself, and says so in the log of what it hits.
func newFault(kind, group string, t turn, hit *Process, bring bringer) fault.Fault {
	return fault.Fault{Kind: kind, Group: group, Bring: func(ctx context.Context, rng *rand.Rand) error {
		if err := t.take(ctx); err != nil {
			return err
		}
		defer t.release()
		if err := revive(ctx, hit); err != nil {
			return err
		}
		hit.note("fault: %s", kind)
		err := bring(ctx, rng)
		if errors.Is(err, os.ErrProcessDone) && mortal(hit) {
			err = errors.Join(fault.ErrNotLanded, revive(ctx, hit)) // something else was quicker
		}
		switch {
		case errors.Is(err, fault.ErrNotLanded):
			hit.note("did not land: %s", kind)
		case err != nil:
			return fmt.Errorf("%s (%s): %w", kind, hit.name, err)
		default:
			hit.note("over: %s", kind)
		}
		return err
	}}
}

// mortal says whether a process may die of its own work: a job can kill the executor that runs it.
func mortal(p *Process) bool { return p.role == "executor" }

// revive starts an executor that has died of its work.
func revive(ctx context.Context, p *Process) error {
	if !mortal(p) || p.Running() {
		return nil
	}
	p.note("died of its work; starting it again")
	return p.Start(ctx)
}

// supervise starts executors again that have died of their work, as whoever looks after processes does, until ctx ends.
func (c *Cluster) supervise(ctx context.Context) error {
	var starts []func() error
	for _, m := range c.of("executor") {
		starts = append(starts, func() error {
			for {
				select {
				case <-m.ended():
				case <-ctx.Done():
					return nil
				}
				if m.turn.take(ctx) != nil {
					return nil
				}
				err := revive(ctx, m.Process)
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

// lasting does something, lets it last, and undoes it in any case: also where ctx ends meanwhile.
func lasting(ctx context.Context, d time.Duration, do, undo func() error) error {
	if err := do(); err != nil {
		return errors.Join(err, undo())
	}
	return errors.Join(fault.Wait(ctx, d), undo())
}

// of lists the members with one of the roles.
func (c *Cluster) of(roles ...string) []*member {
	var out []*member
	for _, m := range c.members {
		for _, role := range roles {
			if m.role == role {
				out = append(out, m)
			}
		}
	}
	return out
}
