package streams

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/internal/check"
)

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
	r.parked(runs)
	r.subscribe(nc, p.prefix+"t", func(*nats.Msg) { markers <- struct{}{} })
	before := time.Now()
	r.publish(laneA)
	<-held
	check.Receive(t, "the first run", p.work)
	r.publish(laneA)
	check.Await(t, "the second run is on its way", func() bool {
		info, err := findConsumer(t.Context(), r.js, runs.Name, laneA)
		return err == nil && info.NumPending == 0 && info.NumAckPending == 2
	})
	check.OK(t, nc.Flush()) // what was sent has arrived
	arrived := time.Now()
	for len(markers) > 0 {
		<-markers
	}
	check.Await(t, "time passes", func() bool { return time.Since(arrived) > 300*time.Millisecond })
	goOn()
	d := check.Receive(t, "the second run", p.work)
	if !d.Leased.Before(arrived) || d.Leased.Before(before.Add(-2*time.Second)) {
		t.Errorf("its lease began %s after it had arrived", d.Leased.Sub(arrived))
	}
	check.Receive(t, "a marker", markers) // they go on
	id := r.publish(laneA)
	if d = check.Receive(t, "the third run", p.work); idOf(t, d) != id || time.Since(d.Leased) > 10*time.Second {
		t.Errorf("%s, its lease began at %s", idOf(t, d), d.Leased)
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
