package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/proto/waterclock/v1/waterclockv1connect"
)

type bench struct {
	jobs   waterclockv1connect.JobServiceClient
	runs   waterclockv1connect.RunServiceClient
	worker *worker
}

func once(at time.Time) *waterclockv1.Schedule {
	return &waterclockv1.Schedule{Kind: &waterclockv1.Schedule_Once{Once: &waterclockv1.Once{At: timestamppb.New(at)}}}
}

func workerJob(number uint64, s *waterclockv1.Schedule) *waterclockv1.JobSpec {
	return &waterclockv1.JobSpec{Kind: "bench", Queue: workerQueue, Schedule: s, Input: &waterclockv1.JobSpec_Payload{Payload: payload(number)}}
}

func execJob(s *waterclockv1.Schedule) *waterclockv1.JobSpec {
	return &waterclockv1.JobSpec{Kind: "exec", Schedule: s, Input: &waterclockv1.JobSpec_Payload{Payload: []byte(`{"argv":["true"]}`)}}
}

// submit stores jobs in batches and returns what became of them.
func (b *bench) submit(ctx context.Context, specs []*waterclockv1.JobSpec) ([]*waterclockv1.SubmittedJob, error) {
	out := make([]*waterclockv1.SubmittedJob, 0, len(specs))
	for len(specs) > 0 {
		n := min(len(specs), 1000)
		req := &waterclockv1.SubmitJobsRequest{}
		for _, s := range specs[:n] {
			req.Requests = append(req.Requests, &waterclockv1.SubmitJobRequest{Spec: s})
		}
		res, err := b.jobs.SubmitJobs(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		for _, r := range res.Msg.Results {
			if r.GetJob() == nil {
				return nil, fmt.Errorf("a submit was refused: %v", r.GetError())
			}
			out = append(out, r.GetJob())
		}
		specs = specs[n:]
	}
	return out, nil
}

// warmUp runs a few jobs of each kind, so that what is made on first use is there.
func (b *bench) warmUp(ctx context.Context) error {
	for range 5 {
		if _, err := b.loneJobs(ctx, 1); err != nil {
			return err
		}
	}
	_, err := b.execLag(ctx, 2)
	return err
}

// The jobs that are measured lie so far apart that each meets an idle server.
const (
	apart = 50 * time.Millisecond
	lead  = 2 * time.Second
)

// times are random microseconds, about 50 ms apart.
func times(n int) []time.Time {
	base := time.Now().Add(lead)
	out := make([]time.Time, n)
	for i := range out {
		out[i] = base.Add(time.Duration(i)*apart + rand.N(apart/2)).Truncate(time.Microsecond)
	}
	return out
}

func (b *bench) workerLag(ctx context.Context, n int) (lags, error) {
	at := times(n)
	specs := make([]*waterclockv1.JobSpec, n)
	for i := range specs {
		specs[i] = workerJob(uint64(i), once(at[i])) //nolint:gosec // not negative
	}
	if _, err := b.submit(ctx, specs); err != nil {
		return lags{}, err
	}
	var l lags
	for range n {
		s, err := b.worker.next(ctx)
		if err != nil {
			return l, err
		}
		if !s.scheduled.Equal(at[s.number]) {
			return l, fmt.Errorf("job %d came as of %s, and was made for %s", s.number, s.scheduled, at[s.number])
		}
		l.add(s.at.Sub(s.scheduled))
	}
	return l, nil
}

func (b *bench) execLag(ctx context.Context, n int) (lags, error) {
	at := times(n)
	specs := make([]*waterclockv1.JobSpec, n)
	for i := range specs {
		specs[i] = execJob(once(at[i]))
	}
	made, err := b.submit(ctx, specs)
	if err != nil {
		return lags{}, err
	}
	var l lags
	for i, j := range made {
		run, err := b.ended(ctx, j)
		if err != nil {
			return l, err
		}
		if run.State != waterclockv1.RunState_RUN_STATE_SUCCEEDED {
			return l, fmt.Errorf("run %s ended as %s: %v", j.RunId, run.State, run.Outcome)
		}
		l.add(run.StartTime.AsTime().Sub(at[i]))
	}
	return l, nil
}

// ended follows a run until it has.
func (b *bench) ended(ctx context.Context, j *waterclockv1.SubmittedJob) (*waterclockv1.Run, error) {
	stream, err := b.runs.WatchRun(ctx, connect.NewRequest(&waterclockv1.WatchRunRequest{JobId: j.JobId, RunId: j.RunId}))
	if err != nil {
		return nil, err
	}
	defer stream.Close() //nolint:errcheck // it was read to its end
	var last *waterclockv1.Run
	for stream.Receive() {
		last = stream.Msg().Run
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	if last.GetEndTime() == nil {
		return nil, fmt.Errorf("run %s was not followed to its end", j.RunId)
	}
	return last, nil
}

// loneJobs submits jobs one after the other, each when the one before has started.
func (b *bench) loneJobs(ctx context.Context, n int) (lags, error) {
	var l lags
	for i := range n {
		began := time.Now()
		_, err := b.jobs.SubmitJob(ctx, connect.NewRequest(&waterclockv1.SubmitJobRequest{Spec: workerJob(uint64(i), nil)})) //nolint:gosec // not negative
		if err != nil {
			return l, err
		}
		s, err := b.worker.next(ctx)
		if err != nil {
			return l, err
		}
		l.add(s.at.Sub(began))
		if err := wait(ctx, 10*time.Millisecond); err != nil {
			return l, err
		}
	}
	return l, nil
}

// submitLater stores jobs of tomorrow and returns how long it took.
func (b *bench) submitLater(ctx context.Context, n int) (time.Duration, error) {
	specs := make([]*waterclockv1.JobSpec, n)
	for i := range specs {
		specs[i] = workerJob(uint64(i), once(time.Now().Add(24*time.Hour+rand.N(24*time.Hour)))) //nolint:gosec // not negative
	}
	began := time.Now()
	_, err := b.submit(ctx, specs)
	return time.Since(began), err
}
