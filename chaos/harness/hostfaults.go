package harness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/chaos/process"
	"github.com/waterclock-io/waterclock/internal/failpoint"
)

// faults are those of a single host. A wrong clock is none of them: on SQLite the clock of the machine is that of the database, by which everything is decided.
func (h *host) faults() []fault.Fault {
	out := []fault.Fault{
		{Kind: "kill -9", Group: fault.Process, Bring: h.killed(nil)},
		{Kind: "kill -9 twice within a second", Group: fault.Process, Bring: h.killed(h.killStarting)},
		{Kind: "stop longer than the lease", Group: fault.Stop, Bring: h.stopped},
		{Kind: "terminate and restart", Group: fault.Deploy, Bring: h.restarted},
		{Kind: "NATS back with empty data", Group: fault.NATS, Loses: true, Bring: h.killed(h.emptyNATS)},
		{Kind: "NATS back with older data", Group: fault.NATS, Loses: true, Bring: h.olderNATS},
		{Kind: "commit answers lost", Group: fault.SQL, Bring: h.armed(failpoint.StoreCommit, "lost:0.05")},
		{Kind: "transactions retried at random", Group: fault.SQL, Bring: h.armed(failpoint.StoreRetry, "error:0.2")},
	}
	for _, p := range failpoint.All {
		out = append(out, fault.Fault{Kind: "failpoint " + p.Name, Group: fault.Failpoint, Loses: p.Name == failpoint.StreamsGeneration, Bring: h.failpoint(p.Name)})
	}
	return out
}

// killed is kill -9 and, now and then after a while, a start; between the two something more may happen.
func (h *host) killed(down fault.Bringer) fault.Bringer {
	return func(ctx context.Context, rng *rand.Rand) error {
		if err := h.Kill(); err != nil {
			return err
		}
		if down != nil {
			if err := down(ctx, rng); err != nil {
				return err
			}
		}
		if rng.IntN(2) == 0 {
			if err := fault.Wait(ctx, fault.Between(rng, 0, 3*time.Second)); err != nil {
				return err
			}
		}
		return h.Start(ctx)
	}
}

// killStarting starts the process and kills it within a second.
func (h *host) killStarting(ctx context.Context, rng *rand.Rand) error {
	for {
		if err := h.Launch(); err != nil {
			return err
		}
		if err := fault.Wait(ctx, fault.Between(rng, 0, time.Second)); err != nil {
			return err
		}
		err := h.Kill()
		if err == nil || !h.AddressInUse() {
			return err
		}
	}
}

func (h *host) stopped(ctx context.Context, rng *rand.Rand) error {
	return fault.Lasting(ctx, fault.Between(rng, h.lease, h.lease+2500*time.Millisecond), h.Stop, h.Cont)
}

// restarted is what a deploy does.
func (h *host) restarted(ctx context.Context, _ *rand.Rand) error {
	if err := h.stop(ctx); err != nil {
		return err
	}
	return h.Start(ctx)
}

// armed kills the process, lets it run for some seconds with a failpoint that hands out errors, and then without.
func (h *host) armed(point, action string) fault.Bringer {
	return func(ctx context.Context, rng *rand.Rand) error {
		if err := h.Kill(); err != nil {
			return err
		}
		err := h.Start(ctx, failpoint.Variable+"="+point+"="+action)
		if err == nil {
			err = fault.Wait(ctx, fault.Between(rng, time.Second, 5*time.Second))
		}
		struck := h.Said(failpoint.Struck(point))
		if errors.Is(err, process.ErrEnded) && struck { // it may give up over an error while it starts
			err = nil
		} else {
			err = errors.Join(err, h.Kill())
		}
		if err := errors.Join(err, h.Start(ctx)); err != nil {
			return err
		}
		if !struck {
			return fault.ErrNotLanded
		}
		return nil
	}
}

// failpoint starts the process anew so that it dies at a point, and then without.
func (h *host) failpoint(name string) fault.Bringer {
	return func(ctx context.Context, rng *rand.Rand) error {
		if err := h.Kill(); err != nil {
			return err
		}
		if name == failpoint.StreamsGeneration { // passed only where RUNS is gone
			if err := os.RemoveAll(h.natsData()); err != nil {
				return err
			}
		}
		pass := 1 + rng.IntN(2)
		if name == failpoint.ExecutorFlushing { // passed once, at the end
			pass = 1
		}
		reached, err := h.Reach(ctx, name, pass, stopLimit, nil)
		if err != nil {
			return err
		}
		if err := h.Start(ctx); err != nil {
			return err
		}
		if !reached {
			return fault.ErrNotLanded
		}
		return nil
	}
}

// natsData is where the embedded NATS server keeps its streams.
func (h *host) natsData() string { return filepath.Join(h.dir, "nats") }

func (h *host) emptyNATS(context.Context, *rand.Rand) error { return os.RemoveAll(h.natsData()) }

// olderNATS brings the streams back as they were some seconds before.
func (h *host) olderNATS(ctx context.Context, rng *rand.Rand) error {
	older := h.natsData() + ".older"
	// A process that is stopped has its files as they would be after a kill in that moment.
	keep := func() error {
		if err := errors.Join(h.Stop(), os.RemoveAll(older), os.CopyFS(older, os.DirFS(h.natsData()))); err != nil {
			return fmt.Errorf("keep the data of NATS: %w", err)
		}
		return nil
	}
	if err := fault.Lasting(ctx, 0, keep, h.Cont); err != nil {
		return err
	}
	if err := fault.Wait(ctx, fault.Between(rng, time.Second, 4*time.Second)); err != nil {
		return err
	}
	return h.killed(func(context.Context, *rand.Rand) error {
		return errors.Join(os.RemoveAll(h.natsData()), os.Rename(older, h.natsData()))
	})(ctx, rng)
}
