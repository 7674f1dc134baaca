package harness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/job/schedule"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/proto/waterclock/v1/waterclockv1connect"
)

const (
	callLimit  = 5 * time.Second
	retryEvery = 100 * time.Millisecond
	// maxSeries is how many series of one client go on at a time.
	maxSeries = 4
)

// client is one user: it does one thing at a time, repeats it across kills until it has an answer, and remembers what it was told.
type client struct {
	name  string
	rng   *rand.Rand
	maker *maker
	jobs  waterclockv1connect.JobServiceClient
	runs  waterclockv1connect.RunServiceClient
	nats  *nats.Conn // not nil: submits go by request and reply
	log   *slog.Logger
	next  func() int // numbers jobs
	// without are changes that this client never asks for.
	without map[checker.ChangeKind]bool

	// asking are cancels whose answer nobody waits for yet.
	asking sync.WaitGroup

	mu   sync.Mutex
	mine []*known
	// odd are answers that no client should get, by text.
	odd map[string]int
}

// known is a job as its client knows it.
type known struct {
	checker.Job
	key     string
	run     string // the first
	over    bool   // deleted, or given up as it cannot be changed any more
	paused  bool
	resume  time.Time
	changed int
}

func newClient(name string, rng *rand.Rand, m *maker, hc *http.Client, url string, log *slog.Logger, next func() int) *client {
	return &client{
		name: name, rng: rng, maker: m, log: log.With("client", name), next: next, odd: map[string]int{},
		jobs: waterclockv1connect.NewJobServiceClient(hc, url), runs: waterclockv1connect.NewRunServiceClient(hc, url),
	}
}

// work puts load on the host until the load ends, and then resumes what it has paused. Answers are waited for until calls ends, beyond the end of the load:
// what was asked must be known to have happened or not.
func (c *client) work(load, calls context.Context, pace time.Duration) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-load.Done():
			for _, k := range c.mine {
				if k.paused {
					c.resume(calls, k)
				}
			}
			return
		case <-tick.C:
			c.step(calls)
		}
	}
}

// step does one thing.
func (c *client) step(ctx context.Context) {
	now := time.Now()
	for _, k := range c.mine {
		if k.paused && now.After(k.resume) {
			c.resume(ctx, k)
			return
		}
	}
	k := c.pick(now)
	if k == nil {
		c.submit(ctx, now)
		return
	}
	ask := turns[c.rng.IntN(len(turns))]
	if c.without[ask] {
		ask = ""
	}
	switch ask {
	case checker.Cancel:
		c.cancel(ctx, k)
	case checker.Pause:
		c.pause(ctx, k)
	case checker.Update:
		c.update(ctx, k)
	case checker.Delete:
		c.delete(ctx, k)
	default:
		c.submit(ctx, now)
	}
}

// turns is how often each thing is done: a submit where it is empty.
var turns = [20]checker.ChangeKind{
	checker.Cancel, checker.Cancel, checker.Pause, checker.Pause, checker.Pause, checker.Update, checker.Update, checker.Delete, checker.Delete,
}

// pick chooses a job that may still be worth changing.
func (c *client) pick(now time.Time) *known {
	var live []*known
	for _, k := range c.mine {
		end := k.Schedule.End
		if k.Schedule.Kind == schedule.Once {
			end = k.Schedule.At.Add(5 * time.Second)
		}
		if !k.over && !k.paused && now.Before(end) && k.changed < 3 {
			live = append(live, k)
		}
	}
	if len(live) == 0 {
		return nil
	}
	return live[c.rng.IntN(len(live))]
}

func (c *client) submit(ctx context.Context, now time.Time) {
	series := 0
	for _, k := range c.mine {
		if k.Schedule.Kind != schedule.Once && !k.over && now.Before(k.Schedule.End) {
			series++
		}
	}
	if series < maxSeries && c.rng.IntN(4) == 0 {
		spec, j := c.maker.series(c.next(), now)
		c.send(ctx, spec, j)
		return
	}
	spec, j := c.maker.one(c.next(), now)
	c.send(ctx, spec, j)
}

