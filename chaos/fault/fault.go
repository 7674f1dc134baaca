// Package fault says what a fault of a fault run is. It brings none about: the single host (package chaos/harness) and the cluster (package chaos/cluster)
// each offer those that they can bring, and the harness draws from what they offer.
package fault

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Fault is one thing that can go wrong. Kinds are told apart by their name alone; a world may offer one kind many times over (one for each process, say),
// and the draw is then between kinds first.
type Fault struct {
	// Kind is what a report counts by: "kill -9 executor".
	Kind string
	// Group is what FAULTS= selects: process, stop, link, nats, stream, sql, failpoint, clock, deploy.
	Group string
	// Loses tells that what only NATS knew may be gone afterwards: publishes that nobody had taken from there yet.
	Loses bool
	// Bring brings the fault about, lets it last as long as rng says, heals it, and returns once what it hit is up again. ErrNotLanded means that nothing
	// went wrong (a failpoint that was not reached); any other error means that the run itself went wrong, and nothing is proved.
	Bring func(ctx context.Context, rng *rand.Rand) error
}

// ErrNotLanded is returned by a fault that was brought and hit nothing; what it had changed is as before.
var ErrNotLanded = errors.New("the fault did not land")

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
