package streams

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/job"
)

// A server that is killed may have noted an acknowledgement and not the removal of the message. Here that is its folder with the messages of before.
func TestMessagesThatWerePassedOver(t *testing.T) {
	t.Parallel()
	r := newRigByURL(t)
	runs := r.ensure()
	l := Lane{Namespace: job.SharedNamespace, Queue: "default", Priority: job.Normal}
	check.OK(t, EnsureConsumer(t.Context(), r.js, runs, l, time.Minute))
	for range 3 {
		r.publish(l)
	}
	if n, err := SweepRuns(t.Context(), r.js, runs); err != nil || n != 0 {
		t.Errorf("what waits: %d swept, %v", n, err)
	}
	messages, before := filepath.Join(r.dir, "jetstream", "$G", "streams", runs.Name, "msgs"), filepath.Join(t.TempDir(), "msgs")
	again := func(meanwhile func()) {
		t.Helper()
		addr := r.srv.Addr()
		r.srv.Stop()
		meanwhile()
		r.serve(addr)
		check.Await(t, "an answer over the old connection", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, err := r.js.AccountInfo(ctx)
			return err == nil
		})
	}
	again(func() { check.OK(t, os.CopyFS(before, os.DirFS(messages))) })

	for range 2 {
		check.OK(t, r.next(runs, l).DoubleAck(t.Context()))
	}
	again(func() {
		check.OK(t, os.RemoveAll(messages))
		check.OK(t, os.CopyFS(messages, os.DirFS(before)))
	})
	if n := r.count(runs.Name); n != 3 {
		t.Fatalf("the stream has %d messages, want the two that were acknowledged too", n)
	}
	if n, err := SweepRuns(t.Context(), r.js, runs); err != nil || n != 2 {
		t.Errorf("%d swept, %v, want 2", n, err)
	}
	if n := r.count(runs.Name); n != 1 {
		t.Errorf("%d messages are left, want 1", n)
	}
	check.OK(t, r.next(runs, l).DoubleAck(t.Context()))
}

// next takes a message from a lane.
func (r *rig) next(runs Runs, l Lane) jetstream.Msg {
	r.t.Helper()
	info, err := findConsumer(r.t.Context(), r.js, runs.Name, l)
	check.OK(r.t, err)
	c, err := r.js.Consumer(r.t.Context(), runs.Name, info.Name)
	check.OK(r.t, err)
	m, err := c.Next(jetstream.FetchMaxWait(10 * time.Second))
	check.OK(r.t, err)
	return m
}
