package executor_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/executor"
	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/internal/natstest"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/streams"
)

// The fault: RUNS is lost and made anew while an executor works on what the old one handed out. It stops and says nothing, though its lease was confirmed a moment
// ago, and works on what the new one hands out.
func TestNewGenerationFences(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	begun, why := make(chan *executor.Run, 1), make(chan error, 1)
	p.employ(map[string]executor.Handler{
		"stops": untilStopped(begun, why),
		"ok":    succeed,
	}, func(c *executor.Config) { c.Lease.AckWait = time.Minute }) // so that it is not the lease that stops it
	m := p.message("stops")
	run := p.publish(m)
	check.Receive(t, "the handler", begun)
	p.started(run)
	cut := time.Now()
	check.OK(t, p.js.DeleteStream(t.Context(), p.runs.Name))
	old := p.runs
	if p.ensure(); p.runs == old {
		t.Fatalf("%v was not made anew", old)
	}
	if cause := check.Receive(t, "the end of the context", why); !errors.Is(cause, executor.ErrLeaseLost) {
		t.Errorf("cause %v, want that the lease is lost", cause)
	}
	if took := time.Since(cut); took > 20*time.Second {
		t.Errorf("stopped after %s", took)
	}
	p.ends("a run of the new stream", p.publish(p.message("ok")), wirev1.StatusKind_STATUS_KIND_SUCCEEDED)
	p.wordsAre(run, wirev1.StatusKind_STATUS_KIND_STARTED)
}

