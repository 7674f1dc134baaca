package harness

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/job/schedule"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
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
	*door
	nats *nats.Conn          // not nil: submits go by request and reply
	js   jetstream.JetStream // not nil: now and then a submit is only published
	log  *slog.Logger
	next func() int // numbers jobs
	// peers are the jobs of other namespaces as they are known now; nil where there is one namespace.
	peers func() []checker.Job
	// without are changes that this client never asks for.
	without map[checker.ChangeKind]bool

	// asking are cancels whose answer nobody waits for yet.
	asking sync.WaitGroup

	triggers int // asked for, to number them

	mu      sync.Mutex
	mine    []*known
	foreign []checker.ForeignCall
	// odd are answers that no client should get, by text.
	odd map[string]int
}

// known is a job as its client knows it.
type known struct {
	checker.Job
	key     string
	run     string // the first
	over    bool   // deleted, doomed, or given up as it cannot be changed any more
	unseen  bool   // was only published, and has not been seen since
	paused  bool
	resume  time.Time
	changed int
}

func newUser(name string, rng *rand.Rand, m *maker, d *door, log *slog.Logger, next func() int) *client {
	return &client{name: name, rng: rng, maker: m, door: d, log: log.With("client", name, "namespace", d.namespace), next: next, odd: map[string]int{}}
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
	if c.peers != nil && c.rng.IntN(6) == 0 {
		c.trespass(ctx)
		return
	}
	if c.rng.IntN(3) == 0 && c.lookForPublished(ctx) {
		return
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
	case checker.Trigger:
		c.trigger(ctx, k)
	default:
		c.submit(ctx, now)
	}
}

// turns is how often each thing is done: a submit where it is empty.
var turns = [24]checker.ChangeKind{
	checker.Cancel, checker.Cancel, checker.Pause, checker.Pause, checker.Pause, checker.Update, checker.Update, checker.Delete, checker.Delete,
	checker.Trigger, checker.Trigger,
}

