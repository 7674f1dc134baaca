package streams

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/job"
)

var queueQ = Queue{Namespace: job.SharedNamespace, Name: "q"}

func laneAt(p job.Priority) Lane {
	return Lane{Namespace: queueQ.Namespace, Queue: queueQ.Name, Priority: p}
}

// delivered is a Puller and what came out of it.
type delivered struct {
	*Puller
	work    chan Delivery
	surplus chan Delivery
	gone    chan struct{}
}

func (r *rig) puller(nc *nats.Conn, runs Runs, change func(*PullConfig)) *delivered {
	r.t.Helper()
	d := &delivered{work: make(chan Delivery, 10_000), surplus: make(chan Delivery, 10_000), gone: make(chan struct{}, 100)}
	cfg := PullConfig{
		Queues: []Queue{queueQ}, Slots: 1, AckWait: time.Minute, Hold: 200 * time.Millisecond, Logger: quiet,
		Deliver: func(m Delivery) { d.work <- m }, Surplus: func(msgs []Delivery) {
			for _, m := range msgs {
				d.surplus <- m
			}
		}, Gone: func() { d.gone <- struct{}{} },
	}
	if change != nil {
		change(&cfg)
	}
	p, err := NewPuller(r.t.Context(), nc, jsOf(r.t, nc), runs, cfg)
	check.OK(r.t, err)
	r.t.Cleanup(p.Stop)
	d.Puller = p
	return d
}

func idOf(t testing.TB, m Delivery) uuid.UUID {
	t.Helper()
	_, id, _, err := ParseRunSubject(m.Subject)
	check.OK(t, err)
	return id
}

// take takes the next run, and gives its slot free.
func (d *delivered) take(t testing.TB) Delivery {
	t.Helper()
	m := check.Receive(t, "a run", d.work)
	check.OK(t, m.Ack())
	d.Release(1)
	return m
}

func priorityOf(t testing.TB, m Delivery) job.Priority {
	t.Helper()
	p, ok := lanePriority(m.Subject)
	if !ok {
		t.Fatalf("%s is of no lane", m.Subject)
	}
	return p
}

// consumer is the consumer of a lane, as the server sees it.
func (r *rig) consumer(runs Runs, l Lane) *jetstream.ConsumerInfo {
	r.t.Helper()
	info, err := findConsumer(r.t.Context(), r.js, runs.Name, l)
	check.OK(r.t, err)
	return info
}

// dispatch sends a run on a lane, and does not wait for its answer.
func dispatch(t testing.TB, w *Window, l Lane) {
	t.Helper()
	check.OK(t, w.Publish(t.Context(), RunSubject(l, uuid.New(), 1), nil, nil, func(Ack, error) {}))
}

// parked waits until the server holds a pull on each lane.
func (r *rig) parked(runs Runs) {
	r.t.Helper()
	check.Await(r.t, "a parked pull on each lane", func() bool {
		for _, p := range job.Priorities {
			info, err := findConsumer(r.t.Context(), r.js, runs.Name, laneAt(p))
			if err != nil || info.NumWaiting == 0 {
				return false
			}
		}
		return true
	})
}

func TestPullersShareWithoutLossOrDouble(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	const n, seed = 2000, 7
	rnd := rand.New(rand.NewPCG(seed, seed))
	t.Logf("seed %d", seed)
	var mu sync.Mutex
	got := map[uuid.UUID]int{}
	all := make(chan struct{})
	for range 5 {
		nc := r.connect()
		slots := 1 + rnd.IntN(30)
		var busy atomic.Int32
		var p *Puller
		ready := make(chan struct{})
		finish := func(m Delivery) {
			_ = m.Ack()
			mu.Lock()
			defer mu.Unlock()
			if got[idOf(t, m)]++; len(got) == n {
				select {
				case <-all:
				default:
					close(all)
				}
			}
		}
		p, err := NewPuller(t.Context(), nc, jsOf(t, nc), runs, PullConfig{
			Queues: []Queue{queueQ, {Namespace: "own", Name: "q"}}, Slots: slots, AckWait: time.Minute, Hold: 50 * time.Millisecond, Logger: quiet,
			Deliver: func(m Delivery) {
				if b := busy.Add(1); int(b) > slots {
					t.Errorf("%d runs for %d slots", b, slots)
				}
				go func() {
					<-ready
					finish(m)
					busy.Add(-1)
					p.Release(1)
				}()
			},
			Surplus: func(msgs []Delivery) {
				for _, m := range msgs {
					go finish(m)
				}
			},
			Gone: func() {},
		})
		check.OK(t, err)
		close(ready)
		t.Cleanup(p.Stop)
	}
	w := r.window(256, 5*time.Second)
	for i := range n {
		l := laneAt(job.Priorities[rnd.IntN(4)])
		if i%3 == 0 {
			l.Namespace = "own"
		}
		check.OK(t, w.Publish(t.Context(), RunSubject(l, uuid.New(), 1), nil, nil, func(_ Ack, err error) {
			if err != nil {
				t.Error(err)
			}
		}))
	}
	check.Receive(t, "the last run", all)
	mu.Lock()
	defer mu.Unlock()
	for id, c := range got {
		if c != 1 {
			t.Errorf("%s came %d times", id, c)
		}
	}
	check.Await(t, "an empty stream", func() bool { return r.count(runs.Name) == 0 })
}

