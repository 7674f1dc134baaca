package api

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/api/control"
	"github.com/waterclock-io/waterclock/api/submit"
	"github.com/waterclock-io/waterclock/internal/failpoint"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// errMoved says that a job was changed between the look at its history and the lock, again and again.
var errMoved = errors.New("the job is being changed by others at this moment; try again")

const changeTries = 5

// decision is one of package control's, with its arguments bound. known is the job as it was read before, with its payload.
type decision func(known, locked *job.Job, timers []store.Timer, now time.Time, ended control.Ended) (control.Decision, error)

// changed is a job after a change.
type changed struct {
	job       *job.Job
	timers    []store.Timer
	decision  control.Decision
	cancelled []store.RunRow // runs that had been cancelled lately already, the newest first
}

// change applies a decision to a job of the caller, tells whom it concerns, and takes back what was handed out. With errNotWithdrawn it was applied.
//
// A run that has ended must never be made again, and only history knows which have. History cannot be read under the lock; so it is read before, with the
// job, and the decision is made only if nothing has changed the job since. Everything that ends an occurrence before its time, or makes one beside the
// schedule, does change it. The end of a run in its time does not: so which of the runs in question live is read before history, and none of them may be gone.
func (s *service) change(ctx context.Context, id uuid.UUID, decide decision, alsoEnded ...func(*job.Job) uuid.UUID) (*changed, error) {
	namespace := callerOf(ctx).Namespace
	for range changeTries {
		known, err := s.Store.Job(ctx, namespace, id)
		if err != nil {
			return nil, err
		}
		also := make([]uuid.UUID, len(alsoEnded))
		for i, f := range alsoEnded {
			also[i] = f(known)
		}
		var before []store.Timer
		if len(also) > 0 {
			if before, err = s.timers(ctx, known); err != nil {
				return nil, err
			}
		}
		out := &changed{}
		var ended control.Ended
		if ended, out.cancelled, err = s.endedRuns(ctx, known.ID, also); err != nil {
			return nil, err
		}
		out.job, out.timers, err = s.Store.ChangeJob(ctx, namespace, id, func(j *job.Job, timers []store.Timer, now time.Time) (store.Change, error) {
			endedSince := func(run uuid.UUID) bool { return lives(before, run) && !lives(timers, run) }
			if !j.UpdatedAt.Equal(known.UpdatedAt) || j.Version != known.Version || slices.ContainsFunc(also, endedSince) {
				return store.Change{}, errMoved
			}
			failpoint.Here(failpoint.ChangeDeciding)
			var err error
			out.decision, err = decide(known, j, timers, now, ended)
			return out.decision.Change, err
		})
		if errors.Is(err, errMoved) {
			continue
		}
		if err != nil {
			return nil, err
		}
		failpoint.Here(failpoint.ChangeCommitted)
		err = s.withdraw(ctx, out.decision.Withdraw)
		failpoint.Here(failpoint.ChangeWithdrawn)
		s.tell(ctx, out)
		failpoint.Here(failpoint.ChangeTold)
		return out, errors.Join(err, s.takeBack(ctx, out))
	}
	return nil, errMoved
}

// endedPage is how much history is read at once; endedPages bounds it where somebody has cancelled that many occurrences still to come.
const (
	endedPage  = 200
	endedPages = 50
)

func lives(timers []store.Timer, run uuid.UUID) bool {
	return slices.ContainsFunc(timers, func(t store.Timer) bool { return t.RunID == run })
}

// endedRuns returns which runs of a job have ended that a decision could want to make: those with a nominal time that has not long passed, and the given. The rows
// of those among the former that were cancelled lately come along.
func (s *service) endedRuns(ctx context.Context, jobID uuid.UUID, also []uuid.UUID) (control.Ended, []store.RunRow, error) {
	known := map[uuid.UUID]bool{}
	for _, id := range also {
		rows, err := s.Store.RunAttempts(ctx, jobID, id)
		if err != nil {
			return nil, nil, err
		}
		known[id] = slices.ContainsFunc(rows, func(r store.RunRow) bool { return r.Final })
	}
	// A minute covers the difference between our estimate of database time and the time under the lock, amply.
	recent, at := s.Clock.Now().Add(-time.Minute), store.RunPosition{}
	var cancelled []store.RunRow
	for range endedPages {
		rows, err := s.Store.ListRuns(ctx, jobID, at, endedPage)
		if err != nil {
			return nil, nil, err
		}
		for _, r := range rows {
			if s.cancelledLately(&r) {
				cancelled = append(cancelled, r)
			}
			known[r.RunID] = true
			at = store.RunPosition{At: r.ScheduledAt, RunID: r.RunID}
		}
		if len(rows) < endedPage || at.At.Before(recent) {
			break
		}
	}
	return func(run uuid.UUID) bool { return known[run] }, cancelled, nil
}

// tellTimeout is how long planners may be told of one change after its commit.
const tellTimeout = 5 * time.Second

// tell lets planners wake for what was committed. The caller's patience does not matter any more.
func (s *service) tell(ctx context.Context, c *changed) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
	defer cancel()
	now := s.Clock.Now()
	var soon []store.Timer
	for _, t := range slices.Concat(c.decision.Put, c.decision.Set) {
		if submit.DueSoon(&t, now) {
			soon = append(soon, t)
		}
	}
	if len(soon) == 0 {
		return
	}
	// Read anew for its payload, which ChangeJob does not promise. Where that fails the rows are found by their planners.
	j, err := s.Store.Job(ctx, c.job.Namespace, c.job.ID)
	if err != nil {
		s.Log.Debug("planners not told of a change", "job", c.job.ID, "error", err)
		return
	}
	rows := make([]*store.DueRow, len(soon))
	for i, t := range soon {
		rows[i] = submit.Row(j, t)
	}
	s.Waker.Wake(rows)
}