// burst submits jobs that are due now, one after the other.
func (c *client) burst(ctx context.Context, n int) {
	for range n {
		now := time.Now().UTC().Truncate(time.Microsecond)
		j := checker.Job{Number: c.next(), MaxAttempts: 50, Schedule: schedule.Schedule{Kind: schedule.Once, At: now}}
		c.send(ctx, c.maker.spec(j, work{file: c.maker.file, child: c.maker.child, long: c.maker.between(0, 400*time.Millisecond)}), j)
	}
}

// cancelLast asks for the cancel of the last n jobs, all at once.
func (c *client) cancelLast(ctx context.Context, n int) {
	for _, k := range c.mine[max(0, len(c.mine)-n):] {
		c.asking.Go(func() { c.cancel(ctx, k) })
	}
}

func (c *client) send(ctx context.Context, spec *waterclockv1.JobSpec, j checker.Job) {
	k := &known{Job: j, key: fmt.Sprintf("%s-%d", c.name, j.Number)}
	req := &waterclockv1.SubmitJobRequest{Spec: spec, IdempotencyKey: k.key}
	_, _, ok := c.until(ctx, "submit", func(ctx context.Context, _ bool) error {
		res, err := c.sendOnce(ctx, req)
		if err == nil {
			k.ID, k.run = res.GetJob().GetJobId(), res.GetRun().GetRunId()
		}
		return err
	})
	if !ok {
		return
	}
	k.Answered = time.Now()
	c.log.Info("submitted", "job", k.ID, "number", j.Number, "kind", j.Schedule.Kind, "at", j.Schedule.At, "period", j.Schedule.Period, "anchor", j.Schedule.Anchor,
		"end", j.Schedule.End, "overlap", j.Overlap, "catch_up", j.CatchUp)
	c.mu.Lock()
	c.mine = append(c.mine, k)
	c.mu.Unlock()
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
	m, err := c.nats.RequestWithContext(ctx, "submit.default", body)
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	if code := m.Header.Get("Nats-Service-Error-Code"); code != "" {
		var as connect.Code
		if as.UnmarshalText([]byte(code)) != nil {
			as = connect.CodeUnknown
		}
		return nil, connect.NewError(as, errors.New(m.Header.Get("Nats-Service-Error")))
	}
	res := &waterclockv1.SubmitJobResponse{}
	return res, protojson.Unmarshal(m.Data, res)
}

// until repeats a call until it is answered. It returns when it was first tried and when answered, and whether it did what was asked; again tells the call
// that an earlier try may have had its effect. An answer other than yes that makes sense (too late, over) is not one to remember.
func (c *client) until(ctx context.Context, what string, call func(ctx context.Context, again bool) error) (requested, answered time.Time, ok bool) {
	requested = time.Now()
	for again := false; ; again = true {
		one, cancel := context.WithTimeout(ctx, callLimit)
		err := call(one, again)
		cancel()
		if err == nil {
			return requested, time.Now(), true
		}
		switch code := connect.CodeOf(err); code {
		case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled, connect.CodeResourceExhausted, connect.CodeAborted:
		case connect.CodeFailedPrecondition:
			c.log.Info("refused", "what", what, "error", err)
			return requested, time.Now(), false
		case connect.CodeUnknown, connect.CodeInternal:
			c.oddity(what, err) // and yet it may be of a connection that was cut
		default:
			c.oddity(what, err)
			return requested, time.Now(), false
		}
		select {
		case <-ctx.Done():
			return requested, time.Now(), false
		case <-time.After(retryEvery):
		}
	}
}

