package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
		hit.note("fault: %s", kind)
		err := bring(ctx, rng)
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

// lasting does something, lets it last, and undoes it in any case: also where ctx ends meanwhile.
func lasting(ctx context.Context, d time.Duration, do, undo func() error) error {
	if err := do(); err != nil {
		return errors.Join(err, undo())
	}
	return errors.Join(wait(ctx, d), undo())
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
