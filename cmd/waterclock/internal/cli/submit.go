package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

const submitExamples = `  waterclock submit -- /usr/bin/backup --all            run a command now
  waterclock submit --wait -- /usr/bin/make test        and wait for it; print its output, exit with its code
  waterclock submit --in 10s --env A=B -- /usr/bin/env
  waterclock submit --cron '0 9 * * 1-5' --zone Europe/Berlin --name report -- /opt/report
  waterclock submit --every 90s --http POST https://example.org/tick --header 'Content-Type: text/plain' --body tick
  waterclock submit --kind resize --payload @picture.json --priority high --max-attempts 5`

func (a *app) submitCommand() *cobra.Command {
	var f specFlags
	var key string
	var wait, raw bool
	c := &cobra.Command{
		Use:   "submit [flags] [URL | -- ARGV…]",
		Short: "Submit a job: a command, an HTTP call, or work for a handler of your own",
		Long: "Submits a job. It is stored when this command returns; it runs once, now, unless a flag says otherwise. A command is given after --\n" +
			"as a program and its arguments; no shell reads them.\n\n" + ExitCodeHelp,
		Example: submitExamples, Args: cobra.ArbitraryArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.add(c)
	c.Flags().StringVar(&key, "idempotency-key", "", "makes the submit safe to repeat: the same key with the same job is the same job")
	c.Flags().BoolVar(&wait, "wait", false, "wait for the first run, print its output and exit with the code of the command")
	c.Flags().BoolVar(&raw, "raw", false, "with --wait: pass the output on as it is, also to a terminal")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		spec := &waterclockv1.JobSpec{}
		urls, command := split(cmd, args)
		if _, err := f.apply(spec, cmd.Flags(), urls, command, a.Stdin); err != nil {
			return err
		}
		if spec.GetKind() == "" {
			return &usageError{command: cmd, err: errors.New("nothing to do was given, allowed: a command after --, --http METHOD URL, or --kind KIND")}
		}
		c, err := a.dial()
		if err != nil {
			return err
		}
		res, err := call(cmd.Context(), c.jobs.SubmitJob, &waterclockv1.SubmitJobRequest{Spec: spec, IdempotencyKey: key})
		if err != nil {
			return err
		}
		for _, w := range res.GetJob().GetWarnings() {
			a.note("waterclock: warning: %s", clean(w))
		}
		if wait {
			return a.waitFor(cmd.Context(), c, res, raw)
		}
		if a.asJSON() {
			return a.printJSON(res)
		}
		return a.showSubmitted(res)
	}
	return c
}

func (a *app) showSubmitted(res *waterclockv1.SubmitJobResponse) error {
	existed := ""
	if res.GetExisted() {
		existed = "the idempotency key had made this job before"
	}
	return a.details([][2]string{
		{"Job", res.GetJob().GetJobId()}, {"Name", clean(res.GetJob().GetSpec().GetName())}, {"Run", res.GetRun().GetRunId()},
		{"Due", a.moment(res.GetRun().GetDueTime())}, {"Note", existed},
	})
}

// waitFor follows the first run of a job that was just submitted to its end, prints what it put out and returns how it ended.
func (a *app) waitFor(ctx context.Context, c *client, res *waterclockv1.SubmitJobResponse, raw bool) error {
	if res.GetRun() == nil {
		return &runError{code: ExitFailed, text: "there is no run to wait for: the schedule has none to come"}
	}
	talk := a.IsTerminal(a.Stderr)
	if talk {
		a.note("job %s, run %s", res.GetJob().GetJobId(), res.GetRun().GetRunId())
	}
	last, err := a.follow(ctx, c, res.GetJob().GetJobId(), res.GetRun().GetRunId(), res.GetRun(), func(r *waterclockv1.Run) error {
		if talk {
			a.note("%s", a.progressLine(a.Stderr, r))
		}
		return nil
	})
	if err != nil {
		if ctx.Err() != nil {
			a.note("waterclock: no longer waiting; the job goes on, waterclock job get %s shows it", res.GetJob().GetJobId())
		}
		return err
	}
	if a.asJSON() {
		res.Run = last
		return errors.Join(a.printJSON(res), ended(last, talk))
	}
	var outputErr error
	if last.GetStartTime() != nil || last.GetState() <= waterclockv1.RunState_RUN_STATE_FAILED { // others never ran, and have no output
		outputErr = a.printOutput(ctx, c, last, raw)
	}
	return errors.Join(ended(last, talk), outputErr)
}

// ended is how a run ended as an error: nil for one that succeeded, else with the exit code that it stands for. A command that failed by its
// own exit code is told about only where someone reads along.
func ended(r *waterclockv1.Run, talk bool) error {
	if r.GetState() == waterclockv1.RunState_RUN_STATE_SUCCEEDED {
		return nil
	}
	e := &runError{code: ExitFailed, text: "the run " + runState(r.GetState())}
	if r.GetState() != waterclockv1.RunState_RUN_STATE_FAILED {
		e.text = "the run was " + runState(r.GetState())
	}
	if reason := reasonText(r); reason != "" {
		e.text += " (" + reason + ")"
	}
	if code := int(r.GetOutcome().GetCode()); r.GetKind() == "exec" && r.GetOutcome().GetReason() == "exit" && code >= 1 && code <= 255 {
		e.code = code
		if !talk {
			e.text = ""
		}
	}
	return e
}