// pick chooses a job that may still be worth changing.
func (c *client) pick(now time.Time) *known {
	var live []*known
	for _, k := range c.mine {
		end := k.Schedule.End
		if k.Schedule.Kind == schedule.Once {
			end = k.Schedule.At.Add(5 * time.Second)
		}
		if !k.over && !k.unseen && !k.paused && now.Before(end) && k.changed < 3 {
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
	send := c.send
	switch way := c.rng.IntN(8); {
	case way == 0 && c.js != nil:
		send = c.publish
	case way == 1:
		c.batch(ctx, now, 2+c.rng.IntN(6))
		return
	}
	if series < maxSeries && c.rng.IntN(4) == 0 {
		number := c.next()
		spec, j, fires := c.maker.minutely(number, now)
		if !fires || c.rng.IntN(4) > 0 {
			spec, j = c.maker.series(number, now)
		}
		send(ctx, spec, j)
		return
	}
	spec, j := c.maker.one(c.next(), now)
	send(ctx, spec, j)
}

// burst submits jobs that are due now, one after the other.
func (c *client) burst(ctx context.Context, n int) {
	for range n {
		now := time.Now().UTC().Truncate(time.Microsecond)
		j := checker.Job{Namespace: c.namespace, Number: c.next(), MaxAttempts: 50, Schedule: schedule.Schedule{Kind: schedule.Once, At: now}}
		c.send(ctx, c.maker.spec(j, work{file: c.maker.file, child: c.maker.child, long: c.maker.between(0, 400*time.Millisecond)}), j)
	}
}

// cancelLast asks for the cancel of the last n jobs, all at once.
func (c *client) cancelLast(ctx context.Context, n int) {
	for _, k := range c.mine[max(0, len(c.mine)-n):] {
		c.asking.Go(func() { c.cancel(ctx, k) })
	}
}

// asked is what became of a call.
type asked struct {
	requested, answered time.Time
	// ok: it was done. unsure: no answer says that it was not.
	ok, unsure bool
}

// until is insistent for who wants to know no more than whether it was done.
func (c *client) until(ctx context.Context, what string, call func(ctx context.Context, again bool) error) (requested, answered time.Time, ok bool) {
	a := c.insistent(ctx, what, call)
	return a.requested, a.answered, a.ok
}

// insistent repeats a call until it is answered; again tells the call that an earlier try may have had its effect. An answer other than yes that makes sense (too
// late, over) is not one to remember.
func (c *client) insistent(ctx context.Context, what string, call func(ctx context.Context, again bool) error) asked {
	a := asked{requested: time.Now()}
	for again := false; ; again = true {
		one, cancel := context.WithTimeout(ctx, callLimit)
		err := call(one, again)
		cancel()
		a.answered = time.Now()
		if err == nil {
			a.ok, a.unsure = true, false
			return a
		}
		switch code := connect.CodeOf(err); code {
		case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled, connect.CodeResourceExhausted, connect.CodeAborted:
		case connect.CodeFailedPrecondition:
			c.log.Info("refused", "what", what, "error", err)
			return a
		case connect.CodeUnknown, connect.CodeInternal:
			c.oddity(what, err) // and yet it may be of a connection that was cut
		default:
			c.oddity(what, err)
			return a
		}
		a.unsure = true
		select {
		case <-ctx.Done():
			return a
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

// change asks for a change and remembers it where it was acknowledged, or may have been made all the same. The call may fill in what the answer says.
func (c *client) change(ctx context.Context, k *known, ch *checker.Change, call func(ctx context.Context, again bool) error) bool {
	k.changed++
	got := c.insistent(ctx, string(ch.Kind), call)
	ch.Requested, ch.Answered = got.requested, got.answered
	c.log.Info("asked", "what", ch.Kind, "job", k.ID, "run", ch.RunID, "acknowledged", got.ok, "unsure", got.unsure, "requested", ch.Requested, "schedule", ch.Schedule)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case got.ok:
		k.Changes = append(k.Changes, *ch)
	case got.unsure:
		k.Unsure = append(k.Unsure, *ch)
	}
	return got.ok
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
	c.change(ctx, k, &checker.Change{Kind: checker.Cancel, RunID: run}, func(ctx context.Context, _ bool) error {
		_, err := c.runs.CancelRun(ctx, connect.NewRequest(&waterclockv1.CancelRunRequest{JobId: k.ID, RunId: run}))
		return err
	})
}

func (c *client) pause(ctx context.Context, k *known) {
	k.paused = c.change(ctx, k, &checker.Change{Kind: checker.Pause}, func(ctx context.Context, _ bool) error {
		_, err := c.jobs.PauseJob(ctx, connect.NewRequest(&waterclockv1.PauseJobRequest{JobId: k.ID}))
		return err
	})
	k.resume = time.Now().Add(c.maker.between(200*time.Millisecond, 6*time.Second))
}

func (c *client) resume(ctx context.Context, k *known) {
	k.paused = false
	c.change(ctx, k, &checker.Change{Kind: checker.Resume}, func(ctx context.Context, _ bool) error {
		_, err := c.jobs.ResumeJob(ctx, connect.NewRequest(&waterclockv1.ResumeJobRequest{JobId: k.ID}))
		return err
	})
}

func (c *client) delete(ctx context.Context, k *known) {
	k.over = true
	c.change(ctx, k, &checker.Change{Kind: checker.Delete}, func(ctx context.Context, again bool) error {
		_, err := c.jobs.DeleteJob(ctx, connect.NewRequest(&waterclockv1.DeleteJobRequest{JobId: k.ID}))
		if again && connect.CodeOf(err) == connect.CodeNotFound {
			return nil // by the try that was not answered
		}
		return err
	})
}

// trigger asks for a run beside the schedule. The id of the request makes the second try find what the first has made.
func (c *client) trigger(ctx context.Context, k *known) {
	c.triggers++
	request := fmt.Sprintf("%s-trigger-%d", c.name, c.triggers)
	ch := checker.Change{Kind: checker.Trigger}
	c.change(ctx, k, &ch, func(ctx context.Context, _ bool) error {
		res, err := c.jobs.TriggerJob(ctx, connect.NewRequest(&waterclockv1.TriggerJobRequest{JobId: k.ID, RequestId: request}))
		if err == nil {
			ch.RunID = res.Msg.GetRun().GetRunId()
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
	c.change(ctx, k, &checker.Change{Kind: checker.Update, Schedule: s}, func(ctx context.Context, _ bool) error {
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
		out[i].Changes = slices.Clone(k.Changes)
		out[i].Unsure = slices.Clone(k.Unsure)
	}
	return out
}
