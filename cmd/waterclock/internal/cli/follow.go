package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"

	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

const (
	maxReconnects = 10
	maxReconnect  = 5 * time.Second
)

var errCut = connect.NewError(connect.CodeUnavailable, errors.New("the server ended the stream before the run had ended"))

// follow watches a run until it has ended and calls seen for every message. A stream that breaks is opened again, since servers are restarted
// while runs go on; but not where nothing was seen yet and last is nil, for then the server was never there.
func (a *app) follow(
	ctx context.Context, c *client, jobID, runID string, last *waterclockv1.Run, seen func(*waterclockv1.Run) error,
) (*waterclockv1.Run, error) {
	for failures := 0; ; failures++ {
		before := last
		var err error
		last, err = watchOnce(ctx, c, jobID, runID, last, seen)
		if err == nil {
			return last, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if last == nil || failures >= maxReconnects || connect.CodeOf(err) != connect.CodeUnavailable {
			return nil, err
		}
		runID = last.GetRunId()
		if last != before {
			failures = 0
		}
		timer := time.NewTimer(min(a.reconnect<<failures, maxReconnect))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

// watchOnce returns the last state that it saw, or the one given where it saw none; without an error, that is a terminal one.
func watchOnce(
	ctx context.Context, c *client, jobID, runID string, last *waterclockv1.Run, seen func(*waterclockv1.Run) error,
) (_ *waterclockv1.Run, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.runs.WatchRun(ctx, connect.NewRequest(&waterclockv1.WatchRunRequest{JobId: jobID, RunId: runID}))
	if err != nil {
		return last, err
	}
	for stream.Receive() {
		last = stream.Msg().GetRun()
		if err := seen(last); err != nil {
			cancel()
			return last, errors.Join(err, stream.Close())
		}
	}
	err = stream.Err()
	if closeErr := stream.Close(); err == nil {
		err = closeErr
	}
	if terminal(last.GetState()) {
		return last, nil // whatever became of the stream afterwards
	}
	if err == nil {
		err = errCut
	}
	return last, err
}

func terminal(s waterclockv1.RunState) bool { return s >= waterclockv1.RunState_RUN_STATE_SUCCEEDED }

// progressLine is the state of a run in a line, for those who read along.
func (a *app) progressLine(w io.Writer, r *waterclockv1.Run) string {
	parts := []string{a.Now().Format(time.TimeOnly), a.paint(w).state(runState(r.GetState()))}
	if r.GetAttempt() > 1 {
		parts = append(parts, fmt.Sprintf("attempt %d", r.GetAttempt()))
	}
	if reason := reasonText(r); reason != "" {
		parts = append(parts, "("+reason+")")
	}
	if r.GetProgress() != nil && !terminal(r.GetState()) {
		parts = append(parts, progressText(r))
	}
	if r.GetState() == waterclockv1.RunState_RUN_STATE_SCHEDULED || r.GetState() == waterclockv1.RunState_RUN_STATE_RETRYING {
		parts = append(parts, "due "+a.moment(r.GetDueTime()))
	}
	return strings.Join(parts, "  ")
}
