package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/waterclock-io/waterclock/chaos/build"
	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/internal/failpoint"
)

// reachLimit is how long a process that is to kill itself at a failpoint is waited for.
const reachLimit = 8 * time.Second

// provokeEvery is how often that process is helped to get there. It is in no step with what planners do each second, or the same one would always be the first.
const provokeEvery = 2300 * time.Millisecond

// armedFaults restart one process with something wrong inside it, and later without.
func (c *Cluster) armedFaults() []fault.Fault {
	var out []fault.Fault
	for _, m := range c.members {
		if m.sql != nil {
			out = append(out, c.armed("40001 at random", m, failpoint.StoreRetry+"=error:0.2", `waterclock_transaction_retries_total{state="40001"}`),
				c.armed("commit answer lost", m, failpoint.StoreCommit+"=lost:0.05", ""))
		}
		out = append(out, c.skewed(m))
	}
	for _, point := range failpoint.All {
		for _, m := range c.members {
			if !slices.Contains(point.Roles, m.role) || point.Name == failpoint.StreamsGeneration && m.role != "planner" {
				continue // the others pass the last only at a first start
			}
			out = append(out, newFault("failpoint "+point.Name, groupFailpoint, m.turn, m.Process, func(ctx context.Context, rng *rand.Rand) error {
				pass, provocation := 1+rng.IntN(3), c.provocations(m)[point.Name]
				if provocation != nil || point.Name == failpoint.ExecutorFlushing { // passed once in a life, if at all
					pass = 1
				}
				return c.reach(ctx, m, fmt.Sprintf("%s=%s=kill@%d", failpoint.Variable, point.Name, pass), provocation)
			}))
		}
	}
	return out
}

// armed is a fault that a process has inside for some seconds. The proof, if any, is a metric that the process has only where it struck.
func (c *Cluster) armed(kind string, m *member, arm, proof string) fault.Fault {
	return newFault(kind, groupSQL, m.turn, m.Process, func(ctx context.Context, rng *rand.Rand) error {
		if err := c.again(ctx, m, m.path, failpoint.Variable+"="+arm); err != nil {
			return err
		}
		if err := fault.Wait(ctx, between(rng, 2*time.Second, 8*time.Second)); err != nil {
			return err
		}
		metrics, err := body(ctx, c.http, m.url+"/metrics")
		if err := errors.Join(err, c.again(ctx, m, m.path)); err != nil {
			return err
		}
		if !bytes.Contains(metrics, []byte(proof)) {
			return fault.ErrNotLanded
		}
		return nil
	})
}

// skewed gives a process a wrong clock for some seconds.
func (c *Cluster) skewed(m *member) fault.Fault {
	return newFault("clock skew", groupClock, m.turn, m.Process, func(ctx context.Context, rng *rand.Rand) error {
		skew := oneOf(rng, []time.Duration{30 * time.Second, -30 * time.Second, time.Hour, -time.Hour})
		if err := c.again(ctx, m, m.path, build.SkewVariable+"="+skew.String()); err != nil {
			return err
		}
		off, err := c.clockOf(ctx, m.url)
		if err == nil {
			err = fault.Wait(ctx, between(rng, 2*time.Second, 8*time.Second))
		}
		if err := errors.Join(err, c.again(ctx, m, m.path)); err != nil {
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
	ctx, cancel := context.WithTimeout(ctx, upLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/healthz", nil)
	if err != nil {
		return 0, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return 0, fmt.Errorf("ask for the time: %w", err)
	}
	at, err := http.ParseTime(res.Header.Get("Date"))
	return time.Until(at), errors.Join(err, res.Body.Close())
}

// reach restarts a process so that it kills itself somewhere, waits until it has, and starts it clean. A provocation that is not nil is repeated until then.
func (c *Cluster) reach(ctx context.Context, m *member, env string, provocation func(context.Context) error) error {
	if err := m.Terminate(c.endLimit()); err != nil {
		return err
	}
	if err := m.start(ctx, m.path, env); err != nil && !m.killed() { // it may come to the place before it is up
		return err
	}
	if provocation == nil {
		provocation = func(context.Context) error { return nil }
	}
	limit := time.NewTimer(reachLimit)
	defer limit.Stop()
	again := time.NewTicker(provokeEvery)
	defer again.Stop()
	for waiting := true; waiting; {
		if err := provocation(ctx); err != nil {
			return err
		}
		select {
		case <-m.ended():
			waiting = false
		case <-limit.C:
			if err := m.Terminate(c.endLimit()); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return err
			}
			waiting = false
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-again.C:
		}
	}
	landed := m.killed() // or at last on its way out: some places are there
	if err := m.Start(ctx); err != nil {
		return err
	}
	if !landed {
		return fault.ErrNotLanded
	}
	return nil
}
