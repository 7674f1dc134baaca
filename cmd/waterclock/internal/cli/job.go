package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/waterclock-io/waterclock/job/fielderr"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

const (
	maxPage  = 1000 // jobs or runs that the server gives at a time
	maxLimit = 10_000
)

func (a *app) jobCommand() *cobra.Command {
	return group("job", "Show, change, hold and remove jobs",
		a.jobListCommand(), a.jobGetCommand(), a.jobUpdateCommand(), a.jobPauseCommand(), a.jobResumeCommand(), a.jobTriggerCommand(),
		a.jobDeleteCommand())
}

// onJob makes a command whose first argument is a job, by id or by name.
func (a *app) onJob(use, short string, run func(ctx context.Context, c *client, jobID string) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " JOB", Short: short, Args: arguments(1, 1), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			id, err := c.jobID(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return run(cmd.Context(), c, id)
		},
	}
}

// page is how lists are cut.
type page struct {
	limit int32
	token string
}

func (p *page) add(c *cobra.Command) {
	c.Flags().Int32Var(&p.limit, "limit", 50, "how many to list at most, up to 10000")
	c.Flags().StringVar(&p.token, "page-token", "", "go on where the list before ended")
}

func (p *page) check() error {
	if p.limit < 1 || p.limit > maxLimit {
		return &fielderr.FieldError{Field: "--limit", Given: itoa(p.limit), Allowed: "1 to 10000"}
	}
	return nil
}

func (a *app) jobListCommand() *cobra.Command {
	var req waterclockv1.ListJobsRequest
	var p page
	var labels []string
	state := choice{allowed: []string{"active", "paused", "completed", "deleted"}}
	c := &cobra.Command{Use: "list", Short: "List jobs, newest first", Args: arguments(0, 0), RunE: func(cmd *cobra.Command, _ []string) error {
		var err error
		if err = p.check(); err != nil {
			return err
		}
		if req.Labels, err = labelPairs("--label", labels); err != nil {
			return err
		}
		req.State = waterclockv1.JobState(waterclockv1.JobState_value["JOB_STATE_"+strings.ToUpper(state.value)])
		c, err := a.dial()
		if err != nil {
			return err
		}
		all := &waterclockv1.ListJobsResponse{}
		for req.PageToken = p.token; ; req.PageToken = all.GetNextPageToken() {
			req.PageSize = min(p.limit-int32(len(all.GetJobs())), maxPage) //nolint:gosec // at most maxLimit
			res, err := call(cmd.Context(), c.jobs.ListJobs, &req)
			if err != nil {
				return err
			}
			all.Jobs, all.NextPageToken = append(all.Jobs, res.GetJobs()...), res.GetNextPageToken()
			if all.GetNextPageToken() == "" || len(all.GetJobs()) >= int(p.limit) {
				break
			}
		}
		if a.asJSON() {
			return a.printJSON(all)
		}
		a.noteMore(all.GetNextPageToken())
		return a.showJobs(all.GetJobs())
	}}
	p.add(c)
	c.Flags().Var(&state, "state", "only jobs in this state: active, paused, completed or deleted (default all but deleted)")
	c.Flags().StringVar(&req.Queue, "queue", "", "only jobs of this queue")
	c.Flags().StringVar(&req.Kind, "kind", "", "only jobs of this kind")
	c.Flags().StringArrayVar(&labels, "label", nil, "only jobs with this label, KEY=VALUE (repeatable: with all of them)")
	c.Flags().StringVar(&req.NamePrefix, "name-prefix", "", "only jobs whose names begin so")
	completeChoice(c, "state", state.allowed...)
	return c
}

func (a *app) noteMore(token string) {
	if token != "" {
		a.note("more with --page-token %s", clean(token))
	}
}

func (a *app) jobGetCommand() *cobra.Command {
	return a.onJob("get", "Show a job with its current or latest run", func(ctx context.Context, c *client, id string) error {
		res, err := call(ctx, c.jobs.GetJob, &waterclockv1.GetJobRequest{JobId: id})
		if err != nil {
			return err
		}
		if a.asJSON() {
			return a.printJSON(res)
		}
		if err := a.showJob(res.GetJob()); err != nil || res.GetRun() == nil {
			return err
		}
		if _, err := a.Stdout.Write([]byte("\n")); err != nil {
			return err
		}
		return a.showRuns([]*waterclockv1.Run{res.GetRun()}, false)
	})
}

