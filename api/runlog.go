package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waterclock-io/waterclock/job/fielderr"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
)

// errNoLog says that this process has no way to read logs.
var errNoLog = errors.New("this server has no access to the store of logs")

// liveIdle is how long nothing must come of a live log before a reader that does not follow takes it for all there is.
const liveIdle = 300 * time.Millisecond

// ReadRunLog implements waterclockv1connect.RunServiceHandler.
func (s *service) ReadRunLog(
	ctx context.Context, req *connect.Request[waterclockv1.ReadRunLogRequest], stream *connect.ServerStream[waterclockv1.ReadRunLogResponse],
) error {
	f, err := s.runWithLog(ctx, req.Msg)
	if err != nil {
		return err
	}
	asked := req.Msg.GetAttempt()
	if row := endedAttempt(f, asked, req.Msg.GetFollow()); row != nil {
		if row.LogRef == "" {
			return nil // it wrote nothing
		}
		return s.sendStored(ctx, row, stream)
	}
	if f.live == nil || (asked != 0 && asked != f.live.Attempt) {
		return &fielderr.FieldError{Field: "attempt", Given: strconv.Itoa(int(asked)), Allowed: "an attempt that the run has made, or 0 for the latest"}
	}
	return s.sendLive(ctx, f, req.Msg.GetFollow(), stream)
}

// runWithLog finds the run whose log is asked for. Where none is named and nobody waits for what comes, a run that has not begun has nothing to show: then it
// is the one that ended last.
func (s *service) runWithLog(ctx context.Context, m *waterclockv1.ReadRunLogRequest) (*foundRun, error) {
	f, err := s.runOf(ctx, m)
	if err != nil || m.GetRunId() != "" || m.GetFollow() || f.live == nil || f.live.Step.InFlight() || len(f.rows) > 0 {
		return f, err
	}
	last, err := s.Store.LastRuns(ctx, []uuid.UUID{f.live.JobID})
	if err != nil {
		return nil, err
	}
	if r, ok := last[f.live.JobID]; ok {
		return s.findRun(ctx, r.JobID, r.RunID)
	}
	return f, nil
}

// endedAttempt returns the ended attempt whose log is asked for; nil where it is the one that goes on, or comes.
func endedAttempt(f *foundRun, asked int32, follow bool) *store.RunRow {
	n := len(f.rows)
	if asked == 0 {
		waits := f.live != nil && !f.live.Step.InFlight()
		if n > 0 && (f.live == nil || (waits && !follow)) {
			return &f.rows[n-1]
		}
		return nil
	}
	for i := range f.rows {
		if f.rows[i].Attempt == asked {
			return &f.rows[i]
		}
	}
	return nil
}

func (s *service) sendStored(ctx context.Context, row *store.RunRow, stream *connect.ServerStream[waterclockv1.ReadRunLogResponse]) error {
	if s.Blobs == nil || s.DecodeLog == nil {
		return errNoLog
	}
	blob, err := s.Blobs.Open(ctx, row.LogRef)
	if err != nil {
		return fmt.Errorf("open log %s: %w", row.LogRef, err)
	}
	defer blob.Close() // only read
	for e, err := range s.DecodeLog(blob) {
		if err != nil {
			return fmt.Errorf("read log %s: %w", row.LogRef, err)
		}
		piece := &waterclockv1.ReadRunLogResponse{Stream: waterclockv1.LogStream(e.Stream), Time: timestamppb.New(e.Time), Data: e.Data, Cut: e.Cut}
		if err := stream.Send(piece); err != nil {
			return err //nolint:wrapcheck // the client is gone
		}
	}
	return nil
}

func (s *service) sendLive(ctx context.Context, f *foundRun, follow bool, stream *connect.ServerStream[waterclockv1.ReadRunLogResponse]) error {
	if s.LiveLog == nil {
		return errNoLog
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	read := ctx
	idle := time.NewTimer(liveIdle)
	defer idle.Stop()
	if !follow {
		var done context.CancelFunc
		read, done = context.WithCancel(ctx)
		defer done()
		go func() {
			select {
			case <-idle.C:
				done()
			case <-read.Done():
			}
		}()
	}
	for m, err := range s.LiveLog.Live(read, f.live.Namespace, f.id) {
		if read.Err() != nil && ctx.Err() == nil {
			return nil // all there is so far
		}
		if err != nil {
			return fmt.Errorf("read live log of run %s: %w", f.id, err)
		}
		idle.Reset(liveIdle)
		if m.GetAttempt() < f.live.Attempt {
			continue
		}
		if m.GetEnd() {
			return nil
		}
		if m.GetStream() == 0 {
			continue // progress
		}
		piece := &waterclockv1.ReadRunLogResponse{
			Stream: waterclockv1.LogStream(m.GetStream()), Time: timestamppb.New(time.UnixMicro(m.GetTime())), Data: m.GetData(), Cut: m.GetCut(),
		}
		if err := stream.Send(piece); err != nil {
			return err //nolint:wrapcheck // the client is gone
		}
	}
	return context.Cause(ctx)
}
