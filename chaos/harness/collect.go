package harness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/chaos/fault"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

// reader reads history as users do: the jobs of each namespace by its own door.
type reader struct {
	doors map[string]*door // by namespace
}

// readLimit is how long one job may take to be read at the end, when nothing is broken any more: long enough for an API that is just starting.
const readLimit = 30 * time.Second

// all fills in what the API shows of every job.
func (r *reader) all(ctx context.Context, jobs []checker.Job) error {
	const readers = 4
	var wg sync.WaitGroup
	errs := make([]error, readers)
	for n := range readers {
		wg.Go(func() {
			for i := n; i < len(jobs) && errs[n] == nil; i += readers {
				errs[n] = r.insist(ctx, &jobs[i])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// insist reads a job, anew where an API could not be reached.
func (r *reader) insist(ctx context.Context, j *checker.Job) error {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	return fault.Retry(ctx, callLimit, retryEvery, saysNothing, func(ctx context.Context) error {
		read := *j
		if err := r.one(ctx, &read); err != nil {
			return err
		}
		*j = read
		return nil
	})
}

// one reads a job once. What an error leaves in it is of no use.
func (r *reader) one(ctx context.Context, j *checker.Job) error {
	d := r.doors[j.Namespace]
	got, err := d.jobs.GetJob(ctx, connect.NewRequest(&waterclockv1.GetJobRequest{JobId: j.ID}))
	if connect.CodeOf(err) == connect.CodeNotFound {
		return nil // for the checker to say
	}
	if err != nil {
		return fmt.Errorf("get job %s: %w", j.ID, err)
	}
	j.Found, j.CreatedAt = true, got.Msg.GetJob().GetCreateTime().AsTime()
	for page := ""; ; {
		list, err := d.runs.ListRuns(ctx, connect.NewRequest(&waterclockv1.ListRunsRequest{JobId: j.ID, PageSize: 1000, PageToken: page}))
		if err != nil {
			return fmt.Errorf("list runs of job %s: %w", j.ID, err)
		}
		for _, run := range list.Msg.GetRuns() {
			out := readRun(run)
			if out.State != "skipped" {
				if out.Attempts, err = attempts(ctx, d, j.ID, out.ID); err != nil {
					return err
				}
			}
			j.Runs = append(j.Runs, out)
		}
		if page = list.Msg.GetNextPageToken(); page == "" {
			return nil
		}
	}
}

// attempts are the rows of history of a run.
func attempts(ctx context.Context, d *door, jobID, runID string) ([]checker.Attempt, error) {
	res, err := d.runs.GetRun(ctx, connect.NewRequest(&waterclockv1.GetRunRequest{JobId: jobID, RunId: runID}))
	if err != nil {
		return nil, fmt.Errorf("get run %s of job %s: %w", runID, jobID, err)
	}
	var out []checker.Attempt
	for _, a := range res.Msg.GetRun().GetAttempts() {
		out = append(out, checker.Attempt{
			RunID: runID, Attempt: a.GetAttempt(), Dispatch: a.GetDispatch(), State: stateName(a.GetState()), Reason: a.GetOutcome().GetReason(),
			Code: a.GetOutcome().GetCode(), Executor: a.GetExecutor(), Started: instant(a.GetStartTime()), EndedAt: instant(a.GetEndTime()),
		})
	}
	return out, nil
}

func readRun(run *waterclockv1.Run) checker.Run {
	out := checker.Run{
		ID: run.GetRunId(), State: stateName(run.GetState()), Reason: run.GetOutcome().GetReason(), Scheduled: instant(run.GetScheduledTime()), EndedAt: instant(run.GetEndTime()),
		Origin: strings.ToLower(strings.TrimPrefix(run.GetOrigin().String(), "RUN_ORIGIN_")),
	}
	out.Through, out.Count = out.Scheduled, 1
	if out.State == "skipped" {
		out.Through, out.Count = instant(run.GetSkippedThrough()), run.GetSkippedCount()
	}
	return out
}

func stateName(s waterclockv1.RunState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "RUN_STATE_"))
}

func instant(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
