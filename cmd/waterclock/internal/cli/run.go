package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

func (a *app) runCommand() *cobra.Command {
	return group("run", "Show, follow and cancel runs",
		a.runListCommand(), a.runGetCommand(), a.runWatchCommand(), a.runCancelCommand(), a.runLogsCommand())
}

func (a *app) runListCommand() *cobra.Command {
	var p page
	c := &cobra.Command{
		Use: "list [JOB]", Short: "List the runs of a job, newest first; without a job, the recent failures",
		Args: arguments(0, 1), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.check(); err != nil {
				return err
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			req := &waterclockv1.ListRunsRequest{PageToken: p.token}
			if len(args) > 0 {
				if req.JobId, err = c.jobID(cmd.Context(), args[0]); err != nil {
					return err
				}
			}
			all := &waterclockv1.ListRunsResponse{}
			for ; ; req.PageToken = all.GetNextPageToken() {
				req.PageSize = min(p.limit-int32(len(all.GetRuns())), maxPage) //nolint:gosec // at most maxLimit
				res, err := call(cmd.Context(), c.runs.ListRuns, req)
				if err != nil {
					return err
				}
				all.Runs, all.NextPageToken = append(all.Runs, res.GetRuns()...), res.GetNextPageToken()
				if all.GetNextPageToken() == "" || len(all.GetRuns()) >= int(p.limit) {
					break
				}
			}
			if a.asJSON() {
				return a.printJSON(all)
			}
			a.noteMore(all.GetNextPageToken())
			return a.showRuns(all.GetRuns(), len(args) == 0)
		},
	}
	p.add(c)
	return c
}

func (a *app) runGetCommand() *cobra.Command {
	return &cobra.Command{
		Use: "get JOB [RUN]", Short: "Show a run with its attempts; without RUN, the one to come, else the last",
		Args: arguments(1, 2), ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			var req waterclockv1.GetRunRequest
			if req.JobId, req.RunId, err = c.runIDs(cmd.Context(), args); err != nil {
				return err
			}
			res, err := call(cmd.Context(), c.runs.GetRun, &req)
			if err != nil {
				return err
			}
			if a.asJSON() {
				return a.printJSON(res)
			}
			return a.showRun(res.GetRun())
		},
	}
}

func (a *app) runWatchCommand() *cobra.Command {
	return &cobra.Command{
		Use: "watch JOB [RUN]", Short: "Follow a run to its end; the exit code is 1 unless it succeeds",
		Args: arguments(1, 2), ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			jobID, runID, err := c.runIDs(cmd.Context(), args)
			if err != nil {
				return err
			}
			last, err := a.follow(cmd.Context(), c, jobID, runID, nil, func(r *waterclockv1.Run) error {
				if a.asJSON() {
					return a.printJSONLine(&waterclockv1.WatchRunResponse{Run: r})
				}
				_, err := a.Stdout.Write([]byte(a.progressLine(a.Stdout, r) + "\n"))
				return err
			})
			if err != nil {
				return err
			}
			if err := ended(last, true); err != nil {
				return &runError{code: ExitFailed, text: err.Error()}
			}
			return nil
		},
	}
}

func (a *app) runCancelCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cancel JOB [RUN]", Short: "Cancel a run; without RUN, every run of the job that has not ended, save occurrences still to come",
		Args: arguments(1, 2), ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			var req waterclockv1.CancelRunRequest
			if req.JobId, req.RunId, err = c.runIDs(cmd.Context(), args); err != nil {
				return err
			}
			res, err := call(cmd.Context(), c.runs.CancelRun, &req)
			if err != nil {
				return err
			}
			if a.asJSON() {
				return a.printJSON(res)
			}
			return a.showRuns(res.GetRuns(), false)
		},
	}
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }
