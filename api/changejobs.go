package api

import (
	"bytes"
	"context"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/api/control"
	"github.com/waterclock-io/waterclock/api/convert"
	"github.com/waterclock-io/waterclock/job"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
)

// UpdateJob implements waterclockv1connect.JobServiceHandler.
func (s *service) UpdateJob(ctx context.Context, req *connect.Request[waterclockv1.UpdateJobRequest]) (*connect.Response[waterclockv1.UpdateJobResponse], error) {
	m := req.Msg
	id := convert.ID(m.GetJobId())
	current, err := s.Store.Job(ctx, callerOf(ctx).Namespace, id)
	if err != nil {
		return nil, err
	}
	d, err := s.redefine(current, m)
	if err != nil {
		return nil, err
	}
	shared, err := s.Submit.Queues().Shared(ctx, d.Queue)
	if err != nil {
		return nil, err
	}
	apply := func(j *job.Job) { d.Put(j, shared) }
	firstRun := func(j *job.Job) uuid.UUID { return job.RunID(j.ID, job.FromSchedule, d.Spec.Schedule.At, "") }
	c, err := s.change(ctx, id, func(known, j *job.Job, timers []store.Timer, now time.Time, ended control.Ended) (control.Decision, error) {
		if known.Version != current.Version {
			return control.Decision{}, store.ErrVersion // the mask was applied to an older one
		}
		u, err := control.Update(j, timers, now, m.GetVersion(), apply, ended)
		u.PayloadChanged = !bytes.Equal(d.Payload, known.Payload) // the locked job need not have its payload
		return u, err
	}, firstRun)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&waterclockv1.UpdateJobResponse{Job: convert.Warned(convert.Job(c.job, c.timers), d.Warnings)}), nil
}

// redefine checks what a job becomes by an update.
func (s *service) redefine(current *job.Job, m *waterclockv1.UpdateJobRequest) (*convert.Definition, error) {
	spec, err := convert.Masked(convert.Spec(current), m.GetSpec(), m.GetUpdateMask())
	if err != nil {
		return nil, err
	}
	whole := &waterclockv1.UpdateJobRequest{JobId: m.GetJobId(), Version: m.GetVersion(), Spec: proto.CloneOf(spec)}
	if err := s.Validator.Check(whole); err != nil {
		return nil, err
	}
	return convert.Define(spec, convert.Context{Now: s.Clock.Now(), Prior: &current.Spec.Schedule})
}

// DeleteJob implements waterclockv1connect.JobServiceHandler.
func (s *service) DeleteJob(ctx context.Context, req *connect.Request[waterclockv1.DeleteJobRequest]) (*connect.Response[waterclockv1.DeleteJobResponse], error) {
	c, err := s.change(ctx, convert.ID(req.Msg.GetJobId()),
		func(_, j *job.Job, timers []store.Timer, now time.Time, _ control.Ended) (control.Decision, error) {
			return control.Delete(j, timers, now)
		})
	if err == nil {
		err = s.withdrawAgain(ctx, c.job, c.cancelled)
	}
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&waterclockv1.DeleteJobResponse{}), nil
}

// PauseJob implements waterclockv1connect.JobServiceHandler.
func (s *service) PauseJob(ctx context.Context, req *connect.Request[waterclockv1.PauseJobRequest]) (*connect.Response[waterclockv1.PauseJobResponse], error) {
	by, note := callerOf(ctx).Name, req.Msg.GetNote()
	c, err := s.change(ctx, convert.ID(req.Msg.GetJobId()),
		func(_, j *job.Job, timers []store.Timer, now time.Time, _ control.Ended) (control.Decision, error) {
			return control.Pause(j, timers, now, by, note)
		})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&waterclockv1.PauseJobResponse{Job: convert.Job(c.job, c.timers)}), nil
}

// ResumeJob implements waterclockv1connect.JobServiceHandler.
func (s *service) ResumeJob(ctx context.Context, req *connect.Request[waterclockv1.ResumeJobRequest]) (*connect.Response[waterclockv1.ResumeJobResponse], error) {
	c, err := s.change(ctx, convert.ID(req.Msg.GetJobId()),
		func(_, j *job.Job, timers []store.Timer, now time.Time, ended control.Ended) (control.Decision, error) {
			return control.Resume(j, timers, now, ended)
		})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&waterclockv1.ResumeJobResponse{Job: convert.Job(c.job, c.timers)}), nil
}

// TriggerJob implements waterclockv1connect.JobServiceHandler.
func (s *service) TriggerJob(ctx context.Context, req *connect.Request[waterclockv1.TriggerJobRequest]) (*connect.Response[waterclockv1.TriggerJobResponse], error) {
	// The namespaces of given and made nonces are apart, so that nobody can guess the run of a request without an id.
	nonce := "made:" + uuid.NewString()
	if given := req.Msg.GetRequestId(); given != "" {
		nonce = "given:" + given
	}
	run := func(j *job.Job) uuid.UUID { return control.TriggerRunID(j, nonce) }
	c, err := s.change(ctx, convert.ID(req.Msg.GetJobId()),
		func(known, j *job.Job, timers []store.Timer, now time.Time, ended control.Ended) (control.Decision, error) {
			if ended(run(known)) && j.State != job.Deleted {
				return control.Decision{}, nil // made and run before: it is looked up below
			}
			return control.Trigger(j, timers, now, nonce, ended)
		}, run)
	if err != nil {
		return nil, err
	}
	for i := range c.timers {
		if c.timers[i].RunID == run(c.job) {
			return connect.NewResponse(&waterclockv1.TriggerJobResponse{Run: s.view().Live(&c.timers[i])}), nil
		}
	}
	found, err := s.findRun(ctx, c.job.ID, run(c.job))
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&waterclockv1.TriggerJobResponse{Run: found.shown}), nil
}
