package harness

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/job"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

// send submits a job and waits for the answer.
func (c *client) send(ctx context.Context, spec *waterclockv1.JobSpec, j checker.Job) {
	k := c.known(j)
	req := &waterclockv1.SubmitJobRequest{Spec: spec, IdempotencyKey: k.key}
	asked := c.insistent(ctx, "submit", func(ctx context.Context) error {
		res, err := c.sendOnce(ctx, req)
		if err == nil {
			k.ID, k.run = res.GetJob().GetJobId(), res.GetRun().GetRunId()
		}
		return err
	})
	if asked.ok {
		c.remember(k, asked.answered)
	}
}

// known is a job before its client has an answer.
func (c *client) known(j checker.Job) *known {
	j.Namespace = c.namespace
	return &known{Job: j, key: fmt.Sprintf("%s-%d", c.name, j.Number), over: j.Doomed}
}

func (c *client) remember(k *known, answered time.Time) {
	k.Answered = answered
	j := &k.Job
	c.log.Info("submitted", "job", k.ID, "number", j.Number, "kind", j.Schedule.Kind, "at", j.Schedule.At, "period", j.Schedule.Period, "anchor", j.Schedule.Anchor,
		"end", j.Schedule.End, "overlap", j.Overlap, "catch_up", j.CatchUp, "queue", j.Queue, "doomed", j.Doomed, "published", k.unseen)
	c.mu.Lock()
	c.mine = append(c.mine, k)
	c.mu.Unlock()
}

// batch submits several one-time jobs in one call.
func (c *client) batch(ctx context.Context, now time.Time, n int) {
	req := &waterclockv1.SubmitJobsRequest{}
	var all []*known
	for range n {
		spec, j := c.maker.one(c.next(), now)
		k := c.known(j)
		all = append(all, k)
		req.Requests = append(req.Requests, &waterclockv1.SubmitJobRequest{Spec: spec, IdempotencyKey: k.key})
	}
	// Each has an answer of its own, and is acknowledged by it whatever becomes of the others and of later tries.
	done := make([]bool, n)
	c.insistent(ctx, "submit batch", func(ctx context.Context) error {
		res, err := c.jobs.SubmitJobs(ctx, connect.NewRequest(req))
		if err != nil {
			return err
		}
		if got := len(res.Msg.GetResults()); got != n {
			return connect.NewError(connect.CodeDataLoss, fmt.Errorf("%d results for %d submits", got, n))
		}
		for i, one := range res.Msg.GetResults() {
			if failed := one.GetError(); failed != nil {
				err = connect.NewError(codeOf(failed.GetCode()), errors.New(failed.GetMessage()))
				continue
			}
			if !done[i] {
				done[i] = true
				all[i].ID, all[i].run = one.GetJob().GetJobId(), one.GetJob().GetRunId()
				c.remember(all[i], time.Now())
			}
		}
		return err
	})
}

// publish puts a submit into the stream of those that want no answer. What names the job is its idempotency key: in the body, or as the id of the message.
func (c *client) publish(ctx context.Context, spec *waterclockv1.JobSpec, j checker.Job) {
	k := c.known(j)
	k.unseen, k.ID = true, job.KeyedID(c.namespace, k.key).String()
	req := &waterclockv1.SubmitJobRequest{Spec: spec}
	var opts []jetstream.PublishOpt
	if c.rng.IntN(2) == 0 {
		req.IdempotencyKey = k.key // and a second message is a second submit
	} else {
		opts = append(opts, jetstream.WithMsgID(k.key))
	}
	asked := c.insistent(ctx, "publish", func(ctx context.Context) error {
		body, err := protojson.Marshal(req)
		if err != nil {
			return err
		}
		if _, err := c.js.Publish(ctx, enqueuePrefix+c.namespace, body, opts...); err != nil {
			return connect.NewError(connect.CodeUnavailable, err)
		}
		return nil
	})
	if asked.ok {
		c.remember(k, asked.answered)
	}
}

// enqueuePrefix is that of streams.EnqueueSubjects.
const enqueuePrefix = "enqueue."

// lookForPublished asks for a job that was only published, so that it can be changed from then on. It tells whether it asked.
func (c *client) lookForPublished(ctx context.Context) bool {
	for _, k := range c.mine {
		if !k.unseen {
			continue
		}
		one, cancel := context.WithTimeout(ctx, callLimit)
		defer cancel()
		res, err := c.jobs.GetJob(one, connect.NewRequest(&waterclockv1.GetJobRequest{JobId: k.ID}))
		if err == nil {
			k.unseen, k.run = false, res.Msg.GetRun().GetRunId()
		}
		return true
	}
	return false
}

func codeOf(text string) connect.Code {
	var code connect.Code
	if code.UnmarshalText([]byte(text)) != nil {
		return connect.CodeUnknown
	}
	return code
}

func (c *client) sendOnce(ctx context.Context, req *waterclockv1.SubmitJobRequest) (*waterclockv1.SubmitJobResponse, error) {
	if c.nats == nil {
		res, err := c.jobs.SubmitJob(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}
	body, err := protojson.Marshal(req)
	if err != nil {
		return nil, err
	}
	m, err := c.nats.RequestWithContext(ctx, "submit."+c.namespace, body)
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	if code := m.Header.Get("Nats-Service-Error-Code"); code != "" {
		return nil, connect.NewError(codeOf(code), errors.New(m.Header.Get("Nats-Service-Error")))
	}
	res := &waterclockv1.SubmitJobResponse{}
	return res, protojson.Unmarshal(m.Data, res)
}
