package harness

import (
	"context"
	"strings"
	"time"

	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/chaos/process"
	"github.com/waterclock-io/waterclock/internal/failpoint"
	"github.com/waterclock-io/waterclock/streams"
)

// The rig is the load that faults are aimed at.
var _ load = (*rig)(nil)

func (r *rig) burst(ctx context.Context) {
	r.bursting.Lock()
	defer r.bursting.Unlock()
	r.traffic.burst(ctx)
}

func (r *rig) cancels(ctx context.Context) {
	r.bursting.Lock()
	defer r.bursting.Unlock()
	r.traffic.cancels(ctx)
}

// stir makes runs fall due and cancels them; and for points that are passed on an error only it brings about the error.
func (r *rig) stir(kind string) {
	ctx := r.calls
	r.stirring.Go(func() {
		r.burst(ctx)
		r.cancels(ctx)
	})
	point := strings.TrimPrefix(kind, "failpoint ")
	var act func(ctx context.Context) error
	switch point {
	case failpoint.PlannerLost:
		act = r.loseMessages
	case failpoint.PlannerTakenBack:
		act = r.pauses
	case failpoint.RecorderBurying, failpoint.RecorderBuried:
		act = func(ctx context.Context) error { return r.garbage(ctx, streams.StatusSubject("garbage")) }
	case failpoint.EnqueueBurying, failpoint.EnqueueBuried:
		act = func(ctx context.Context) error { return r.garbage(ctx, enqueuePrefix+"default") }
	default:
		if !strings.HasPrefix(point, "change.") && !strings.HasPrefix(point, "withdraw.") {
			return
		}
		act = func(ctx context.Context) error { // one of several apis is armed
			r.burst(ctx)
			r.cancels(ctx)
			return nil
		}
	}
	r.stirring.Go(func() {
		// Until the point has been passed, and a little longer: the process is away for a while before, and now and then.
		until, cancel := context.WithTimeout(ctx, process.ReachLimit*3/2)
		defer cancel()
		for fault.Wait(until, 500*time.Millisecond) == nil {
			if err := act(ctx); err != nil { // to its end: what is asked for must be known to have happened
				r.log.Info("cannot stir", "kind", kind, "error", err)
			}
		}
	})
}

// pauses pauses jobs that are handed out and wait for a slot, and lets them go on.
func (r *rig) pauses(ctx context.Context) error {
	r.bursting.Lock()
	defer r.bursting.Unlock()
	r.traffic.burst(ctx)
	r.traffic.bursts.pauseLast(ctx, burstSize)
	return nil
}

// loseMessages takes what waits in RUNS out of it.
func (r *rig) loseMessages(ctx context.Context) error {
	js := r.traffic.js
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		if !strings.HasPrefix(name, streams.RunsStream+"-") {
			continue
		}
		s, err := js.Stream(ctx, name)
		if err != nil {
			return err
		}
		if err := s.Purge(ctx); err != nil {
			return err
		}
	}
	return names.Err()
}

// garbage publishes what nobody can parse.
func (r *rig) garbage(ctx context.Context, subject string) error {
	_, err := r.traffic.js.Publish(ctx, subject, []byte("\x07"+fault.Garbage))
	return err
}

// pauseLast pauses each of the last n jobs, and lets them go on.
func (c *client) pauseLast(ctx context.Context, n int) {
	last := c.mine[max(0, len(c.mine)-n):]
	for _, k := range last {
		c.pause(ctx, k)
	}
	for _, k := range last {
		c.resume(ctx, k)
	}
}
