package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/waterclock-io/waterclock/chaos/build"
	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/chaos/process"
	"github.com/waterclock-io/waterclock/internal/failpoint"
)

// armedFaults restart one process with something wrong inside it, and later without.
func (c *Cluster) armedFaults() []fault.Fault {
	var out []fault.Fault
	for _, m := range c.members {
		if m.sql != nil {
			out = append(out, c.armed("40001 at random", m, failpoint.StoreRetry, "error:0.2"), c.armed("commit answer lost", m, failpoint.StoreCommit, "lost:0.05"))
		}
		out = append(out, c.skewed(m))
	}
	for _, point := range failpoint.All {
		for _, m := range c.members {
			if !slices.Contains(point.Roles, m.role) || point.Name == failpoint.StreamsGeneration && m.role != "planner" {
				continue // the others pass the last only at a first start
			}
			out = append(out, newFault("failpoint "+point.Name, fault.Failpoint, m.target, func(ctx context.Context, rng *rand.Rand) error {
				return c.reach(ctx, m, point.Name, 1+rng.IntN(3))
			}))
		}
	}
	return out
}

// armed is a fault that a process has inside for some seconds: a failpoint that hands out errors, and says so when it has.
func (c *Cluster) armed(kind string, m *member, point, action string) fault.Fault {
	return newFault(kind, fault.SQL, m.target, func(ctx context.Context, rng *rand.Rand) error {
		if err := c.again(ctx, m, c.o.Waterclock, failpoint.Variable+"="+point+"="+action); err != nil {
			return err
		}
		if err := fault.Wait(ctx, fault.Between(rng, 2*time.Second, 8*time.Second)); err != nil {
			return err
		}
		struck := m.Said(failpoint.Struck(point))
		if err := c.again(ctx, m, c.o.Waterclock); err != nil {
			return err
		}
		if !struck {
			return fault.ErrNotLanded
		}
		return nil
	})
}

// skewed gives a process a wrong clock for some seconds.
func (c *Cluster) skewed(m *member) fault.Fault {
	return newFault("clock skew", fault.Clock, m.target, func(ctx context.Context, rng *rand.Rand) error {
		skew := fault.Pick(rng, []time.Duration{30 * time.Second, -30 * time.Second, time.Hour, -time.Hour})
		if err := c.again(ctx, m, c.o.Waterclock, build.SkewVariable+"="+skew.String()); err != nil {
			return err
		}
		off, err := c.clockOf(ctx, m.url)
		if err == nil {
			err = fault.Wait(ctx, fault.Between(rng, 2*time.Second, 8*time.Second))
		}
		if err := errors.Join(err, c.again(ctx, m, c.o.Waterclock)); err != nil {
			return err
		}
		if (off - skew).Abs() > 5*time.Second {
			return fault.ErrNotLanded // its clock is not made to be set: see package chaos/build
		}
		return nil
	})
}

// clockOf is how far ahead a process's clock is, to a second or so, by the date of its answers.
func (c *Cluster) clockOf(ctx context.Context, url string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, process.UpLimit)
	defer cancel()
	header, _, err := get(ctx, c.http, url+"/healthz")
	if err != nil {
		return 0, fmt.Errorf("ask for the time: %w", err)
	}
	at, err := http.ParseTime(header.Get("Date"))
	return time.Until(at), err
}

// reach restarts a process so that it kills itself at a failpoint, and starts it clean.
func (c *Cluster) reach(ctx context.Context, m *member, point string, pass int) error {
	provocation := c.provocations(m)[point]
	if provocation != nil || point == failpoint.ExecutorFlushing { // passed once in a life, if at all
		pass = 1
	}
	if err := m.Terminate(c.endLimit()); err != nil {
		return err
	}
	reached, err := m.Reach(ctx, point, pass, c.endLimit(), provocation)
	if err != nil {
		return err
	}
	if err := m.Start(ctx); err != nil {
		return err
	}
	if !reached {
		return fault.ErrNotLanded
	}
	return nil
}