// What falls due together starts in order of priority, also where it comes through parked pulls. Now and then it does not: JetStream hands out to a pull that comes in
// at that moment what it has just stored, and says for an instant of what it stored before that it has nothing.
func TestOneSlotIsStrict(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	p := r.puller(r.nc, runs, func(c *PullConfig) { c.Hold = time.Minute })
	w := r.window(16, 5*time.Second)
	const tries, mayFail = 100, 10
	failed := 0
	for try := range tries {
		if try%10 == 0 {
			r.parked(runs)
		}
		for _, prio := range job.Priorities {
			dispatch(t, w, laneAt(prio))
		}
		var got []job.Priority
		for range job.Priorities {
			got = append(got, priorityOf(t, p.take(t)))
		}
		if !slices.IsSorted(got) {
			failed++
			t.Logf("try %d: started in the order %v", try, got)
		}
	}
	if failed > mayFail {
		t.Errorf("%d of %d tries were out of order", failed, tries)
	}
	if n := len(p.surplus); n != 0 {
		t.Errorf("%d were given back", n)
	}
}

func TestBacklogIsTakenFromTheTop(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	// Fewer than would bring the turn of the lowest lane.
	for _, prio := range []job.Priority{job.Low, job.Normal, job.High, job.Critical} {
		r.publish(laneAt(prio))
		r.publish(laneAt(prio))
	}
	p := r.puller(r.nc, runs, nil)
	var got []job.Priority
	for range 8 {
		got = append(got, priorityOf(t, p.take(t)))
	}
	if !slices.IsSorted(got) {
		t.Errorf("started in the order %v", got)
	}
}

func TestLowestLaneDoesNotStarve(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	w := r.window(256, 5*time.Second)
	for range 100 {
		dispatch(t, w, laneAt(job.Critical))
	}
	const low = 5
	for range low {
		r.publish(laneAt(job.Low))
	}
	p := r.puller(r.nc, runs, nil)
	since, seen := 0, 0
	for seen < low {
		dispatch(t, w, laneAt(job.Critical)) // it never ends
		if priorityOf(t, p.take(t)) == job.Low {
			seen, since = seen+1, 0
		} else if since++; since > 2*bottomEvery {
			t.Fatalf("%d critical runs while a low one waits", since)
		}
	}
}

// Parked pulls ask for more than there are slots; what finds none is given back, and the lease of nobody ends.
func TestSurplusIsGivenBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	p := r.puller(r.nc, runs, func(c *PullConfig) { c.Slots = 4 })
	r.parked(runs)
	want := map[uuid.UUID]bool{}
	for range 4 {
		for _, prio := range job.Priorities {
			want[r.publish(laneAt(prio))] = true
		}
	}
	for range 4 {
		delete(want, idOf(t, check.Receive(t, "a run", p.work)))
	}
	back := check.Receive(t, "a surplus", p.surplus)
	delete(want, idOf(t, back))
	p.Stop()
	for len(p.surplus) > 0 {
		delete(want, idOf(t, <-p.surplus))
	}
	// What is left was never delivered.
	info := 0
	for _, prio := range job.Priorities {
		info += int(r.consumer(runs, laneAt(prio)).NumPending) //nolint:gosec // few
	}
	if len(want) != info || len(p.work) != 0 {
		t.Errorf("%d were neither worked on, given back nor kept by the server (%d); %d too many worked on", len(want)-info, info, len(p.work))
	}
}

// A slot that becomes free in time takes what would else be given back, the most urgent first.
// Where a burst of several priorities comes, what pulls parked on the lower lanes bring starts before the rest of the higher: it is little where nothing came by lately.
func TestParkedPullsAskForFewAtFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	p := r.puller(r.nc, runs, func(c *PullConfig) { c.Slots, c.Hold = 100, time.Minute })
	r.parked(runs)
	w := r.window(256, 5*time.Second)
	for range 100 {
		dispatch(t, w, laneAt(job.Critical))
	}
	for range 100 {
		check.Receive(t, "a run for each slot", p.work)
	}
	for range 100 {
		dispatch(t, w, laneAt(job.Low))
	}
	check.Await(t, "what the parked pull asked for", func() bool {
		low := r.consumer(runs, laneAt(job.Low))
		return low.NumAckPending == leastParked && low.NumPending == 100-leastParked
	})
}

