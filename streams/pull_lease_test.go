package streams

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/internal/check"
)

// However long a delivery lies in this process, its lease counts from the pull that it answers.
func TestLeaseOfADeliveryThatLayAround(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	held, going := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(going) })
	var once sync.Once
	p := r.puller(r.connect(), runs, func(c *PullConfig) {
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
	r.parked(runs)
	before := time.Now()
	r.publish(laneA)
	<-held
	if d := check.Receive(t, "the first run", p.work); d.Leased.After(before) {
		t.Errorf("its pull was parked, and its lease began %s later", d.Leased.Sub(before))
	}
	r.publish(laneA)
	check.Await(t, "the second run is on its way", func() bool {
		info, err := findConsumer(t.Context(), r.js, runs.Name, laneA)
		return err == nil && info.NumPending == 0 && info.NumAckPending == 2
	})
	delivered := time.Now()
	check.Await(t, "time passes", func() bool { return time.Since(delivered) > 300*time.Millisecond })
	goOn()
	if d := check.Receive(t, "the second run", p.work); d.Leased.After(delivered) || d.Leased.Before(before.Add(-time.Second)) {
		t.Errorf("its lease began %s after it was delivered", d.Leased.Sub(delivered))
	}
	asked := time.Now()
	check.Await(t, "pulls that are younger", func() bool { return time.Since(asked) > 2*PullFor(time.Second) })
	id := r.publish(laneA)
	if d := check.Receive(t, "the third run", p.work); idOf(t, d) != id || d.Leased.Before(asked) {
		t.Errorf("%s, its lease began at %s", idOf(t, d), d.Leased)
	}
}

// A delivery that is held up between the server that leads its consumer and the one that the executor speaks to is overtaken by all that the executor hears of its own.
func TestLeaseOfADeliveryHeldUpBetweenServers(t *testing.T) {
	t.Parallel()
	r := newCluster(t)
	runs := r.ensure()
	check.OK(t, EnsureConsumer(t.Context(), r.js, runs, laneA, time.Second))
	s, err := r.js.Stream(t.Context(), runs.Name)
	check.OK(t, err)
	leader, stream := r.consumer(runs, laneA).Cluster.Leader, s.CachedInfo().Cluster.Leader
	near, third := "", ""
	for name := range r.nodes {
		switch {
		case name == leader:
		case near == "" && name != stream:
			near = name
		default:
			third = name
		}
	}
	nc := r.dial(Dial{URL: r.nodes[near].ClientURL()})
	p := r.puller(nc, runs, func(c *PullConfig) { c.AckWait = 2 * time.Second })
	r.nc = r.dial(Dial{URL: r.nodes[third].ClientURL()})
	r.js = jsOf(t, r.nc)
	r.parked(runs)
	r.link(leader, near).Freeze()
	id := r.publish(laneA)
	check.Await(t, "the run is on its way", func() bool { return r.consumer(runs, laneA).NumAckPending == 1 })
	delivered := time.Now()
	check.Await(t, "the executor and its server speak to each other", func() bool { return nc.Flush() == nil && time.Since(delivered) > time.Second })
	r.link(leader, near).Heal()
	if d := check.Receive(t, "the run", p.work); idOf(t, d) != id || d.Leased.After(delivered) {
		t.Errorf("%s, its lease began %s after it was delivered", idOf(t, d), d.Leased.Sub(delivered))
	}
}

// What comes by a pull that was given up, because its consumer was said to have a new leader, is as old as that pull; and nothing is kept of such pulls for ever.
func TestLeaseOfAPullThatWasGivenUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	nc := r.connect()
	p := r.puller(nc, runs, func(c *PullConfig) { c.Slots, c.AckWait, c.parkFor = 8, time.Second, time.Hour })
	r.parked(runs)
	subscriptions, name := nc.NumSubscriptions(), r.consumer(runs, laneA).Name
	elected := time.Now()
	check.OK(t, r.nc.Publish(electionsOf(runs.Name)+name, nil))
	check.Await(t, "another pull", func() bool { return r.consumer(runs, laneA).NumWaiting == 2 })
	for _, given := range []bool{true, false} { // the server serves them in turn
		r.publish(laneA)
		if d := p.take(t); d.Leased.Before(elected) != given {
			t.Errorf("pull given up: %v, its lease began %s after that", given, d.Leased.Sub(elected))
		}
	}
	check.Await(t, "the end of what was subscribed to", func() bool { return nc.NumSubscriptions() == subscriptions })
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
	check.OK(t, err)
	is("not delivered", true)
	m, err := c.Next()
	check.OK(t, err)
	is("under a lease", true)
	check.OK(t, m.DoubleAck(t.Context()))
	is("done", false)
	if _, err := Waiting(t.Context(), r.js, Runs{"RUNS-7", 7}, laneA, 1); !Gone(err) {
		t.Error(fmt.Errorf("of a stream that is not there: %w", err))
	}
}
