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
	check(r.t, err)
	r.t.Cleanup(p.Stop)
	d.Puller = p
	return d
}

func idOf(t testing.TB, m Delivery) uuid.UUID {
	t.Helper()
	_, id, _, err := ParseRunSubject(m.Subject)
	check(t, err)
	return id
}

// parked waits until the server holds a pull on each lane.
func (r *rig) parked(runs Runs, priorities ...job.Priority) {
	r.t.Helper()
	await(r.t, "a parked pull on each lane", func() bool {
		for _, p := range priorities {
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
		check(t, err)
		close(ready)
		t.Cleanup(p.Stop)
	}
	w := r.window(256, 5*time.Second)
	for i := range n {
		l := laneAt(job.Priorities[rnd.IntN(4)])
		if i%3 == 0 {
			l.Namespace = "own"
		}
		check(t, w.Publish(t.Context(), RunSubject(l, uuid.New(), 1), nil, nil, func(_ Ack, err error) {
			if err != nil {
				t.Error(err)
			}
		}))
	}
	receive(t, "the last run", all)
	mu.Lock()
	defer mu.Unlock()
	for id, c := range got {
		if c != 1 {
			t.Errorf("%s came %d times", id, c)
		}
	}
	await(t, "an empty stream", func() bool { return r.count(runs.Name) == 0 })
}

// What falls due together starts in order of priority, also where it comes through parked pulls.
func TestOneSlotIsStrict(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	p := r.puller(r.nc, runs, func(c *PullConfig) { c.Hold = time.Minute })
	w := r.window(16, 5*time.Second)
	for try := range 100 {
		if try%10 == 0 {
			r.parked(runs, job.Priorities[:]...)
		}
		for _, prio := range job.Priorities {
			check(t, w.Publish(t.Context(), RunSubject(laneAt(prio), uuid.New(), 1), nil, nil, func(Ack, error) {}))
		}
		for _, want := range job.Priorities {
			m := receive(t, "a run", p.work)
			if got, _ := lanePriority(m.Subject); got != want {
				t.Fatalf("try %d: %v started before %v", try, got, want)
			}
			check(t, m.Ack())
			p.Release(1)
		}
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
		m := receive(t, "a run", p.work)
		prio, _ := lanePriority(m.Subject)
		got = append(got, prio)
		check(t, m.Ack())
		p.Release(1)
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
	flood := func() {
		check(t, w.Publish(t.Context(), RunSubject(laneAt(job.Critical), uuid.New(), 1), nil, nil, func(Ack, error) {}))
	}
	for range 100 {
		flood()
	}
	const low = 5
	for range low {
		r.publish(laneAt(job.Low))
	}
	p := r.puller(r.nc, runs, nil)
	since, seen := 0, 0
	for seen < low {
		m := receive(t, "a run", p.work)
		flood() // it never ends
		if prio, _ := lanePriority(m.Subject); prio == job.Low {
			seen, since = seen+1, 0
		} else if since++; since > 2*bottomEvery {
			t.Fatalf("%d critical runs while a low one waits", since)
		}
		check(t, m.Ack())
		p.Release(1)
	}
}

// Parked pulls ask for more than there are slots; what finds none is given back, and the lease of nobody ends.
func TestSurplusIsGivenBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	p := r.puller(r.nc, runs, func(c *PullConfig) { c.Slots = 4 })
	r.parked(runs, job.Priorities[:]...)
	want := map[uuid.UUID]bool{}
	for range 4 {
		for _, prio := range job.Priorities {
			want[r.publish(laneAt(prio))] = true
		}
	}
	for range 4 {
		delete(want, idOf(t, receive(t, "a run", p.work)))
	}
	back := receive(t, "a surplus", p.surplus)
	delete(want, idOf(t, back))
	p.Stop()
	for len(p.surplus) > 0 {
		delete(want, idOf(t, <-p.surplus))
	}
	// What is left was never delivered.
	info := 0
	for _, prio := range job.Priorities {
		c, err := findConsumer(t.Context(), r.js, runs.Name, laneAt(prio))
		check(t, err)
		info += int(c.NumPending) //nolint:gosec // few
	}
	if len(want) != info || len(p.work) != 0 {
		t.Errorf("%d were neither worked on, given back nor kept by the server (%d); %d too many worked on", len(want)-info, info, len(p.work))
	}
}

// A slot that becomes free in time takes what would else be given back, the most urgent first.
func TestHeldRunsStartWhenASlotIsFree(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	p := r.puller(r.nc, runs, func(c *PullConfig) { c.Hold = time.Minute })
	r.parked(runs, job.Priorities[:]...)
	for _, prio := range []job.Priority{job.Critical, job.Low, job.Normal, job.High} {
		r.publish(laneAt(prio))
	}
	for _, want := range job.Priorities {
		m := receive(t, "a run", p.work)
		if got, _ := lanePriority(m.Subject); got != want {
			t.Errorf("%v before %v", got, want)
		}
		check(t, m.Ack())
		p.Release(1)
	}
}

func TestParkedPullsAreRenewed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	p := r.puller(r.nc, runs, func(c *PullConfig) { c.parkFor = 150 * time.Millisecond })
	r.parked(runs, job.Priorities[:]...)
	asked := make(chan struct{}, 100)
	low, err := findConsumer(t.Context(), r.js, runs.Name, laneAt(job.Low))
	check(t, err)
	sub, err := r.nc.Subscribe("$JS.API.CONSUMER.MSG.NEXT."+runs.Name+"."+low.Name, func(*nats.Msg) { asked <- struct{}{} })
	check(t, err)
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closed next
	for range 3 {
		receive(t, "a new pull", asked)
	}
	id := r.publish(laneAt(job.Low))
	if got := idOf(t, receive(t, "the run", p.work)); got != id {
		t.Errorf("got %s, want %s", got, id)
	}
}

func TestConsumerThatIsDeletedIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	p := r.puller(r.nc, runs, nil)
	r.parked(runs, job.Priorities[:]...)
	for _, prio := range []job.Priority{job.Normal, job.Critical} {
		c, err := findConsumer(t.Context(), r.js, runs.Name, laneAt(prio))
		check(t, err)
		check(t, r.js.DeleteConsumer(t.Context(), runs.Name, c.Name))
	}
	for _, prio := range []job.Priority{job.Normal, job.Critical, job.Low} {
		id := r.publish(laneAt(prio))
		m := receive(t, "the run of lane "+prio.String(), p.work)
		if got := idOf(t, m); got != id {
			t.Errorf("got %s, want %s", got, id)
		}
		check(t, m.Ack())
		p.Release(1)
	}
	if len(p.gone) > 0 {
		t.Error("the stream is said to be gone")
	}
}

