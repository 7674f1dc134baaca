package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waterclock-io/waterclock/api/control"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// A cancel, a deletion and a pause are answered when what was handed out is taken back. Where nobody can do that now they are stored all the same, and fail; repeated,
// they take back what the first try has not. What was cancelled is in history by then.

// errNotWithdrawn says that a change was stored and that a run may still begin.
var errNotWithdrawn = errors.New("the change is stored, but a run that was handed out before cannot be taken back at this moment and may still begin; repeat the call until it succeeds")

const (
	// withdrawTimeout is how long taking back may take after a commit.
	withdrawTimeout = 5 * time.Second
	// withdrawAtOnce is how many runs are taken back at a time.
	withdrawAtOnce = 16
	// withdrawnFor is how long after its cancel a repeated call takes a run back once more, and withdrawnMost how many runs it does that for, the newest: all of
	// them must be done with in time.
	withdrawnFor  = time.Hour
	withdrawnMost = 100
)

// withdraw takes runs back and tells their executors to stop.
func (s *service) withdraw(ctx context.Context, timers []store.Timer) error {
	return s.eachBack(ctx, timers, func(ctx context.Context, t store.Timer) error {
		return s.Withdrawer.Withdraw(ctx, t, control.ReasonCancelled)
	})
}

// takeBack lets what a change holds up come back where no executor has got it.
func (s *service) takeBack(ctx context.Context, c *changed) error {
	return s.eachBack(ctx, c.decision.TakeBack, func(ctx context.Context, t store.Timer) error {
		return s.Withdrawer.TakeBack(ctx, t, func(ctx context.Context) bool { return s.moved(ctx, c.job, &t) })
	})
}

// moved tells whether a run that was handed out has begun, has ended or is back; where SQL does not answer it may not have.
func (s *service) moved(ctx context.Context, j *job.Job, t *store.Timer) bool {
	now, err := s.timers(ctx, j)
	return err == nil && !slices.ContainsFunc(now, func(o store.Timer) bool {
		return o.RunID == t.RunID && o.Dispatch == t.Dispatch && o.Step == job.StepDispatched
	})
}

// eachBack takes runs back, many at a time. The caller's patience does not matter any more.
func (s *service) eachBack(ctx context.Context, timers []store.Timer, back func(context.Context, store.Timer) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTimeout)
	defer cancel()
	var all errgroup.Group
	all.SetLimit(withdrawAtOnce)
	for _, t := range timers {
		all.Go(func() error {
			if err := back(ctx, t); err != nil {
				s.Log.Warn("cannot take back a run that was handed out; it may still begin", "run", t.RunID, "error", err)
				return fmt.Errorf("%w: %v", errNotWithdrawn, err) //nolint:errorlint // that the time for it was over is not that of the call
			}
			return nil
		})
	}
	return all.Wait()
}

// withdrawAgain takes back those of a job's runs that were cancelled lately: what cancelled them may have failed to.
func (s *service) withdrawAgain(ctx context.Context, j *job.Job, rows []store.RunRow) error {
	var timers []store.Timer
	for i := range rows {
		if r := &rows[i]; s.cancelledLately(r) && len(timers) < 2*withdrawnMost {
			// History does not say whose the queue was.
			timers = append(timers, handedOut(j, r, j.Namespace), handedOut(j, r, job.SharedNamespace))
		}
	}
	return s.withdraw(ctx, timers)
}

// cancelledLately tells whether a run that has ended was handed out, and cancelled so short a time ago that its message may still be there.
func (s *service) cancelledLately(r *store.RunRow) bool {
	return r.Final && r.Step == job.StepCancelled && r.Dispatch > 0 && r.EndedAt.After(s.Clock.Now().Add(-withdrawnFor))
}

// handedOut returns a run that has ended as it was when it was handed out. History does not say when that was: before its end.
func handedOut(j *job.Job, r *store.RunRow, queueNamespace string) store.Timer {
	step := job.StepDispatched
	if !r.StartedAt.IsZero() {
		step = job.StepRunning
	}
	return store.Timer{
		TimerKey: store.TimerKey{Shard: j.Shard, DueAt: r.DueAt, RunID: r.RunID}, JobID: r.JobID, Namespace: r.Namespace, QueueNamespace: queueNamespace,
		Queue: r.Queue, Priority: r.Priority, Kind: r.Kind, Step: step, Origin: r.Origin, ScheduledAt: r.ScheduledAt, Attempt: r.Attempt,
		Dispatch: r.Dispatch, DispatchedAt: r.EndedAt, Executor: r.Executor,
	}
}