func (c *client) oddity(what string, err error) {
	c.log.Warn("unexpected answer", "what", what, "error", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.odd[what+": "+err.Error()]++
}

// change asks for a change and remembers it where it was acknowledged.
func (c *client) change(ctx context.Context, k *known, ch checker.Change, call func(ctx context.Context, again bool) error) bool {
	k.changed++
	var ok bool
	ch.Requested, ch.Answered, ok = c.until(ctx, string(ch.Kind), call)
	c.log.Info("asked", "what", ch.Kind, "job", k.ID, "run", ch.RunID, "acknowledged", ok, "requested", ch.Requested, "schedule", ch.Schedule)
	if ok {
		c.mu.Lock()
		k.Changes = append(k.Changes, ch)
		c.mu.Unlock()
	}
	return ok
}

func (c *client) cancel(ctx context.Context, k *known) {
	if k.run == "" || (k.Schedule.Kind != schedule.Once && time.Now().Before(k.Schedule.Anchor)) {
		return
	}
	run := k.run
	if k.Schedule.Kind != schedule.Once || len(k.Changes) > 0 { // the one that goes on, or comes next
		res, err := c.runs.GetRun(ctx, connect.NewRequest(&waterclockv1.GetRunRequest{JobId: k.ID}))
		if err != nil {
			return
		}
		run = res.Msg.GetRun().GetRunId()
	}
	c.change(ctx, k, checker.Change{Kind: checker.Cancel, RunID: run}, func(ctx context.Context, _ bool) error {
		_, err := c.runs.CancelRun(ctx, connect.NewRequest(&waterclockv1.CancelRunRequest{JobId: k.ID, RunId: run}))
		return err
	})
}

func (c *client) pause(ctx context.Context, k *known) {
	k.paused = c.change(ctx, k, checker.Change{Kind: checker.Pause}, func(ctx context.Context, _ bool) error {
		_, err := c.jobs.PauseJob(ctx, connect.NewRequest(&waterclockv1.PauseJobRequest{JobId: k.ID}))
		return err
	})
	k.resume = time.Now().Add(c.maker.between(200*time.Millisecond, 6*time.Second))
}

func (c *client) resume(ctx context.Context, k *known) {
	k.paused = false
	c.change(ctx, k, checker.Change{Kind: checker.Resume}, func(ctx context.Context, _ bool) error {
		_, err := c.jobs.ResumeJob(ctx, connect.NewRequest(&waterclockv1.ResumeJobRequest{JobId: k.ID}))
		return err
	})
}

func (c *client) delete(ctx context.Context, k *known) {
	k.over = true
	c.change(ctx, k, checker.Change{Kind: checker.Delete}, func(ctx context.Context, again bool) error {
		_, err := c.jobs.DeleteJob(ctx, connect.NewRequest(&waterclockv1.DeleteJobRequest{JobId: k.ID}))
		if again && connect.CodeOf(err) == connect.CodeNotFound {
			return nil // by the try that was not answered
		}
		return err
	})
}

// update moves a one-time job that has not begun, or changes the period of a series.
func (c *client) update(ctx context.Context, k *known) {
	now := time.Now()
	s := schedule.Schedule{Kind: schedule.Once, At: now.Add(c.maker.between(500*time.Millisecond, 5*time.Second)).UTC().Truncate(time.Microsecond)}
	if k.Schedule.Kind != schedule.Once {
		s = c.maker.every(c.maker.between(time.Second, 3*time.Second).Truncate(time.Millisecond), now.Add(c.maker.between(0, 2*time.Second)),
			c.maker.between(5*time.Second, 20*time.Second))
	}
	tried := int64(0)
	c.change(ctx, k, checker.Change{Kind: checker.Update, Schedule: s}, func(ctx context.Context, _ bool) error {
		res, err := c.jobs.GetJob(ctx, connect.NewRequest(&waterclockv1.GetJobRequest{JobId: k.ID}))
		if err != nil {
			return err
		}
		version := res.Msg.GetJob().GetVersion()
		if tried != 0 && version != tried {
			return nil // nobody else changes it: the try that was not answered did
		}
		tried = version
		_, err = c.jobs.UpdateJob(ctx, connect.NewRequest(&waterclockv1.UpdateJobRequest{
			JobId: k.ID, Version: version, Spec: &waterclockv1.JobSpec{Kind: "exec", Schedule: protoSchedule(s)},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"schedule"}},
		}))
		return err
	})
}

// told returns what this client was told, as it is now.
func (c *client) told() []checker.Job {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]checker.Job, len(c.mine))
	for i, k := range c.mine {
		out[i] = k.Job
		out[i].Changes = append([]checker.Change(nil), k.Changes...)
	}
	return out
}
