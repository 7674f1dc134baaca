package executor

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/streams"
)

// serverClock is the clock of the NATS server, and since when this process has been connected to it.
type serverClock struct {
	mu        sync.Mutex
	offset    time.Duration // server clock minus this machine's
	connected time.Time     // server clock, when this connection began
	since     time.Time     // this machine's clock, when this connection began
	stale     bool          // connected is of the connection before
	server    uint64        // the NATS server process that is spoken to
	lost      chan struct{} // says that connected is stale
}

const (
	clockTimeout = 3 * time.Second
	offsetEvery  = 10 * time.Second
	staleEvery   = 200 * time.Millisecond
	// settle is how long after connecting nobody starts a message older than the connection: whoever worked on it before claims it in that time.
	settle = 2 * time.Second
)

func (c *serverClock) begin(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, runs streams.Runs) error {
	c.server = streams.ServerMark(nc)
	return c.readOffset(ctx, js, runs)
}

func (c *serverClock) readOffset(ctx context.Context, js jetstream.JetStream, runs streams.Runs) error {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	start := time.Now()
	state, err := streams.PollRuns(ctx, js, runs)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset = state.ServerTime.Sub(start.Add(time.Since(start) / 2))
	if c.connected.IsZero() || c.stale {
		c.connected, c.since, c.stale = state.ServerTime, start, false
	}
	return nil
}

// reconnected makes every message that is stored by now an older one.
func (c *serverClock) reconnected(nc *nats.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale, c.since, c.server = true, time.Now(), streams.ServerMark(nc)
	select {
	case c.lost <- struct{}{}:
	default: // told already
	}
}

// run reads the clock every so often, and after a reconnect until it is read.
func (c *serverClock) run(ctx context.Context, js jetstream.JetStream, runs func() streams.Runs) {
	next := time.NewTimer(offsetEvery)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		case <-c.lost:
		}
		if c.readOffset(ctx, js, runs()) == nil {
			next.Reset(offsetEvery)
		} else {
			next.Reset(staleEvery)
		}
	}
}

// older tells whether the server may have forgotten that it delivered a message before: it was stored before its consumer was made, or before this connection
// began and not through the server process that is spoken to now. If so, it tells how long to wait before it may be claimed.
func (c *serverClock) older(stored time.Time, server uint64, consumer time.Time) (wait time.Duration, older bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if stored.Before(consumer) {
		made := consumer.Add(-c.offset) // by this machine's clock
		return min(max(time.Until(made.Add(settle)), 0), settle), true
	}
	if (!c.stale && stored.After(c.connected)) || (server != 0 && server == c.server) {
		return 0, false
	}
	return max(time.Until(c.since.Add(settle)), 0), true
}

// serverTime returns the clock of the NATS server.
func (c *serverClock) serverTime(at time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return at.Add(c.offset)
}
