// Package fault says what a fault of a fault run is, and has what all faults need: draws, and waits that end with the run. It brings none about: the single host
// (package chaos/harness) and the cluster (package chaos/cluster) each offer those that they can bring, and the harness draws from what they offer.
package fault

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// The groups of faults, by which they are asked for.
const (
	Process   = "process"
	Stop      = "stop"
	Link      = "link"
	NATS      = "nats"
	Stream    = "stream"
	SQL       = "sql"
	Failpoint = "failpoint"
	Clock     = "clock"
	Deploy    = "deploy"
)

// Bringer brings a fault about, lets it last as long as rng says, heals it, and returns once what it hit is up again. ErrNotLanded means that nothing went wrong
// (a failpoint that was not reached); any other error means that the run itself went wrong, and nothing is proved.
type Bringer func(ctx context.Context, rng *rand.Rand) error

// Fault is one thing that can go wrong. Kinds are told apart by their name alone; a world may offer one kind many times over (one for each process, say),
// and the draw is then between kinds first.
type Fault struct {
	// Kind is what a report counts by: "kill -9 executor".
	Kind string
	// Group is one of those above.
	Group string
	// Loses tells that what only NATS knew may be gone afterwards: publishes that nobody had taken from there yet.
	Loses bool
	Bring Bringer
}

// ErrNotLanded is returned by a fault that was brought and hit nothing; what it had changed is as before.
var ErrNotLanded = errors.New("the fault did not land")

// Garbage is in what faults put into streams to make a process meet what it cannot take; nothing is said of where that ends.
const Garbage = "garbage of a fault run"

// Between draws a time from one to the other, both included.
func Between(rng *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(rng.Int64N(int64(to-from)+1))
}

// Pick draws an element.
func Pick[T any](rng *rand.Rand, of []T) T { return of[rng.IntN(len(of))] }

// Wait lets a time pass. The error is why ctx ended before.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Lasting does something, lets it last, and undoes it in any case: also where ctx ends meanwhile.
func Lasting(ctx context.Context, d time.Duration, do, undo func() error) error {
	if err := do(); err != nil {
		return errors.Join(err, undo())
	}
	return errors.Join(Wait(ctx, d), undo())
}
