package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/waterclock-io/waterclock/api"
	"github.com/waterclock-io/waterclock/api/convert"
	"github.com/waterclock-io/waterclock/api/submit"
	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/job"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/store/sqlite"
)

// troubled is a store whose writes go wrong as the test says: before they are made, or after.
type troubled struct {
	*sqlite.Store
	before, after atomic.Pointer[error]
}

func (s *troubled) Submit(ctx context.Context, subs []store.Submission) ([]store.SubmitResult, error) {
	if err := s.before.Load(); err != nil {
		return nil, *err
	}
	out, err := s.Store.Submit(ctx, subs)
	if late := s.after.Load(); late != nil {
		return nil, *late
	}
	return out, err
}

func (s *troubled) ChangeJob(ctx context.Context, ns string, id uuid.UUID, decide func(*job.Job, []store.Timer, time.Time) (store.Change, error)) (*job.Job, []store.Timer, error) {
	if err := s.before.Load(); err != nil {
		return nil, nil, *err
	}
	j, timers, err := s.Store.ChangeJob(ctx, ns, id, decide)
	if late := s.after.Load(); late != nil {
		return nil, nil, *late
	}
	return j, timers, err
}

func reason(err error) string {
	var c *connect.Error
	if errors.As(err, &c) {
		for _, d := range c.Details() {
			if v, err := d.Value(); err == nil {
				if info, ok := v.(*errdetails.ErrorInfo); ok {
					return info.GetReason()
				}
			}
		}
	}
	return ""
}

// The fault: the database is away, out of connections or full, or its answer to a commit is lost. Callers are told which, without what is the operator's; what was
// refused was not made, and what may have been made is found by repeating with the same key.
func TestDatabaseInTrouble(t *testing.T) {
	t.Parallel()
	var s *troubled
	w := newWorld(t, func(d *api.Deps) {
		s = &troubled{Store: d.Store.(*sqlite.Store)}
		v, err := convert.NewValidator()
		check.OK(t, err)
		service := submit.New(submit.Config{Store: s, Clock: d.Clock, Waker: d.Waker, Validator: v})
		t.Cleanup(service.Stop)
		d.Store, d.Submit = s, service
	})
	jobs, ctx := w.jobs("acme"), t.Context()
	there := w.add(&waterclockv1.JobSpec{Kind: "exec", Name: "there", Schedule: every(time.Hour)}).GetJob().GetJobId()
	names := func() map[string]bool {
		res, err := jobs.ListJobs(ctx, connect.NewRequest(&waterclockv1.ListJobsRequest{}))
		check.OK(t, err)
		out := map[string]bool{}
		for _, j := range res.Msg.GetJobs() {
			out[j.GetSpec().GetName()] = true
		}
		return out
	}
	add := func(name string) (*waterclockv1.SubmitJobResponse, error) {
		res, err := jobs.SubmitJob(ctx, connect.NewRequest(&waterclockv1.SubmitJobRequest{
			Spec: &waterclockv1.JobSpec{Kind: "exec", Name: name, Schedule: every(time.Hour)}, IdempotencyKey: name,
		}))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}
	for _, c := range []struct {
		name   string
		where  *atomic.Pointer[error]
		err    error
		reason string
		made   bool
	}{
		{"away", &s.before, fmt.Errorf("dial tcp 10.1.2.3: %w", store.ErrUnavailable), "STORE_UNAVAILABLE", false},
		{"full", &s.before, fmt.Errorf("SQLSTATE 53100 at 10.1.2.3: %w", store.ErrUnavailable), "STORE_UNAVAILABLE", false},
		{"question-lost", &s.before, fmt.Errorf("10.1.2.3: %w", store.ErrUnknownOutcome), "OUTCOME_UNKNOWN", false},
		{"answer-lost", &s.after, fmt.Errorf("10.1.2.3: %w", store.ErrUnknownOutcome), "OUTCOME_UNKNOWN", true},
	} {
		c.where.Store(&c.err)
		_, err := add(c.name)
		if code(err) != connect.CodeUnavailable || reason(err) != c.reason || strings.Contains(err.Error(), "10.1.2.3") {
			t.Errorf("%s: submit: %v %q", c.name, err, reason(err))
		}
		batch, err := jobs.SubmitJobs(ctx, connect.NewRequest(&waterclockv1.SubmitJobsRequest{Requests: []*waterclockv1.SubmitJobRequest{
			{Spec: &waterclockv1.JobSpec{Kind: "exec", Name: c.name + "-1", Schedule: every(time.Hour)}, IdempotencyKey: c.name + "-1"},
			{Spec: &waterclockv1.JobSpec{Kind: "exec", Name: c.name + "-2", Schedule: every(time.Hour)}, IdempotencyKey: c.name + "-2"},
		}}))
		check.OK(t, err)
		for _, r := range batch.Msg.GetResults() {
			if r.GetError().GetCode() != connect.CodeUnavailable.String() {
				t.Errorf("%s: one of a batch: %v", c.name, r)
			}
		}
		_, err = jobs.PauseJob(ctx, connect.NewRequest(&waterclockv1.PauseJobRequest{JobId: there}))
		if code(err) != connect.CodeUnavailable || reason(err) != c.reason {
			t.Errorf("%s: pause: %v %q", c.name, err, reason(err))
		}
		got := names()
		for _, name := range []string{c.name, c.name + "-1", c.name + "-2"} {
			if got[name] != c.made {
				t.Errorf("%s: %s is there %t, want %t", c.name, name, got[name], c.made)
			}
		}
		c.where.Store(nil)
		again, err := add(c.name)
		if err != nil || again.GetExisted() != c.made {
			t.Errorf("%s: repeated: existed %t, want %t; %v", c.name, again.GetExisted(), c.made, err)
		}
		_, err = jobs.ResumeJob(ctx, connect.NewRequest(&waterclockv1.ResumeJobRequest{JobId: there}))
		check.OK(t, err)
	}
	if n := len(names()); n != 1+4+2 {
		t.Errorf("%d jobs, want those that were made and no more", n)
	}
}