// The fault: the server is killed in the moment after a delivery, and has forgotten it when it is back: it delivers the message to another executor as if for the
// first time, while the first works on. Here the server comes back with its data of the moment before. The run is executed once.
func TestServerForgetsADelivery(t *testing.T) {
	t.Parallel()
	folder, before := t.TempDir(), t.TempDir()
	p := newPlantIn(t, folder)
	addr := p.srv.Addr()
	var working, most, begun atomic.Int32
	release := make(chan struct{})
	began := make(chan struct{}, 10)
	handlers := map[string]executor.Handler{"work": func(ctx context.Context, _ *executor.Run) error {
		begun.Add(1)
		most.Store(max(most.Load(), working.Add(1)))
		defer working.Add(-1)
		began <- struct{}{}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}
	m := p.message("work")
	run := p.publish(m)
	check.OK(t, p.nc.FlushTimeout(check.Patience))
	if err := os.CopyFS(before, os.DirFS(folder)); err != nil { // as a kill leaves it
		t.Fatal(err)
	}
	first := p.employVia(addr, handlers, func(c *executor.Config) { c.Slots = 1 })
	check.Receive(t, "the handler", began)
	p.srv.Stop()
	p.srv = natstest.Start(t, streams.EmbeddedOptions{Dir: before, Listen: addr})
	p.nc = natstest.Connect(t, streams.Dial{URL: "nats://" + addr})
	p.js = natstest.JetStream(t, p.nc)
	p.record()
	if !p.there(m) {
		t.Fatal("the message is not there again: nothing was tried")
	}
	p.employVia(addr, handlers, func(c *executor.Config) { c.Slots = 1 })
	// Whoever gets the message does not work on it: the first has said that it does, or it is given back and the first stops.
	s := p.started(run)
	check.Await(t, "both executors have looked at the message", func() bool { return p.delivered(p.consumer(m)) })
	close(release)
	end := p.ended(run)
	if end.Kind == wirev1.StatusKind_STATUS_KIND_SUCCEEDED && (s.executor != first.ID() || end.executor != first.ID()) {
		t.Errorf("claimed by %s, ended by %s, begun by %s", s.executor, end.executor, first.ID())
	}
	if begun.Load() != 1 || most.Load() != 1 {
		t.Errorf("begun %d times, %d at once; it ended with %s %s", begun.Load(), most.Load(), end.Kind, end.Reason)
	}
}

// The fault: the consumer is deleted while a run of its is worked on. The one that is made then delivers the run again as if for the first time, and yet nobody
// begins it a second time: whoever gets it claims it, and gives it back for another hand-over.
func TestConsumerDeletedUnderARun(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	began, release := make(chan *executor.Run, 10), make(chan struct{})
	handlers := map[string]executor.Handler{"work": untilReleased(began, release)}
	// Both have a slot free, so both wait at the consumer; and the messages are younger than their connections.
	for range 2 {
		p.employ(handlers)
	}
	m := p.message("work")
	run := p.publish(m)
	check.Receive(t, "the handler", began)
	name := p.consumer(m)
	check.OK(t, p.js.DeleteConsumer(t.Context(), p.runs.Name, name))
	check.Await(t, "another consumer has delivered the run", func() bool {
		now := p.consumer(m)
		return now != "" && now != name && p.delivered(now)
	})
	p.started(run)
	close(release)
	p.ended(run)
	if more := len(began); more != 0 {
		t.Errorf("one hand-over was begun %d times", 1+more)
	}
}

// The fault: an executor dies when the work is done and nothing is said of it yet. Its successor works on the next hand-over of the run, with the same key for who
// must not do a thing twice.
func TestIdempotencyKeyOfTheNextHandOver(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	keys := make(chan [2]string, 2)
	p.employ(map[string]executor.Handler{"work": func(_ context.Context, run *executor.Run) error {
		keys <- [2]string{run.IdempotencyKey(), run.ID.String()}
		return nil
	}})
	m := p.message("work")
	p.publish(m)
	first := check.Receive(t, "the first hand-over", keys)
	p.gone(m)
	m.Dispatch, m.Attempt = 2, 2
	p.publish(m)
	if second := check.Receive(t, "the second hand-over", keys); second != first || first[0] == "" {
		t.Errorf("keys %v and %v", first, second)
	}
}

// The fault: an executor dies after it has reported and before it has acknowledged. Whoever gets the message when its lease is over says lost, of the same
// hand-over, which SQL refuses; nothing is executed, and nothing is left in the stream.
func TestReportedAndNotAcknowledged(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	m := p.message("never")
	run := p.publish(m)
	p.take(m, 200*time.Millisecond)
	b, err := proto.Marshal(&wirev1.StatusBatch{Executor: "dead", Statuses: []*wirev1.Status{{Ticket: m.Ticket, Kind: wirev1.StatusKind_STATUS_KIND_SUCCEEDED}}})
	check.OK(t, err)
	if _, err := p.js.Publish(t.Context(), streams.StatusSubject("dead"), b); err != nil {
		t.Fatal(err)
	}
	p.employ(map[string]executor.Handler{"never": neverRun(t)})
	s := p.find("the answer to the redelivery", func(s said) bool { return s.run == run && s.executor != "dead" })
	if s.Kind != wirev1.StatusKind_STATUS_KIND_LOST || s.dispatch != m.Dispatch {
		t.Errorf("%s of dispatch %d, want lost of %d", s.Kind, s.dispatch, m.Dispatch)
	}
	p.gone(m)
}

// The fault: somebody who may report has JetStream answer to a subject of RUNS, so that its answer becomes a message there. It is no run: it is buried, and those
// behind it are executed.
func TestAnswerOfJetStreamAsARun(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	dead := p.buried()
	p.employ(map[string]executor.Handler{"ok": succeed})
	target := p.message("ok") // never published itself
	b, err := proto.Marshal(&wirev1.StatusBatch{Executor: "mallory"})
	check.OK(t, err)
	check.OK(t, p.nc.PublishRequest(streams.StatusSubject("mallory"), subject(target), b))
	got := dead()
	if got.Header.Get("Waterclock-Subject") != subject(target) || !strings.Contains(got.Header.Get("Waterclock-Reason"), "cannot be read") {
		t.Errorf("dead letter %q with %v", got.Data, got.Header)
	}
	p.gone(target)
	p.ends("the run behind it", p.publish(p.message("ok")), wirev1.StatusKind_STATUS_KIND_SUCCEEDED)
	if words := p.words(uuid.UUID(target.RunId)); len(words) != 0 {
		t.Errorf("of what was never handed out is said %v", words)
	}
}

// The fault: a planner of the next version hands out messages with fields that this one does not know. They are passed over.
func TestMessageOfALaterVersion(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.employ(map[string]executor.Handler{"ok": succeed})
	m := p.message("ok")
	m.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 9999, protowire.BytesType), "of the future"))
	p.ends("its end", p.publish(m), wirev1.StatusKind_STATUS_KIND_SUCCEEDED)
}
