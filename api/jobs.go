package api

import (
	"context"
	"strconv"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/api/convert"
	"github.com/waterclock-io/waterclock/api/page"
	"github.com/waterclock-io/waterclock/api/submit"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/fielderr"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
)

// SubmitJob implements waterclockv1connect.JobServiceHandler.
func (s *service) SubmitJob(
	ctx context.Context, req *connect.Request[waterclockv1.SubmitJobRequest],
) (*connect.Response[waterclockv1.SubmitJobResponse], error) {
	res := s.Submit.Submit(ctx, []submit.Request{{Namespace: callerOf(ctx).Namespace, Message: req.Msg}})[0]
	if res.Err != nil {
		return nil, res.Err
	}
	out := &waterclockv1.SubmitJobResponse{Existed: res.Existed}
	if res.Existed {
		timers, err := s.timers(ctx, res.Job)
		if err != nil {
			return nil, err
		}
		out.Job = convert.Job(res.Job, timers)
		out.Run, err = s.currentRun(ctx, res.Job, timers)
		if err != nil {
			return nil, err
		}
		return connect.NewResponse(out), nil
	}
	var timers []store.Timer
	if res.Timer != nil {
		timers = append(timers, *res.Timer)
		out.Run = s.view().Live(res.Timer)
	}
	out.Job = convert.Warned(convert.Job(res.Job, timers), res.Warnings)
	return connect.NewResponse(out), nil
}

// SubmitJobs implements waterclockv1connect.JobServiceHandler.
func (s *service) SubmitJobs(
	ctx context.Context, req *connect.Request[waterclockv1.SubmitJobsRequest],
) (*connect.Response[waterclockv1.SubmitJobsResponse], error) {
	n := len(req.Msg.GetRequests())
	if n == 0 || n > submit.MaxBatch {
		return nil, &fielderr.FieldError{
			Field: "requests", Given: strconv.Itoa(n) + " requests", Allowed: "from 1 to " + strconv.Itoa(submit.MaxBatch) + " requests",
		}
	}
	caller := callerOf(ctx)
	reqs := make([]submit.Request, n)
	for i, m := range req.Msg.GetRequests() {
		reqs[i] = submit.Request{Namespace: caller.Namespace, Message: m}
	}
	out := &waterclockv1.SubmitJobsResponse{Results: make([]*waterclockv1.SubmitResult, n)}
	unexpected := false
	for i, res := range s.Submit.Submit(ctx, reqs) {
		if res.Err != nil {
			if !unexpected && s.errs.Unexpected(res.Err) {
				unexpected = true // one line for the batch: its reason is most likely the same
				s.Log.Error("submit failed", "namespace", caller.Namespace, "error", res.Err)
			}
			out.Results[i] = &waterclockv1.SubmitResult{Result: &waterclockv1.SubmitResult_Error{Error: s.errs.Submit(res.Err)}}
			continue
		}
		out.Results[i] = &waterclockv1.SubmitResult{Result: &waterclockv1.SubmitResult_Job{Job: &waterclockv1.SubmittedJob{
			JobId: res.Job.ID.String(), RunId: firstRun(&res), Existed: res.Existed, Warnings: res.Warnings,
		}}}
	}
	return connect.NewResponse(out), nil
}

// firstRun names the first run of a stored job. Of a recurring job that existed before, nobody knows it without a look at its history.
func firstRun(res *submit.Result) string {
	switch {
	case res.Timer != nil:
		return res.Timer.RunID.String()
	case res.Existed && !res.Job.Spec.Recurring():
		return job.RunID(res.Job.ID, job.FromSchedule, res.Job.Spec.Schedule.At, "").String()
	default:
		return ""
	}
}

// GetJob implements waterclockv1connect.JobServiceHandler.
func (s *service) GetJob(ctx context.Context, req *connect.Request[waterclockv1.GetJobRequest]) (*connect.Response[waterclockv1.GetJobResponse], error) {
	j, err := s.Store.Job(ctx, callerOf(ctx).Namespace, convert.ID(req.Msg.GetJobId()))
	if err != nil {
		return nil, err
	}
	timers, err := s.timers(ctx, j)
	if err != nil {
		return nil, err
	}
	run, err := s.currentRun(ctx, j, timers)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&waterclockv1.GetJobResponse{Job: convert.Job(j, timers), Run: run}), nil
}

// ListJobs implements waterclockv1connect.JobServiceHandler.
func (s *service) ListJobs(ctx context.Context, req *connect.Request[waterclockv1.ListJobsRequest]) (*connect.Response[waterclockv1.ListJobsResponse], error) {
	m, namespace := req.Msg, callerOf(ctx).Namespace
	query := page.Query{Namespace: namespace, Request: m}
	at, err := s.tokens.Open(query, m.GetPageToken())
	if err != nil {
		return nil, err
	}
	size := pageSize(m.GetPageSize())
	jobs, err := s.Store.ListJobs(ctx, store.JobQuery{
		Namespace: namespace, State: convert.JobStates[m.GetState()], Queue: m.GetQueue(), Kind: m.GetKind(), Labels: m.GetLabels(),
		NamePrefix: m.GetNamePrefix(), BeforeCreated: at.At, BeforeID: at.ID, Limit: size + 1,
	})
	if err != nil {
		return nil, err
	}
	out := &waterclockv1.ListJobsResponse{}
	if len(jobs) > size {
		jobs = jobs[:size]
		last := jobs[size-1]
		out.NextPageToken = s.tokens.Token(query, page.Position{At: last.CreatedAt, ID: last.ID})
	}
	timers := map[uuid.UUID][]store.Timer{}
	if len(jobs) > 0 {
		if timers, err = s.Store.Timers(ctx, jobs); err != nil {
			return nil, err
		}
	}
	for _, j := range jobs {
		out.Jobs = append(out.Jobs, convert.Job(j, timers[j.ID]))
	}
	return connect.NewResponse(out), nil
}

const defaultPage = 50

func pageSize(asked int32) int {
	if asked == 0 {
		return defaultPage
	}
	return int(asked)
}