// The fault: everything is cancelled while it ends by itself. Each run has one end, and the answer to the cancel is not taken back.
func TestMassCancelAgainstCompletion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const n = 24
	rows := make([]store.Timer, n)
	for i := range rows {
		rows[i] = w.hand(w.add(&waterclockv1.JobSpec{Kind: "exec"}).GetJob().GetJobId())
	}
	answers := make([]waterclockv1.RunState, n)
	// The cancels begin at one end and the completions at the other: they meet.
	var wg sync.WaitGroup
	next := make(chan int, n)
	for i := range rows {
		next <- i
	}
	close(next)
	for range 4 {
		wg.Go(func() {
			for i := range next {
				res, err := w.runs("acme").CancelRun(t.Context(), connect.NewRequest(&waterclockv1.CancelRunRequest{JobId: rows[i].JobID.String()}))
				if err != nil {
					t.Error(err)
				} else if len(res.Msg.GetRuns()) == 1 {
					answers[i] = res.Msg.GetRuns()[0].GetState()
				}
			}
		})
	}
	wg.Go(func() {
		for i := n - 1; i >= 0; i-- {
			_, err := w.store.Record(t.Context(), []store.Report{{Kind: store.ReportEnd, Key: rows[i].TimerKey, JobID: rows[i].JobID, Dispatch: 1}},
				func(_ int, row *store.Timer, _ *job.Job, now time.Time) store.Change {
					return store.Change{Runs: []store.RunRow{row.History(job.StepSucceeded, true, "ok", now)}}
				})
			if err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	ends := map[job.Step]int{}
	for i := range rows {
		got, err := w.store.RunAttempts(t.Context(), rows[i].JobID, rows[i].RunID)
		check.OK(t, err)
		left, err := w.store.ReadTimers(t.Context(), []store.TimerKey{rows[i].TimerKey})
		check.OK(t, err)
		if len(got) != 1 || !got[0].Final || len(left) != 0 {
			t.Errorf("run %d has history %+v and rows %+v", i, got, left)
			continue
		}
		ends[got[0].Step]++
		if answers[i] == waterclockv1.RunState_RUN_STATE_CANCELLED && got[0].Step != job.StepCancelled {
			t.Errorf("run %d was answered with cancelled and is %s", i, got[0].Step)
		}
	}
	t.Logf("ended as %v", ends)
}
