package cli

import (
	"context"
	"errors"
	"io"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

func (a *app) runLogsCommand() *cobra.Command {
	var req waterclockv1.ReadRunLogRequest
	var raw bool
	c := &cobra.Command{
		Use: "logs JOB [RUN]", Short: "Print the output of a run: its standard output and its standard error",
		Args: arguments(1, 2), ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			if req.JobId, req.RunId, err = c.runIDs(cmd.Context(), args); err != nil {
				return err
			}
			if a.asJSON() {
				return readLog(cmd.Context(), c, &req, func(m *waterclockv1.ReadRunLogResponse) error { return a.printJSONLine(m) })
			}
			_, err = a.copyLog(cmd.Context(), c, &req, raw)
			return err
		},
	}
	c.Flags().BoolVarP(&req.Follow, "follow", "f", false, "go on until the attempt has ended")
	c.Flags().Int32Var(&req.Attempt, "attempt", 0, "attempt, from 1 (default the latest)")
	c.Flags().BoolVar(&raw, "raw", false, "pass the output on as it is, also to a terminal; else what could steer the terminal is escaped there")
	return c
}

func readLog(ctx context.Context, c *client, req *waterclockv1.ReadRunLogRequest, each func(*waterclockv1.ReadRunLogResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.runs.ReadRunLog(ctx, connect.NewRequest(req))
	if err != nil {
		return err
	}
	for stream.Receive() {
		if err := each(stream.Msg()); err != nil {
			cancel()
			return errors.Join(err, stream.Close())
		}
	}
	if err := stream.Err(); err != nil {
		return errors.Join(err, stream.Close())
	}
	return stream.Close()
}

// copyLog writes the output of a run to where it belongs and tells whether there was any.
func (a *app) copyLog(ctx context.Context, c *client, req *waterclockv1.ReadRunLogRequest, raw bool) (found bool, err error) {
	stdout, flushOut := a.sink(a.Stdout, raw)
	stderr, flushErr := a.sink(a.Stderr, raw)
	err = readLog(ctx, c, req, func(m *waterclockv1.ReadRunLogResponse) error {
		found = true
		if m.GetCut() > 0 {
			a.note("[%d bytes left out]", m.GetCut())
		}
		w := stdout
		if m.GetStream() == waterclockv1.LogStream_LOG_STREAM_STDERR {
			w = stderr
		}
		_, err := w.Write(m.GetData())
		return err
	})
	return found, errors.Join(err, flushOut(), flushErr())
}

// sink is where output goes: a terminal gets it with everything escaped that could steer it, unless raw.
func (a *app) sink(w io.Writer, raw bool) (io.Writer, func() error) {
	if raw || !a.IsTerminal(w) {
		return w, func() error { return nil }
	}
	e := &escaper{w: w}
	return e, e.flush
}

// printOutput writes what a run put out: its log, or where it has none, its result.
func (a *app) printOutput(ctx context.Context, c *client, r *waterclockv1.Run, raw bool) error {
	found, err := a.copyLog(ctx, c, &waterclockv1.ReadRunLogRequest{JobId: r.GetJobId(), RunId: r.GetRunId()}, raw)
	if found || connect.CodeOf(err) != connect.CodeNotFound && err != nil {
		return err
	}
	w, flush := a.sink(a.Stdout, raw)
	_, err = w.Write(r.GetOutcome().GetResult())
	return errors.Join(err, flush())
}
