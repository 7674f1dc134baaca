package harness

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/chaos/fault"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

// introduce makes clients of different namespaces try each other's jobs.
func introduce(clients []*client) {
	for _, c := range clients {
		var others []*client
		for _, o := range clients {
			if o.namespace != c.namespace {
				others = append(others, o)
			}
		}
		if len(others) > 0 {
			c.peers = func() []checker.Job { return others[c.rng.IntN(len(others))].told() }
		}
	}
}

// foreignCall is a call that names a job of another namespace.
type foreignCall struct {
	name string
	ask  func(ctx context.Context, d *door, job, run string) error
}

// foreignCalls are all that name a job.
var foreignCalls = []foreignCall{
	{"GetJob", func(ctx context.Context, d *door, job, _ string) error {
		_, err := d.jobs.GetJob(ctx, connect.NewRequest(&waterclockv1.GetJobRequest{JobId: job}))
		return err
	}},
	{"UpdateJob", func(ctx context.Context, d *door, job, _ string) error {
		_, err := d.jobs.UpdateJob(ctx, connect.NewRequest(&waterclockv1.UpdateJobRequest{
			JobId: job, Version: 1, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"schedule"}}, Spec: &waterclockv1.JobSpec{Kind: "exec"},
		}))
		return err
	}},
	{"DeleteJob", func(ctx context.Context, d *door, job, _ string) error {
		_, err := d.jobs.DeleteJob(ctx, connect.NewRequest(&waterclockv1.DeleteJobRequest{JobId: job}))
		return err
	}},
	{"PauseJob", func(ctx context.Context, d *door, job, _ string) error {
		_, err := d.jobs.PauseJob(ctx, connect.NewRequest(&waterclockv1.PauseJobRequest{JobId: job, Note: "not mine"}))
		return err
	}},
	{"ResumeJob", func(ctx context.Context, d *door, job, _ string) error {
		_, err := d.jobs.ResumeJob(ctx, connect.NewRequest(&waterclockv1.ResumeJobRequest{JobId: job}))
		return err
	}},
	{"TriggerJob", func(ctx context.Context, d *door, job, _ string) error {
		_, err := d.jobs.TriggerJob(ctx, connect.NewRequest(&waterclockv1.TriggerJobRequest{JobId: job}))
		return err
	}},
	{"GetRun", func(ctx context.Context, d *door, job, run string) error {
		_, err := d.runs.GetRun(ctx, connect.NewRequest(&waterclockv1.GetRunRequest{JobId: job, RunId: run}))
		return err
	}},
	{"ListRuns", func(ctx context.Context, d *door, job, _ string) error {
		_, err := d.runs.ListRuns(ctx, connect.NewRequest(&waterclockv1.ListRunsRequest{JobId: job}))
		return err
	}},
	{"CancelRun", func(ctx context.Context, d *door, job, run string) error {
		_, err := d.runs.CancelRun(ctx, connect.NewRequest(&waterclockv1.CancelRunRequest{JobId: job, RunId: run}))
		return err
	}},
	{"WatchRun", func(ctx context.Context, d *door, job, run string) error {
		s, err := d.runs.WatchRun(ctx, connect.NewRequest(&waterclockv1.WatchRunRequest{JobId: job, RunId: run}))
		return first(s, err)
	}},
	{"ReadRunLog", func(ctx context.Context, d *door, job, run string) error {
		s, err := d.runs.ReadRunLog(ctx, connect.NewRequest(&waterclockv1.ReadRunLogRequest{JobId: job, RunId: run}))
		return first(s, err)
	}},
}

// first is the error of a stream up to its first message; a stream that ends without one has answered as well.
func first[T any](s *connect.ServerStreamForClient[T], err error) error {
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // nobody reads on
	s.Receive()
	return s.Err()
}

// trespass asks for what is of another namespace, or looks whether a list shows any of it.
func (c *client) trespass(ctx context.Context) {
	if c.rng.IntN(4) == 0 {
		c.list(ctx)
		return
	}
	jobs := c.peers()
	if len(jobs) == 0 {
		return
	}
	job := jobs[c.rng.IntN(len(jobs))]
	run := ""
	for _, ch := range job.Changes {
		run = ch.RunID // of one that is known, where there is any
	}
	what := foreignCalls[c.rng.IntN(len(foreignCalls))]
	c.record(ctx, checker.ForeignCall{Call: what.name, JobID: job.ID, RunID: run}, func(ctx context.Context, _ *checker.ForeignCall) error {
		return what.ask(ctx, c.door, job.ID, run)
	})
}

func (c *client) list(ctx context.Context) {
	const page = 200
	if c.rng.IntN(2) == 0 {
		c.record(ctx, checker.ForeignCall{Call: "ListRuns"}, func(ctx context.Context, f *checker.ForeignCall) error {
			res, err := c.runs.ListRuns(ctx, connect.NewRequest(&waterclockv1.ListRunsRequest{PageSize: page}))
			if err != nil {
				return err
			}
			for _, r := range res.Msg.GetRuns() {
				f.Listed = append(f.Listed, r.GetJobId())
			}
			return nil
		})
		return
	}
	c.record(ctx, checker.ForeignCall{Call: "ListJobs"}, func(ctx context.Context, f *checker.ForeignCall) error {
		res, err := c.jobs.ListJobs(ctx, connect.NewRequest(&waterclockv1.ListJobsRequest{PageSize: page}))
		if err != nil {
			return err
		}
		for _, j := range res.Msg.GetJobs() {
			f.Listed = append(f.Listed, j.GetJobId())
		}
		return nil
	})
}

// record repeats a call until something is said, and keeps what.
func (c *client) record(ctx context.Context, f checker.ForeignCall, call func(context.Context, *checker.ForeignCall) error) {
	f.Namespace, f.Requested = c.namespace, time.Now()
	again := func(err error) bool {
		if odd(err) {
			c.oddity(f.Call+" of what is another's", err)
		}
		return saysNothing(err)
	}
	err := fault.Retry(ctx, callLimit, retryEvery, again, func(ctx context.Context) error { return call(ctx, &f) })
	if err != nil && saysNothing(err) {
		return
	}
	f.Answered, f.Code = time.Now(), "ok"
	if err != nil {
		f.Code = connect.CodeOf(err).String()
	}
	c.log.Info("tried what is another's", "call", f.Call, "job", f.JobID, "run", f.RunID, "code", f.Code)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.foreign = append(c.foreign, f)
}

// saysNothing tells whether an error is of the way to the answer, or of a server that has not looked yet.
func saysNothing(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled, connect.CodeResourceExhausted:
		return true
	default:
		return odd(err)
	}
}

// odd tells whether an error is one that no client should get; and yet it may be of a connection that was cut.
func odd(err error) bool {
	code := connect.CodeOf(err)
	return code == connect.CodeUnknown || code == connect.CodeInternal
}