func (a *app) jobUpdateCommand() *cobra.Command {
	var f specFlags
	c := &cobra.Command{
		Use:   "update JOB [flags] [URL | -- ARGV…]",
		Short: "Change a job",
		Long: "Changes of a job what the flags name; what they do not name stays as it is. It fails with a conflict (exit code 4) when someone\n" +
			"else changes the job at the same time.",
		Args: cobra.ArbitraryArgs, ValidArgsFunction: a.completeJobs,
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		before, command := split(cmd, args)
		if len(before) == 0 {
			return arguments(1, 2)(cmd, before)
		}
		c, err := a.dial()
		if err != nil {
			return err
		}
		id, err := c.jobID(cmd.Context(), before[0])
		if err != nil {
			return err
		}
		old, err := call(cmd.Context(), c.jobs.GetJob, &waterclockv1.GetJobRequest{JobId: id})
		if err != nil {
			return err
		}
		spec := proto.CloneOf(old.GetJob().GetSpec())
		fields, err := f.apply(spec, cmd.Flags(), before[1:], command, a.Stdin)
		if err != nil {
			return err
		}
		if len(fields) == 0 {
			return &fielderr.FieldError{Field: "flags", Given: "none", Reason: "changes nothing", Allowed: "at least one of what is to change"}
		}
		res, err := call(cmd.Context(), c.jobs.UpdateJob, &waterclockv1.UpdateJobRequest{
			JobId: id, Version: old.GetJob().GetVersion(), Spec: spec, UpdateMask: &fieldmaskpb.FieldMask{Paths: fields},
		})
		if err != nil {
			return err
		}
		return a.printJob(res, res.GetJob())
	}
	f.add(c)
	return c
}

func (a *app) printJob(res proto.Message, j *waterclockv1.Job) error {
	if a.asJSON() {
		return a.printJSON(res)
	}
	return a.showJob(j)
}

func (a *app) jobPauseCommand() *cobra.Command {
	var note string
	c := a.onJob("pause", "Hold a job: nothing of it starts until it is resumed", func(ctx context.Context, c *client, id string) error {
		res, err := call(ctx, c.jobs.PauseJob, &waterclockv1.PauseJobRequest{JobId: id, Note: note})
		if err != nil {
			return err
		}
		return a.printJob(res, res.GetJob())
	})
	c.Flags().StringVar(&note, "note", "", "why, for those who look later")
	return c
}

func (a *app) jobResumeCommand() *cobra.Command {
	return a.onJob("resume", "Let a paused job go on", func(ctx context.Context, c *client, id string) error {
		res, err := call(ctx, c.jobs.ResumeJob, &waterclockv1.ResumeJobRequest{JobId: id})
		if err != nil {
			return err
		}
		return a.printJob(res, res.GetJob())
	})
}

func (a *app) jobTriggerCommand() *cobra.Command {
	var request string
	c := a.onJob("trigger", "Start a run of a job now, beside its schedule", func(ctx context.Context, c *client, id string) error {
		res, err := call(ctx, c.jobs.TriggerJob, &waterclockv1.TriggerJobRequest{JobId: id, RequestId: request})
		if err != nil {
			return err
		}
		if a.asJSON() {
			return a.printJSON(res)
		}
		return a.showRun(res.GetRun())
	})
	c.Flags().StringVar(&request, "request-id", "", "makes the call safe to repeat: the same id is the same run")
	return c
}

func (a *app) jobDeleteCommand() *cobra.Command {
	return a.onJob("delete", "Remove a job; what runs of it is cancelled, its history stays", func(ctx context.Context, c *client, id string) error {
		res, err := call(ctx, c.jobs.DeleteJob, &waterclockv1.DeleteJobRequest{JobId: id})
		if err != nil {
			return err
		}
		if a.asJSON() {
			return a.printJSON(res)
		}
		return a.details([][2]string{{"Deleted", id}})
	})
}
