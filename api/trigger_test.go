package api_test

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/api"
	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/job"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
)

// interrupted is a store in which something happens before the next change: after history was read for it.
type interrupted struct {
	api.Store
	before func()
}

func (s *interrupted) ChangeJob(
	ctx context.Context, namespace string, id uuid.UUID, decide func(j *job.Job, timers []store.Timer, now time.Time) (store.Change, error),
) (*job.Job, []store.Timer, error) {
	if f := s.before; f != nil {
		s.before = nil
		f()
	}
	return s.Store.ChangeJob(ctx, namespace, id, decide)
}

func TestTriggerIsRepeatedWhileItsRunEnds(t *testing.T) {
	t.Parallel()
	s := &interrupted{}
	w := newWorld(t, func(d *api.Deps) { s.Store, d.Store = d.Store, s })
	id := w.add(&waterclockv1.JobSpec{Kind: "exec", Schedule: every(time.Hour)}).GetJob().GetJobId()
	trigger := func() *waterclockv1.Run {
		t.Helper()
		res, err := w.jobs("acme").TriggerJob(t.Context(), connect.NewRequest(&waterclockv1.TriggerJobRequest{JobId: id, RequestId: "r"}))
		check.OK(t, err)
		return res.Msg.GetRun()
	}
	first := trigger()
	timer := w.hand(id)
	s.before = func() { w.report(timer, store.ReportEnd, job.StepSucceeded, "") }
	w.clock.Add(time.Second)
	again := trigger()
	if again.GetRunId() != first.GetRunId() || again.GetState() != waterclockv1.RunState_RUN_STATE_SUCCEEDED {
		t.Errorf("the repetition made %v of a run that had ended", again)
	}
}
