// Package natstest gives tests a NATS server of their own with JetStream, connections to it as the roles make them, and a link in between that can be cut and
// held up. Tests of the roles call it; programs do not, and the tests of package streams cannot, being below it.
//
// What it starts ends with the test, in the reverse order.
package natstest

import (
	"io"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/chaos/proxy"
	"github.com/waterclock-io/waterclock/internal/check"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/streams"
)

// quiet returns a log that nobody reads. Its lines are made all the same, so that a value that cannot be logged is found.
func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// Start starts a server. What the options leave out: a folder of the test, a free port of 127.0.0.1, a log that nobody reads. A test that stops it may start
// another in its folder, at its address.
func Start(tb testing.TB, o streams.EmbeddedOptions) *streams.Embedded {
	tb.Helper()
	if o.Dir == "" {
		o.Dir = tb.TempDir()
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Logger == nil {
		o.Logger = quiet()
	}
	e, err := streams.StartEmbedded(o)
	check.OK(tb, err)
	tb.Cleanup(e.Stop) // again, where the test has done so
	return e
}

// Connect connects to a server in this process, or by a URL. What is left out: the name "test", a log that nobody reads.
func Connect(tb testing.TB, d streams.Dial) *nats.Conn {
	tb.Helper()
	if d.Name == "" {
		d.Name = "test"
	}
	if d.Logger == nil {
		d.Logger = quiet()
	}
	nc, err := streams.Connect(d)
	check.OK(tb, err)
	tb.Cleanup(nc.Close)
	return nc
}

// JetStream is the JetStream of a connection.
func JetStream(tb testing.TB, nc *nats.Conn) jetstream.JetStream {
	tb.Helper()
	js, err := jetstream.New(nc)
	check.OK(tb, err)
	return js
}

// Link puts a link before a server at host:port. It is good until the test makes it otherwise.
func Link(tb testing.TB, to string) *proxy.Proxy {
	tb.Helper()
	l, err := proxy.Listen(to)
	check.OK(tb, err)
	tb.Cleanup(func() { check.OK(tb, l.Close()) })
	return l
}

// Orders are what an executor of this id is told to stop, from now on.
func Orders(tb testing.TB, nc *nats.Conn, executor string) <-chan *wirev1.Control {
	tb.Helper()
	orders := make(chan *wirev1.Control, 100)
	subs, err := streams.OnControl(nc, executor, func(c *wirev1.Control) { orders <- c })
	check.OK(tb, err)
	tb.Cleanup(func() {
		for _, s := range subs {
			_ = s.Unsubscribe() // the connection may be closed
		}
	})
	check.OK(tb, nc.Flush())
	return orders
}