// What a parked pull brought and no slot was free for makes its way through SQL again, so after that it asks for few.
func TestParkedPullsAskForFewAfterASurplus(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	const slots = 4 * leastParked
	p := r.puller(r.nc, runs, func(c *PullConfig) { c.Slots, c.Hold = slots, 50*time.Millisecond })
	w := r.window(256, 5*time.Second)
	send := func(n int, prio job.Priority) {
		for range n {
			dispatch(t, w, laneAt(prio))
		}
	}
	low := func() *jetstream.ConsumerInfo { return r.consumer(runs, laneAt(job.Low)) }
	empty := func() bool { return low().NumAckPending == 0 && low().NumPending == 0 }
	// Four fill a pull, so the next asks for more: for as many as there are free slots at that moment.
	r.parked(runs)
	send(leastParked, job.Low)
	for range leastParked {
		p.take(t)
	}
	check.Await(t, "an empty lane", empty)
	surplus := func(least, most int) {
		t.Helper()
		r.parked(runs)
		send(slots, job.Critical)
		var taken []Delivery
		for range slots {
			taken = append(taken, check.Receive(t, "a run for each slot", p.work))
		}
		send(slots, job.Low)
		brought := 0
		check.Await(t, "what the parked pull asked for", func() bool {
			brought = slots - int(low().NumPending) //nolint:gosec // few
			return brought >= least
		})
		for range brought {
			check.OK(t, check.Receive(t, "a surplus", p.surplus).Ack())
		}
		if brought > most {
			t.Errorf("a parked pull brought %d, want %d at most", brought, most)
		}
		for _, m := range taken {
			check.OK(t, m.Ack())
		}
		p.Release(slots)
		for range slots - brought {
			p.take(t)
		}
		check.Await(t, "an empty lane", empty)
	}
	surplus(slots-leastParked, slots)
	surplus(leastParked, leastParked)
}

func TestHeldRunsStartWhenASlotIsFree(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	p := r.puller(r.nc, runs, func(c *PullConfig) { c.Hold = time.Minute })
	r.parked(runs)
	for _, prio := range []job.Priority{job.Critical, job.Low, job.Normal, job.High} {
		r.publish(laneAt(prio))
	}
	for _, want := range job.Priorities {
		if got := priorityOf(t, p.take(t)); got != want {
			t.Errorf("%v before %v", got, want)
		}
	}
}

func TestParkedPullsAreRenewed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	p := r.puller(r.nc, runs, func(c *PullConfig) { c.parkFor = 150 * time.Millisecond })
	r.parked(runs)
	asked := make(chan struct{}, 100)
	low := r.consumer(runs, laneAt(job.Low)).Name
	r.subscribe(r.nc, "$JS.API.CONSUMER.MSG.NEXT."+runs.Name+"."+low, func(*nats.Msg) { asked <- struct{}{} })
	for range 3 {
		check.Receive(t, "a new pull", asked)
	}
	id := r.publish(laneAt(job.Low))
	if got := idOf(t, check.Receive(t, "the run", p.work)); got != id {
		t.Errorf("got %s, want %s", got, id)
	}
}

// Pulls that were sent while a consumer had no leader are lost without a word. The new leader's election is: the lane is asked again at once, and no other.
func TestElectionMakesPullersAskAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	r.puller(r.nc, runs, func(c *PullConfig) { c.parkFor = time.Hour })
	r.parked(runs)
	asked := make(chan string, 100)
	r.subscribe(r.nc, "$JS.API.CONSUMER.MSG.NEXT."+runs.Name+".*", func(m *nats.Msg) { asked <- m.Subject })
	for _, prio := range []job.Priority{job.Low, job.Critical} {
		name := r.consumer(runs, laneAt(prio)).Name
		check.OK(t, r.nc.Publish("$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED."+runs.Name+"."+name, []byte("{}")))
		if got := check.Receive(t, "a new pull", asked); got != "$JS.API.CONSUMER.MSG.NEXT."+runs.Name+"."+name {
			t.Errorf("asked %s after the election of %s", got, name)
		}
	}
}

// What the server has sent is worked on or given back, however the stop falls, and the rest goes to others at once (the server may count what it could
// not send as a delivery): nothing is left to its lease.
func TestStopHandsBackEverything(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	w := r.window(512, 5*time.Second)
	const n = 300
	for try := range 10 {
		nc := r.connect()
		p := r.puller(nc, runs, func(c *PullConfig) { c.Slots, c.Hold = 500, time.Minute })
		r.parked(runs)
		// Deliveries are on their way when the stop comes.
		for range n {
			dispatch(t, w, laneA)
		}
		first := check.Receive(t, "the first run", p.work)
		p.Stop()
		p.Stop()
		p.Release(1) // of no use, and harmless
		got := map[uuid.UUID]bool{}
		take := func(m Delivery) {
			id := idOf(t, m)
			if got[id] {
				t.Fatalf("try %d: %s came again", try, id)
			}
			got[id] = true
			check.OK(t, m.Ack())
		}
		take(first)
		for len(p.work) > 0 {
			take(<-p.work)
		}
		for len(p.surplus) > 0 {
			take(<-p.surplus)
		}
		next := r.puller(r.connect(), runs, func(c *PullConfig) { c.Slots = n })
		for len(got) < n {
			take(check.Receive(t, fmt.Sprintf("what the first puller did not take (%d of %d so far)", len(got), n), next.work))
		}
		next.Stop()
		check.Await(t, "an empty stream", func() bool { return r.count(runs.Name) == 0 })
	}
}