// What the consumer before had delivered comes again as if for the first time; that the consumer is younger than the message tells.
func TestDeliveryOfAYoungerConsumerSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	pullers := []*delivered{r.puller(r.nc, runs, nil), r.puller(r.connect(), runs, nil)}
	either := func(what string) Delivery {
		t.Helper()
		select {
		case m := <-pullers[0].work:
			return m
		case m := <-pullers[1].work:
			return m
		case <-time.After(10 * time.Second):
			t.Fatalf("never came: %s", what)
			return Delivery{}
		}
	}
	before, err := findConsumer(t.Context(), r.js, runs.Name, laneA)
	check(t, err)
	id := r.publish(laneA)
	m := either("the run")
	meta, err := m.Metadata()
	check(t, err)
	if !m.Since.Equal(before.Created) || meta.Timestamp.Before(m.Since) {
		t.Errorf("stored at %s, delivered by a consumer of %s, which was made at %s", meta.Timestamp, m.Since, before.Created)
	}
	check(t, r.js.DeleteConsumer(t.Context(), runs.Name, before.Name))
	m = either("the run again")
	meta, err = m.Metadata()
	check(t, err)
	if idOf(t, m) != id || meta.NumDelivered != 1 || !m.Since.After(meta.Timestamp) {
		t.Errorf("delivery %d of what was stored at %s, by a consumer of %s", meta.NumDelivered, meta.Timestamp, m.Since)
	}
	check(t, m.Ack())
	s, err := r.js.Stream(t.Context(), runs.Name)
	check(t, err)
	if n := s.CachedInfo().State.Consumers; n != len(job.Priorities) {
		t.Errorf("%d consumers of %d lanes", n, len(job.Priorities))
	}
}

// However long a delivery lies in this process, its lease began no later than it arrived: markers that came behind it say nothing of it.
func TestLeaseOfADeliveryThatLayAround(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	held, going := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(going) })
	var once sync.Once
	nc := r.connect()
	markers := make(chan struct{}, 1000)
	p := r.puller(nc, runs, func(c *PullConfig) {
		c.Slots, c.AckWait = 8, time.Second
		deliver := c.Deliver
		c.Deliver = func(d Delivery) {
			deliver(d)
			once.Do(func() { // the puller stands still, as in a process that gets no processor
				close(held)
				<-going
			})
		}
	})
	t.Cleanup(goOn) // before it is stopped
	r.parked(runs, job.Priorities[:]...)
	sub, err := nc.Subscribe(p.prefix+"t", func(*nats.Msg) { markers <- struct{}{} })
	check(t, err)
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closed next
	before := time.Now()
	r.publish(laneA)
	<-held
	receive(t, "the first run", p.work)
	r.publish(laneA)
	await(t, "the second run is on its way", func() bool {
		info, err := findConsumer(t.Context(), r.js, runs.Name, laneA)
		return err == nil && info.NumPending == 0 && info.NumAckPending == 2
	})
	check(t, nc.Flush()) // what was sent has arrived
	arrived := time.Now()
	for len(markers) > 0 {
		<-markers
	}
	await(t, "time passes", func() bool { return time.Since(arrived) > 300*time.Millisecond })
	goOn()
	d := receive(t, "the second run", p.work)
	if !d.Leased.Before(arrived) || d.Leased.Before(before.Add(-2*time.Second)) {
		t.Errorf("its lease began %s after it had arrived", d.Leased.Sub(arrived))
	}
	receive(t, "a marker", markers) // they go on
	id := r.publish(laneA)
	if d = receive(t, "the third run", p.work); idOf(t, d) != id || time.Since(d.Leased) > 10*time.Second {
		t.Errorf("%s, its lease began at %s", idOf(t, d), d.Leased)
	}
}

func TestStreamThatIsDeletedIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	p := r.puller(r.nc, runs, nil)
	r.parked(runs, job.Priorities[:]...)
	check(t, r.js.DeleteStream(t.Context(), runs.Name))
	receive(t, "word that the stream is gone", p.gone)
	// Where it is made again under its name, work goes on.
	if _, err := updateRuns(t.Context(), r.js, runs.Generation, Limits{}.withDefaults(), r.reg.cluster.StoreID); err != nil {
		t.Fatal(err)
	}
	r.publish(laneA)
	receive(t, "a run of the new stream", p.work)
}

// A server that is restarted knows no pull any more; nobody waits for the end of the old ones.
func TestResetAfterAReconnect(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := startServer(t, dir, "127.0.0.1:0")
	addr := srv.Addr()
	var mu sync.Mutex
	var p *delivered
	back := make(chan struct{}, 10)
	nc, err := Connect(Dial{URL: "nats://" + addr, Name: "test", Logger: quiet})
	check(t, err)
	nc.SetReconnectHandler(func(*nats.Conn) {
		mu.Lock()
		defer mu.Unlock()
		p.Reset()
		back <- struct{}{}
	})
	t.Cleanup(nc.Close)
	r := &rig{t: t, nc: nc, js: jsOf(t, nc), reg: newMemory()}
	runs := r.ensure()
	mu.Lock()
	p = r.puller(nc, runs, nil)
	mu.Unlock()
	r.parked(runs, job.Priorities[:]...)
	srv.Stop()
	again := startServer(t, dir, addr)
	t.Cleanup(again.Stop)
	receive(t, "the reconnect", back)
	began := time.Now()
	id := r.publish(laneA)
	if got := idOf(t, receive(t, "the run", p.work)); got != id {
		t.Errorf("got %s, want %s", got, id)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("it took %s: the pulls of before were waited for", d)
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
		r.parked(runs, job.Priorities[:]...)
		// Deliveries are on their way when the stop comes.
		for range n {
			check(t, w.Publish(t.Context(), RunSubject(laneA, uuid.New(), 1), nil, nil, func(Ack, error) {}))
		}
		first := receive(t, "the first run", p.work)
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
			check(t, m.Ack())
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
			take(receive(t, fmt.Sprintf("what the first puller did not take (%d of %d so far)", len(got), n), next.work))
		}
		next.Stop()
		await(t, "an empty stream", func() bool { return r.count(runs.Name) == 0 })
	}
}

func TestPullerOfAStreamThatIsNotThere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := NewPuller(t.Context(), r.nc, r.js, Runs{"RUNS-9", 9}, PullConfig{Queues: []Queue{queueQ}, Slots: 1, AckWait: time.Second, Logger: quiet})
	if !Gone(err) {
		t.Errorf("got %v", err)
	}
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	r.publish(laneA)
	is := func(when string, want bool) {
		t.Helper()
		if got, err := Waiting(t.Context(), r.js, runs, laneA, 1); err != nil || got != want {
			t.Errorf("%s: %v, %v", when, got, err)
		}
	}
	is("nobody serves the queue", true)
	c, err := r.js.CreateConsumer(t.Context(), runs.Name, jetstream.ConsumerConfig{
		Durable: laneA.consumerPrefix() + "1", FilterSubject: laneA.filter(), AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute,
	})
	check(t, err)
	is("not delivered", true)
	m, err := c.Next()
	check(t, err)
	is("under a lease", true)
	check(t, m.DoubleAck(t.Context()))
	is("done", false)
	if _, err := Waiting(t.Context(), r.js, Runs{"RUNS-7", 7}, laneA, 1); !Gone(err) {
		t.Error(fmt.Errorf("of a stream that is not there: %w", err))
	}
}
