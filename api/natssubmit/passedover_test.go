package natssubmit_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/internal/natstest"
	"github.com/waterclock-io/waterclock/streams"
)

// A server that is killed may have noted an acknowledgement and not the removal of the message. Here that is its folder with the messages of before.
func TestMessagesThatWerePassedOver(t *testing.T) {
	t.Parallel()
	o := streams.EmbeddedOptions{Dir: t.TempDir()}
	messages, before := filepath.Join(o.Dir, "jetstream", "$G", "streams", "SUBMIT", "msgs"), filepath.Join(t.TempDir(), "msgs")

	first := natstest.Start(t, o)
	js := natstest.JetStream(t, natstest.Connect(t, streams.Dial{Embedded: first}))
	createStream(t, js)
	_, err := js.Publish(t.Context(), "enqueue.acme", body(t, "exec", ""))
	check.OK(t, err)
	first.Stop()
	check.OK(t, os.CopyFS(before, os.DirFS(messages)))

	second := natstest.Start(t, o)
	js = natstest.JetStream(t, natstest.Connect(t, streams.Dial{Embedded: second}))
	c, err := js.CreateConsumer(t.Context(), "SUBMIT", jetstream.ConsumerConfig{Durable: "submit", AckPolicy: jetstream.AckExplicitPolicy})
	check.OK(t, err)
	m, err := c.Next()
	check.OK(t, err)
	check.OK(t, m.DoubleAck(t.Context()))
	second.Stop()
	check.OK(t, os.RemoveAll(messages))
	check.OK(t, os.CopyFS(messages, os.DirFS(before)))

	w := newWorldOn(t, natstest.Start(t, o), 0)
	w.jobs(1)
	w.drained()
}
