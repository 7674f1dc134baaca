package streams

import (
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/job"
)

func TestConsumerThatIsDeletedIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	p := r.puller(r.nc, runs, nil)
	r.parked(runs)
	for _, prio := range []job.Priority{job.Normal, job.Critical} {
		check.OK(t, r.js.DeleteConsumer(t.Context(), runs.Name, r.consumer(runs, laneAt(prio)).Name))
	}
	for _, prio := range []job.Priority{job.Normal, job.Critical, job.Low} {
		id := r.publish(laneAt(prio))
		if got := idOf(t, p.take(t)); got != id {
			t.Errorf("%s: got %s, want %s", prio, got, id)
		}
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
	before := r.consumer(runs, laneA)
	id := r.publish(laneA)
	m := either("the run")
	meta, err := m.Metadata()
	check.OK(t, err)
	if !m.Since.Equal(before.Created) || meta.Timestamp.Before(m.Since) {
		t.Errorf("stored at %s, delivered by a consumer of %s, which was made at %s", meta.Timestamp, m.Since, before.Created)
	}
	check.OK(t, r.js.DeleteConsumer(t.Context(), runs.Name, before.Name))
	m = either("the run again")
	meta, err = m.Metadata()
	check.OK(t, err)
	if idOf(t, m) != id || meta.NumDelivered != 1 || !m.Since.After(meta.Timestamp) {
		t.Errorf("delivery %d of what was stored at %s, by a consumer of %s", meta.NumDelivered, meta.Timestamp, m.Since)
	}
	check.OK(t, m.Ack())
	s, err := r.js.Stream(t.Context(), runs.Name)
	check.OK(t, err)
	if n := s.CachedInfo().State.Consumers; n != len(job.Priorities) {
		t.Errorf("%d consumers of %d lanes", n, len(job.Priorities))
	}
}

func TestStreamThatIsDeletedIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	p := r.puller(r.nc, runs, nil)
	r.parked(runs)
	check.OK(t, r.js.DeleteStream(t.Context(), runs.Name))
	check.Receive(t, "word that the stream is gone", p.gone)
	// Where it is made again under its name, work goes on.
	if _, err := updateRuns(t.Context(), r.js, runs.Generation, Limits{}.withDefaults(), r.reg.cluster.StoreID); err != nil {
		t.Fatal(err)
	}
	r.publish(laneA)
	check.Receive(t, "a run of the new stream", p.work)
}

// A server that is restarted knows no pull any more; nobody waits for the end of the old ones.
func TestResetAfterAReconnect(t *testing.T) {
	t.Parallel()
	r := newRigByURL(t)
	addr := r.srv.Addr()
	var mu sync.Mutex
	var p *delivered
	back := make(chan struct{}, 10)
	r.nc.SetReconnectHandler(func(*nats.Conn) {
		mu.Lock()
		defer mu.Unlock()
		p.Reset()
		back <- struct{}{}
	})
	runs := r.ensure()
	mu.Lock()
	p = r.puller(r.nc, runs, nil)
	mu.Unlock()
	r.parked(runs)
	r.srv.Stop()
	r.serve(addr)
	check.Receive(t, "the reconnect", back)
	began := time.Now()
	id := r.publish(laneA)
	if got := idOf(t, check.Receive(t, "the run", p.work)); got != id {
		t.Errorf("got %s, want %s", got, id)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("it took %s: the pulls of before were waited for", d)
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
