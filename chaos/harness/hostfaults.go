package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/internal/failpoint"
)

// armedLimit is how long a process with a failpoint may live before it is said not to have reached it.
const armedLimit = 8 * time.Second

// faults are those of a single host. A wrong clock is none of them: on SQLite the clock of the machine is that of the database, by which everything is decided.
func (h *host) faults() []fault.Fault {
	out := []fault.Fault{
		{Kind: "kill -9", Group: "process", Bring: h.killed(nil)},
		{Kind: "kill -9 twice within a second", Group: "process", Bring: h.killed(h.killStarting)},
		{Kind: "stop longer than the lease", Group: "process", Bring: h.stopped},
		{Kind: "terminate and restart", Group: "deploy", Bring: h.restarted},
		{Kind: "NATS back with empty data", Group: "nats", Loses: true, Bring: h.killed(h.emptyNATS)},
		{Kind: "NATS back with older data", Group: "nats", Loses: true, Bring: h.olderNATS},
		{Kind: "commit answers lost", Group: "sql", Bring: h.armedFor("store.commit=lost:0.05")},
		{Kind: "transactions retried at random", Group: "sql", Bring: h.armedFor("store.retry=error:0.2")},
	}
	for _, p := range failpoint.All {
		out = append(out, fault.Fault{Kind: "failpoint " + p.Name, Group: "failpoint", Loses: p.Name == failpoint.StreamsGeneration, Bring: h.failpoint(p.Name)})
	}
	return out
}

// killed is kill -9 and, now and then after a while, a start; between the two something more may happen.
func (h *host) killed(down func(ctx context.Context, rng *rand.Rand) error) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, rng *rand.Rand) error {
		if !h.kill() {
			return errors.New("the process was gone before it was killed; see process.log")
		}
		if down != nil {
			if err := down(ctx, rng); err != nil {
				return err
			}
		}
		if rng.IntN(2) == 0 {
			if err := fault.Wait(ctx, time.Duration(rng.Int64N(int64(3*time.Second)))); err != nil {
				return err
			}
		}
		return h.start(ctx)
	}
}

// killStarting starts the process and kills it within a second.
func (h *host) killStarting(ctx context.Context, rng *rand.Rand) error {
	for range addressTries {
		if _, _, err := h.launch(nil); err != nil {
			return err
		}
		if err := fault.Wait(ctx, time.Duration(rng.Int64N(int64(time.Second)))); err != nil {
			return err
		}
		if h.kill() {
			return nil
		}
		if !h.addressInUse() {
			break
		}
	}
	return errors.New("the process ended by itself while it started; see process.log")
}

func (h *host) stopped(ctx context.Context, rng *rand.Rand) error {
	if err := h.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err := fault.Wait(ctx, h.lease+time.Duration(rng.Int64N(int64(2500*time.Millisecond))))
	return errors.Join(err, h.signal(syscall.SIGCONT))
}

// restarted is what a deploy does.
func (h *host) restarted(ctx context.Context, _ *rand.Rand) error {
	if err := h.stop(ctx); err != nil {
		return err
	}
	return h.start(ctx)
}

// armedFor lets the process run for a while with an error injected at random.
func (h *host) armedFor(points string) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, rng *rand.Rand) error {
		return h.changed(ctx, rng, "WATERCLOCK_FAILPOINTS="+points)
	}
}

// changed starts the process anew with something in its environment, and some seconds later without it.
func (h *host) changed(ctx context.Context, rng *rand.Rand, env string) error {
	h.kill()
	up, done, err := h.launch([]string{env})
	if err != nil {
		return err
	}
	select {
	case <-up:
		err = fault.Wait(ctx, time.Second+time.Duration(rng.Int64N(int64(4*time.Second))))
	case <-done:
		err = fmt.Errorf("the process does not start with %s: %w", env, fault.ErrNotLanded)
	case <-time.After(upLimit):
		err = fmt.Errorf("the process does not come up with %s", env)
	}
	if !h.kill() && err == nil {
		err = fmt.Errorf("the process ended by itself with %s", env)
	}
	return errors.Join(err, h.start(ctx))
}

// failpoint starts the process anew so that it dies at a point, and then without.
func (h *host) failpoint(name string) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, rng *rand.Rand) error {
		h.kill()
		if name == failpoint.StreamsGeneration { // passed only where RUNS is gone
			if err := os.RemoveAll(h.natsData()); err != nil {
				return err
			}
		}
		pass := 1 + rng.IntN(2)
		if name == failpoint.ExecutorFlushing { // passed once, at the end
			pass = 1
		}
		up, done, err := h.launch([]string{fmt.Sprintf("%s=%s=kill@%d", failpoint.Variable, name, pass)})
		if err != nil {
			return err
		}
		over := time.NewTimer(armedLimit)
		defer over.Stop()
		select {
		case <-up:
			if name == failpoint.ExecutorFlushing {
				if err := fault.Wait(ctx, time.Second); err != nil {
					return err
				}
				_ = h.signal(syscall.SIGTERM) // gone already, at worst
			}
			select {
			case <-done:
			case <-over.C:
				err = fault.ErrNotLanded
			}
		case <-done:
		case <-over.C:
			err = fault.ErrNotLanded
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err == nil && !h.diedAt(name) {
			err = fault.ErrNotLanded
		}
		h.kill()
		return errors.Join(err, h.start(ctx))
	}
}

// diedAt tells whether the last that the process said was that it dies at a point.
func (h *host) diedAt(name string) bool {
	return strings.Contains(h.lastWords(), "failpoint "+name+": killed")
}

// natsData is where the embedded NATS server keeps its streams.
func (h *host) natsData() string { return filepath.Join(h.dir, "nats") }

func (h *host) emptyNATS(context.Context, *rand.Rand) error { return os.RemoveAll(h.natsData()) }

// olderNATS brings the streams back as they were some seconds before.
func (h *host) olderNATS(ctx context.Context, rng *rand.Rand) error {
	// A copy of files that are written to is as torn as what a crash leaves; one of a stopped process is whole.
	if err := h.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	older := h.natsData() + ".older"
	err := errors.Join(os.RemoveAll(older), copyTree(h.natsData(), older))
	if err := errors.Join(err, h.signal(syscall.SIGCONT)); err != nil {
		return err
	}
	if err := fault.Wait(ctx, time.Second+time.Duration(rng.Int64N(int64(3*time.Second)))); err != nil {
		return err
	}
	return h.killed(func(context.Context, *rand.Rand) error {
		return errors.Join(os.RemoveAll(h.natsData()), os.Rename(older, h.natsData()))
	})(ctx, rng)
}

// copyTree copies a folder. What goes while it is read is passed over.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if e.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(target, b, 0o600)
	})
}
