package api

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waterclock-io/waterclock/api/convert"
	"github.com/waterclock-io/waterclock/job"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
)

// foundRun is a run as it is found: alive, in history, or skipped.
type foundRun struct {
	id    uuid.UUID
	job   *job.Job // without its payload
	shown *waterclockv1.Run
	live  *store.Timer   // nil where it has ended
	rows  []store.RunRow // of attempts that have ended
}

func (s *service) view() convert.View {
	v := convert.View{Now: s.Clock.Now()}
	if s.Executors != nil {
		v.Offers = s.Executors.Offers
	}
	return v
}

func (s *service) timers(ctx context.Context, j *job.Job) ([]store.Timer, error) {
	m, err := s.Store.Timers(ctx, []*job.Job{j})
	return m[j.ID], err
}

// currentRun returns the run that has not ended and is due first, else the last that ended, else nil.
func (s *service) currentRun(ctx context.Context, j *job.Job, timers []store.Timer) (*waterclockv1.Run, error) {
	if len(timers) > 0 {
		return s.view().Live(&timers[0]), nil
	}
	last, err := s.Store.LastRuns(ctx, []uuid.UUID{j.ID})
	if err != nil {
		return nil, err
	}
	if r, ok := last[j.ID]; ok {
		return convert.Ended(&r), nil
	}
	return nil, nil
}

// findTries is how often a run is looked for that moves from the live rows to history, or back to the live rows, between two reads.
const findTries = 3

// findRun returns a run of a job of the caller's with its attempts; for the zero id the current one. store.ErrNotFound.
func (s *service) findRun(ctx context.Context, jobID, id uuid.UUID) (*foundRun, error) {
	for range findTries {
		st, err := s.standing(ctx, jobID)
		if err != nil {
			return nil, err
		}
		f := &foundRun{id: id, job: st.job}
		for i := range st.timers {
			if id == uuid.Nil || st.timers[i].RunID == id {
				f.id, f.live = st.timers[i].RunID, &st.timers[i]
				break
			}
		}
		if f.id == uuid.Nil {
			if st.last == nil {
				return nil, fmt.Errorf("job %s has had no run: %w", jobID, store.ErrNotFound)
			}
			f.id = st.last.RunID
		}
		if f.rows, err = s.attempts(ctx, st, f); err != nil {
			return nil, err
		}
		n := len(f.rows)
		switch {
		case n > 0 && f.rows[n-1].Final:
			f.live, f.shown = nil, convert.WithAttempts(convert.Ended(&f.rows[n-1]), f.rows)
			return f, nil
		case f.live != nil:
			f.shown = convert.WithAttempts(s.view().Live(f.live), f.rows)
			s.addProgress(ctx, f)
			return f, nil
		case n == 0:
			f.shown, err = s.skippedRun(ctx, st.job, f.id)
			return f, err
		}
	}
	return nil, fmt.Errorf("run %s of job %s: %w", id, jobID, store.ErrNotFound)
}

// attempts returns the history rows of a run. SQL is asked only where there may be more than what is known: history keeps one row for each attempt that ended.
func (s *service) attempts(ctx context.Context, st *standing, f *foundRun) ([]store.RunRow, error) {
	switch {
	case f.live != nil && f.live.Attempt == 1:
		return nil, nil
	case st.last != nil && st.last.RunID == f.id && st.last.Attempt == 1:
		return []store.RunRow{*st.last}, nil
	}
	return s.Store.RunAttempts(ctx, st.job.ID, f.id)
}

// skipsSearched is how far back a skipped run is looked for by its id: skips are kept by their time.
const skipsSearched = 1000

func (s *service) skippedRun(ctx context.Context, j *job.Job, id uuid.UUID) (*waterclockv1.Run, error) {
	skips, err := s.Store.ListSkips(ctx, j.ID, time.Time{}, skipsSearched)
	if err != nil {
		return nil, err
	}
	for i := range skips {
		if job.RunID(j.ID, job.FromSchedule, skips[i].NominalAt, "") == id {
			return convert.Skipped(j, &skips[i]), nil
		}
	}
	return nil, fmt.Errorf("run %s of job %s: %w", id, j.ID, store.ErrNotFound)
}

func (s *service) addProgress(ctx context.Context, f *foundRun) {
	if s.Progress == nil || !f.live.Step.InFlight() {
		return
	}
	p, ok := s.Progress.Progress(ctx, f.live.Namespace, f.live.RunID)
	if !ok || p.GetDispatch() != f.live.Dispatch {
		return
	}
	f.shown.Progress = &waterclockv1.Progress{Fraction: p.GetFraction(), Message: p.GetNote(), UpdateTime: timestamppb.New(time.UnixMicro(p.GetTime()))}
}
