package harness

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/job/schedule"
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
	ask := fault.Pick(c.rng, turns[:])
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
	return fault.Pick(c.rng, live)
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

// insistent repeats a call until it is answered. An answer other than yes that makes sense (too late, over) is not one to remember.
func (c *client) insistent(ctx context.Context, what string, call func(ctx context.Context) error) asked {
	a := asked{requested: time.Now()}
	for {
		one, cancel := context.WithTimeout(ctx, callLimit)
		err := call(one)
		cancel()
		a.answered = time.Now()
		if err == nil {
			a.ok, a.unsure = true, false
			return a
		}
		code := connect.CodeOf(err)
		if code == connect.CodeFailedPrecondition {
			c.log.Info("refused", "what", what, "error", err)
			return a
		}
		noAnswer := saysNothing(err) || code == connect.CodeAborted
		if odd(err) || !noAnswer {
			c.oddity(what, err)
		}
		if !noAnswer {
			return a
		}
		a.unsure = true
		if fault.Wait(ctx, retryEvery) != nil {
			return a
		}
	}
}

func (c *client) oddity(what string, err error) {
	c.log.Warn("unexpected answer", "what", what, "error", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.odd[what+": "+err.Error()]++
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
