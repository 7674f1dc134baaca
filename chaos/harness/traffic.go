package harness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/streams"
)

// trafficOptions are what the load on a world is made of.
type trafficOptions struct {
	// Source gives each part a stream of numbers of its own: parts 3 and from 10 on are taken.
	Source func(part uint64) *rand.Rand
	// Transport carries the calls; connections of this run alone.
	Transport http.RoundTripper
	APIs      []string
	// Keys are API keys by namespace; none: all clients are of the namespace default, which needs none.
	Keys map[string]string
	NATS *nats.Conn
	// Queues are those that executors serve: "default", and "namespace/queue" of others.
	Queues []string
	// File is what all commands append to, and Child what runs them.
	File  string
	Child []string
	// End is when the load is to end.
	End time.Time
	// Murders is how many jobs may be made that kill their executor; only for worlds in which that dies alone and is started again.
	Murders int
	Without []checker.ChangeKind
	// StoreURL is where the key of the cluster is read, sqlite:PATH or postgres://…; it seals statuses of runs that never were.
	StoreURL string
	Log      *slog.Logger
}

// traffic is all that is asked of a world in a run.
type traffic struct {
	clients []*client
	bursts  *client // does nothing else
	doors   map[string]*door
	poison  *poisoner
	web     *webhook
	js      jetstream.JetStream
	rng     *rand.Rand // of the probe
	seen    []checker.Attempt
}

func newTraffic(ctx context.Context, o trafficOptions) (_ *traffic, err error) {
	t := &traffic{doors: map[string]*door{}, rng: o.Source(3)}
	if t.js, err = jetstream.New(o.NATS); err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	namespaces := slices.Sorted(maps.Keys(o.Keys))
	if len(namespaces) == 0 {
		namespaces = []string{"default"}
	}
	for _, ns := range namespaces {
		if t.doors[ns], err = newDoor(ns, o.Keys[ns], o.APIs, 0, o.Transport); err != nil {
			return nil, err
		}
	}
	key, err := clusterKey(ctx, o.StoreURL)
	if err != nil {
		return nil, err
	}
	t.poison = &poisoner{js: t.js, rng: o.Source(9), namespaces: namespaces, sealer: streams.NewSealer(key)}
	if t.web, err = newWebhook(o.File); err != nil {
		return nil, err
	}
	var number, murders atomic.Int64
	murders.Store(int64(o.Murders))
	next := func() int { return int(number.Add(1)) }
	for i := range clients + 1 {
		ns := namespaces[i%len(namespaces)]
		rng := o.Source(uint64(10 + i)) //nolint:gosec // small
		m := &maker{rng: rng, file: o.File, child: o.Child, end: o.End, queues: lanesOf(ns, o.Queues), web: t.web.url, murders: &murders}
		d, err := newDoor(ns, o.Keys[ns], o.APIs, i, o.Transport)
		if err != nil {
			return nil, errors.Join(err, t.web.close())
		}
		c := newUser(fmt.Sprintf("client%d", i), rng, m, d, o.Log, next)
		c.js, c.without = t.js, map[checker.ChangeKind]bool{}
		for _, kind := range o.Without {
			c.without[kind] = true
		}
		if i == 1 {
			c.nats = o.NATS
		}
		t.clients = append(t.clients, c)
	}
	t.bursts = t.clients[clients]
	introduce(t.clients)
	return t, nil
}

// lanesOf are the queues that a namespace may use.
func lanesOf(namespace string, queues []string) []queueName {
	var out []queueName
	for _, q := range slices.Sorted(slices.Values(queues)) {
		switch of, name, own := strings.Cut(q, "/"); {
		case !own:
			out = append(out, queueName{"", q})
		case of == namespace:
			out = append(out, queueName{name, q})
		}
	}
	return out
}

