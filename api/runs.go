package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/api/control"
	"github.com/waterclock-io/waterclock/api/convert"
	"github.com/waterclock-io/waterclock/job"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
)

// GetRun implements waterclockv1connect.RunServiceHandler.
func (s *service) GetRun(ctx context.Context, req *connect.Request[waterclockv1.GetRunRequest]) (*connect.Response[waterclockv1.GetRunResponse], error) {
	f, err := s.runOf(ctx, req.Msg)
	if err != nil {
		return nil, err
	}
	if err := s.fetchResult(ctx, f.shown.GetOutcome()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&waterclockv1.GetRunResponse{Run: f.shown}), nil
}

// maxFetched is the largest stored result that is sent along with its run; a larger one is read where its address says.
const maxFetched = 3 << 20

// fetchResult fills in a result that is kept in the blob store. One that is gone leaves its address.
func (s *service) fetchResult(ctx context.Context, o *waterclockv1.Outcome) error {
	if o.GetResultRef() == "" || s.Blobs == nil {
		return nil
	}
	r, err := s.Blobs.Open(ctx, o.ResultRef)
	if err != nil {
		s.Log.Warn("a stored result cannot be read", "ref", o.ResultRef, "error", err)
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(r, maxFetched+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("read a stored result: %w", err)
	}
	if len(b) <= maxFetched {
		o.Result = b
	}
	return nil
}

// runRequest is any request that names a run of a job.
type runRequest interface {
	GetJobId() string
	GetRunId() string
}

// runOf finds the run that a request of the caller names.
func (s *service) runOf(ctx context.Context, m runRequest) (*foundRun, error) {
	return s.findRun(ctx, convert.ID(m.GetJobId()), convert.ID(m.GetRunId()))
}

// CancelRun implements waterclockv1connect.RunServiceHandler.
func (s *service) CancelRun(ctx context.Context, req *connect.Request[waterclockv1.CancelRunRequest]) (*connect.Response[waterclockv1.CancelRunResponse], error) {
	id, run := convert.ID(req.Msg.GetJobId()), convert.ID(req.Msg.GetRunId())
	c, err := s.change(ctx, id, func(_, j *job.Job, timers []store.Timer, now time.Time, ended control.Ended) (control.Decision, error) {
		return control.Cancel(j, timers, now, run, ended)
	})
	if errors.Is(err, store.ErrNotFound) && run != uuid.Nil {
		// One that has ended stays as it is, and is shown.
		return s.cancelEnded(ctx, id, run)
	}
	if err == nil && run == uuid.Nil {
		err = s.withdrawAgain(ctx, c.job, c.cancelled)
	}
	if err != nil {
		return nil, err
	}
	out := &waterclockv1.CancelRunResponse{}
	for i := range c.decision.Runs {
		out.Runs = append(out.Runs, convert.Ended(&c.decision.Runs[i]))
	}
	view := s.view()
	for i := range c.timers {
		if t := &c.timers[i]; slices.Contains(c.decision.Cancelled, t.RunID) {
			out.Runs = append(out.Runs, view.Live(t))
		}
	}
	return connect.NewResponse(out), nil
}

func (s *service) cancelEnded(ctx context.Context, id, run uuid.UUID) (*connect.Response[waterclockv1.CancelRunResponse], error) {
	f, err := s.findRun(ctx, id, run)
	if err != nil {
		return nil, err
	}
	if err := s.withdrawAgain(ctx, f.job, f.rows); err != nil {
		return nil, err
	}
	return connect.NewResponse(&waterclockv1.CancelRunResponse{Runs: []*waterclockv1.Run{f.shown}}), nil
}

// newestFirst orders a list of runs: by nominal time, then by id, descending.
func newestFirst(aAt time.Time, aID uuid.UUID, bAt time.Time, bID uuid.UUID) int {
	if c := bAt.Compare(aAt); c != 0 {
		return c
	}
	return bytes.Compare(bID[:], aID[:])
}
