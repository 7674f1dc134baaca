package executor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/streams"
)

// trips measures round trips on the connection. What arrives after the answer of a trip was sent by the server after the trip began: so the start of the last
// trip that was completed before a delivery arrived is the earliest moment at which its lease can have begun, whatever this process slept or the link held
// back. A delivery is looked at some time after it arrived, and a trip may have been completed in between; so the one before the last is what counts.
type trips struct {
	before atomicTime // start of the completed trip before the last
	last   time.Time  // start of the last completed trip; of the goroutine that makes trips

	mu        sync.Mutex
	offset    time.Duration // server clock minus this machine's
	connected time.Time     // server clock, when this connection began
	since     time.Time     // this machine's clock, when this connection began
	stale     bool          // connected is of the connection before
	server    uint64        // the NATS server process that is spoken to
}

const (
	tripTimeout = 3 * time.Second
	offsetEvery = 10 * time.Second
	// settle is how long after connecting nobody starts a message older than the connection: whoever worked on it before claims it in that time.
	settle = 2 * time.Second
)

// tripEvery is short against the lease, of which two trips are lost.
func tripEvery(ackWait time.Duration) time.Duration {
	return min(max(ackWait/20, 50*time.Millisecond), time.Second)
}

func (t *trips) begin(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, runs streams.Runs) error {
	if err := t.trip(nc); err != nil {
		return err
	}
	t.server = streams.ServerMark(nc)
	return t.readOffset(ctx, js, runs)
}

func (t *trips) trip(nc *nats.Conn) error {
	start := time.Now()
	if err := nc.FlushTimeout(tripTimeout); err != nil {
		return fmt.Errorf("no answer from NATS: %w", err)
	}
	if t.last.IsZero() {
		t.last = start
	}
	t.before.store(t.last)
	t.last = start
	return nil
}

func (t *trips) readOffset(ctx context.Context, js jetstream.JetStream, runs streams.Runs) error {
	ctx, cancel := context.WithTimeout(ctx, tripTimeout)
	defer cancel()
	start := time.Now()
	state, err := streams.PollRuns(ctx, js, runs)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.offset = state.ServerTime.Sub(start.Add(time.Since(start) / 2))
	if t.connected.IsZero() || t.stale {
		t.connected, t.since, t.stale = state.ServerTime, start, false
	}
	return nil
}

// reconnected makes every message that is stored by now an older one.
func (t *trips) reconnected(nc *nats.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stale, t.since, t.server = true, time.Now(), streams.ServerMark(nc)
}

func (t *trips) run(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, runs func() streams.Runs, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	read := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		t.mu.Lock()
		stale := t.stale
		t.mu.Unlock()
		if t.trip(nc) == nil && (stale || time.Since(read) >= offsetEvery) {
			read = time.Now()
			_ = t.readOffset(ctx, js, runs()) // tried again with the next trip
		}
	}
}

// older tells whether the server may have forgotten that it delivered a message before: it was stored before its consumer was made, or before this connection
// began and not through the server process that is spoken to now. If so, it tells how long to wait before it may be claimed.
func (t *trips) older(stored time.Time, server uint64, consumer time.Time) (wait time.Duration, older bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if stored.Before(consumer) {
		made := consumer.Add(-t.offset) // by this machine's clock
		return min(max(time.Until(made.Add(settle)), 0), settle), true
	}
	if (!t.stale && stored.After(t.connected)) || (server != 0 && server == t.server) {
		return 0, false
	}
	return max(time.Until(t.since.Add(settle)), 0), true
}

// serverTime returns the clock of the NATS server.
func (t *trips) serverTime(at time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return at.Add(t.offset)
}
