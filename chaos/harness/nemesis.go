package harness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"
)

// Fault is a kind of fault.
type Fault string

// The faults of a single host.
const (
	Kill      Fault = "kill -9"
	KillTwice Fault = "kill -9 twice within a second"
	KillBurst Fault = "kill -9 right after a burst of deliveries"
	// KillCancel finds cancels in every step between their commit and their answer, of runs that are handed out.
	KillCancel Fault = "kill -9 in the midst of cancels"
	Stop       Fault = "SIGSTOP longer than the lease"
)

// nemesis brings faults upon the host, one after the other.
type nemesis struct {
	host *host
	rng  *rand.Rand
	// burst makes many runs fall due at once.
	burst func()
	// cancels asks for the cancel of each of the last burst, and does not wait for the answers.
	cancels func()
	// landed counts what took place; outages are when, to the moment when the host was told to go on.
	landed  map[Fault]int
	outages []outage
}

type outage struct{ from, till time.Time }

// plan draws the faults of a run: as many kills as asked for, each kind once at least where there are enough, and a stop for every eight kills.
func plan(rng *rand.Rand, kills int) []Fault {
	kinds := []Fault{Kill, KillTwice, KillBurst, KillCancel}
	var out []Fault
	for left := kills; left > 0; {
		f := kinds[len(out)%len(kinds)]
		if len(out) >= len(kinds) {
			f = kinds[rng.IntN(len(kinds))]
		}
		if f == KillTwice && left < 2 {
			f = Kill
		}
		left--
		if f == KillTwice {
			left--
		}
		out = append(out, f)
	}
	for range (kills + 7) / 8 {
		out = append(out, Stop)
	}
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// work brings the faults, spread over a time.
func (n *nemesis) work(ctx context.Context, faults []Fault, over time.Duration) error {
	began := time.Now()
	for i, f := range faults {
		// What is left of the time is shared by what is left of the faults, each at a random moment of its share, so that no rhythm hides anything.
		share := max(over-time.Since(began), 0) / time.Duration(len(faults)-i)
		if err := wait(ctx, time.Duration(n.rng.Int64N(int64(share)+1))); err != nil {
			return err
		}
		if err := n.bring(ctx, f); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return nil
}

func (n *nemesis) bring(ctx context.Context, f Fault) error {
	n.host.note("fault: %s", f)
	var before time.Duration
	switch f {
	case KillBurst:
		n.burst()
		before = 150 * time.Millisecond
	case KillCancel:
		n.burst()
		n.cancels()
		before = 30 * time.Millisecond
	}
	if before > 0 {
		if err := wait(ctx, time.Duration(n.rng.Int64N(int64(before)))); err != nil {
			return err
		}
	}
	from := time.Now()
	if f == Stop {
		if err := n.stop(ctx); err != nil {
			return err
		}
		n.landed[f]++
		n.outages = append(n.outages, outage{from, time.Now()})
		return nil
	}
	if !n.host.kill() {
		return errors.New("the process was gone before it was killed; see process.log")
	}
	if f == KillTwice {
		if err := n.killStarting(ctx); err != nil {
			return err
		}
	}
	if n.rng.IntN(2) == 0 {
		if err := wait(ctx, time.Duration(n.rng.Int64N(int64(3*time.Second)))); err != nil {
			return err
		}
	}
	n.landed[f]++
	n.outages = append(n.outages, outage{from, time.Now()})
	return n.host.start(ctx)
}

// killStarting starts the process and kills it within a second.
func (n *nemesis) killStarting(ctx context.Context) error {
	for range addressTries {
		if _, _, err := n.host.launch(); err != nil {
			return err
		}
		if err := wait(ctx, time.Duration(n.rng.Int64N(int64(time.Second)))); err != nil {
			return err
		}
		if n.host.kill() {
			return nil
		}
		if !n.host.addressInUse() {
			break
		}
	}
	return errors.New("the process ended by itself while it started; see process.log")
}

func (n *nemesis) stop(ctx context.Context) error {
	if err := n.host.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err := wait(ctx, lease+time.Duration(n.rng.Int64N(int64(2500*time.Millisecond))))
	return errors.Join(err, n.host.signal(syscall.SIGCONT))
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
