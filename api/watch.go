package api

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/api/convert"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

// watchPoll is how often a watched run is looked at where nobody tells of a change: signals may be missed, and progress has none.
const watchPoll = 2 * time.Second

// WatchRun implements waterclockv1connect.RunServiceHandler.
func (s *service) WatchRun(
	ctx context.Context, req *connect.Request[waterclockv1.WatchRunRequest], stream *connect.ServerStream[waterclockv1.WatchRunResponse],
) error {
	f, err := s.runOf(ctx, req.Msg)
	if err != nil {
		return err
	}
	// Watched before it is read again, so that no change falls between.
	changed, stop := s.Watcher.Watch(f.id)
	defer stop()
	poll := time.NewTicker(watchPoll)
	defer poll.Stop()
	var sent *waterclockv1.Run
	jobID, runID := convert.ID(req.Msg.GetJobId()), f.id
	for {
		if f, err = s.findRun(ctx, jobID, runID); err != nil {
			return err
		}
		if !proto.Equal(f.shown, sent) {
			if err := stream.Send(&waterclockv1.WatchRunResponse{Run: f.shown}); err != nil {
				return err //nolint:wrapcheck // the client is gone
			}
			sent = f.shown
		}
		if convert.HasEnded(f.shown.GetState()) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-poll.C:
		}
	}
}
