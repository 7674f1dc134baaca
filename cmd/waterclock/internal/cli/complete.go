package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

// completeTimeout bounds how long the shell waits for suggestions from a server that does not answer.
const completeTimeout = 2 * time.Second

// completeChoice suggests the values of a flag that the command, or its parent, has.
func completeChoice(c *cobra.Command, flag string, values ...string) {
	suggest := func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	}
	if err := c.RegisterFlagCompletionFunc(flag, suggest); err != nil {
		panic(err) // the flag does not exist, or has its suggestions: a mistake in this package
	}
}

// completeJobs suggests names of jobs that begin with what was typed, and ids where nothing has such a name.
func (a *app) completeJobs(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := a.dial()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	var out []cobra.Completion
	for _, prefix := range []string{typed, ""} {
		page, err := call(ctx, c.jobs.ListJobs, &waterclockv1.ListJobsRequest{NamePrefix: prefix, PageSize: 100})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for _, j := range page.GetJobs() {
			name, kind := j.GetSpec().GetName(), clean(j.GetSpec().GetKind())
			switch {
			case name != "" && clean(name) == name && strings.HasPrefix(name, typed):
				out = append(out, cobra.CompletionWithDesc(name, kind))
			case prefix == "" && strings.HasPrefix(j.GetJobId(), typed):
				out = append(out, cobra.CompletionWithDesc(j.GetJobId(), kind))
			}
		}
		if len(out) > 0 || typed == "" {
			break
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeRuns suggests jobs for the first argument and the runs of that job for the second.
func (a *app) completeRuns(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.completeJobs(cmd, args, typed)
	}
	c, err := a.dial()
	if err != nil || len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	id, err := c.jobID(ctx, args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	res, err := call(ctx, c.runs.ListRuns, &waterclockv1.ListRunsRequest{JobId: id, PageSize: 100})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []cobra.Completion
	for _, r := range res.GetRuns() {
		if strings.HasPrefix(r.GetRunId(), typed) {
			out = append(out, cobra.CompletionWithDesc(r.GetRunId(), runState(r.GetState())+" "+a.moment(r.GetScheduledTime())))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