// work loads the world until the load ends; answers are waited for until calls ends.
func (t *traffic) work(until, calls context.Context) error {
	var wg sync.WaitGroup
	for _, c := range t.clients {
		if c != t.bursts {
			wg.Go(func() { c.work(until, calls, pace) })
		}
	}
	wg.Go(func() { t.probe(until) })
	var err error
	wg.Go(func() { err = t.poison.work(until, calls) })
	wg.Wait()
	t.bursts.asking.Wait()
	return err
}

// burst and cancels are for faults that want to find many runs, or cancels, under way.
func (t *traffic) burst(ctx context.Context) { t.bursts.burst(ctx, burstSize) }

func (t *traffic) cancels(ctx context.Context) { t.bursts.cancelLast(ctx, burstSize) }

// probe reads history while the faults go on; what cannot be read just now is not.
func (t *traffic) probe(ctx context.Context) {
	rd := t.reader()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		jobs := fault.Pick(t.rng, t.clients).told()
		if len(jobs) == 0 {
			continue
		}
		j := fault.Pick(t.rng, jobs)
		one, cancel := context.WithTimeout(ctx, callLimit)
		err := rd.one(one, &j)
		cancel()
		if err != nil {
			continue // it is being killed
		}
		for i := range j.Runs {
			t.seen = append(t.seen, j.Runs[i].Attempts...)
		}
	}
}

func (t *traffic) reader() *reader { return &reader{doors: t.doors} }

// told are all jobs as their clients know them.
func (t *traffic) told() []checker.Job {
	var out []checker.Job
	for _, c := range t.clients {
		out = append(out, c.told()...)
	}
	return out
}

// fill puts into a history what clients were told, what the API shows now, and where poison ended. What else lies in the dead letters was good and not taken: it
// counts as left. h.Lost are the times in which NATS came back without data that it had, or with older: what only NATS knew then may be gone.
func (t *traffic) fill(ctx context.Context, h *checker.History) error {
	h.Jobs, h.Seen = t.told(), t.seen
	for _, c := range t.clients {
		c.mu.Lock()
		h.Foreign = append(h.Foreign, c.foreign...)
		c.mu.Unlock()
	}
	if err := t.reader().all(ctx, h.Jobs); err != nil {
		return err
	}
	published := t.published()
	h.Jobs = slices.DeleteFunc(h.Jobs, func(j checker.Job) bool { return !j.Found && published[j.ID] && forgotten(h.Lost, j.Answered) })
	letters, err := deadLetters(ctx, t.js)
	if err != nil {
		return err
	}
	poison, others := t.poison.ended(letters, h.Lost)
	h.Poison = poison
	for _, o := range others {
		h.Left.Streams = append(h.Left.Streams, checker.Stream{Name: fmt.Sprintf("%s at %s: %s", streams.DeadStream, o.subject, o.reason), Messages: 1})
	}
	return nil
}

// published are the jobs that were only published and that their client has not seen since.
func (t *traffic) published() map[string]bool {
	out := map[string]bool{}
	for _, c := range t.clients {
		c.mu.Lock()
		for _, k := range c.mine {
			if k.unseen {
				out[k.ID] = true
			}
		}
		c.mu.Unlock()
	}
	return out
}

// takenWithin is how long after its publish a submit may be in NATS alone; it is taken at once where nothing is broken, and else when its lease is over.
const takenWithin = time.Minute

// forgotten tells whether NATS may have lost what it took at a moment before anybody had it from there.
func forgotten(lost []checker.Window, at time.Time) bool {
	return slices.ContainsFunc(lost, func(w checker.Window) bool { return at.After(w.From.Add(-takenWithin)) && at.Before(w.Till) })
}

// odd are answers that no client should get.
func (t *traffic) odd() map[string]int {
	out := map[string]int{}
	for _, c := range t.clients {
		c.mu.Lock()
		for what, n := range c.odd {
			out[what] += n
		}
		c.mu.Unlock()
	}
	return out
}

// close ends the service that jobs call; call it once nothing runs any more.
func (t *traffic) close() error { return t.web.close() }
