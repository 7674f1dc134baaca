package executor_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/executor"
	"github.com/waterclock-io/waterclock/job"
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
		"ok":    func(context.Context, *executor.Run) error { return nil },
	}, func(c *executor.Config) { c.Lease.AckWait = time.Minute }) // so that it is not the lease that stops it
	m := p.message("stops")
	run := p.publish(m)
	wait(t, "the handler", begun)
	p.started(run)
	cut := time.Now()
	if err := p.js.DeleteStream(t.Context(), p.runs.Name); err != nil {
		t.Fatal(err)
	}
	old := p.runs
	var err error
	if p.runs, err = streams.Ensure(t.Context(), p.js, p.reg, streams.Limits{}, slog.New(slog.DiscardHandler)); err != nil || p.runs == old {
		t.Fatalf("%v, %v", p.runs, err)
	}
	if cause := wait(t, "the end of the context", why); !errors.Is(cause, executor.ErrLeaseLost) {
		t.Errorf("cause %v, want that the lease is lost", cause)
	}
	if took := time.Since(cut); took > 20*time.Second {
		t.Errorf("stopped after %s", took)
	}
	if s := p.ended(p.publish(p.message("ok"))); s.Kind != wirev1.StatusKind_STATUS_KIND_SUCCEEDED {
		t.Errorf("a run of the new stream: %s", s.Kind)
	}
	if d := cmp.Diff([]wirev1.StatusKind{wirev1.StatusKind_STATUS_KIND_STARTED}, p.words(run)); d != "" {
		t.Errorf("STATUS (-want +got):\n%s", d)
	}
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
	if err := p.nc.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(before, os.DirFS(folder)); err != nil { // as a kill leaves it
		t.Fatal(err)
	}
	first := p.employVia(addr, handlers, func(c *executor.Config) { c.Slots = 1 })
	wait(t, "the handler", began)
	p.srv.Stop()
	var err error
	p.srv, err = streams.StartEmbedded(streams.EmbeddedOptions{Dir: before, Listen: addr, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect("nats://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	p.nc = nc
	if p.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	p.record()
	if !p.there(m) {
		t.Fatal("the message is not there again: nothing was tried")
	}
	p.employVia(addr, handlers, func(c *executor.Config) { c.Slots = 1 })
	// Whoever gets the message does not work on it: the first has said that it does, or it is given back and the first stops.
	s := p.find("who claims the run", func(s said) bool { return s.run == run && s.Kind == wirev1.StatusKind_STATUS_KIND_STARTED })
	p.until("both executors have looked at the message", func() bool {
		c, err := p.js.Consumer(t.Context(), p.runs.Name, p.consumer(m))
		return err == nil && c.CachedInfo().Delivered.Stream > 0
	})
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
	var begun atomic.Int32
	began, release := make(chan struct{}, 10), make(chan struct{})
	handlers := map[string]executor.Handler{"work": func(ctx context.Context, _ *executor.Run) error {
		begun.Add(1)
		began <- struct{}{}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}
	// Both have a slot free, so both wait at the consumer; and the messages are younger than their connections.
	for range 2 {
		p.employ(handlers)
	}
	m := p.message("work")
	run := p.publish(m)
	wait(t, "the handler", began)
	name := p.consumer(m)
	if err := p.js.DeleteConsumer(t.Context(), p.runs.Name, name); err != nil {
		t.Fatal(err)
	}
	p.until("another consumer has delivered the run", func() bool {
		now := p.consumer(m)
		if now == "" || now == name {
			return false
		}
		c, err := p.js.Consumer(t.Context(), p.runs.Name, now)
		return err == nil && c.CachedInfo().Delivered.Stream > 0
	})
	p.find("who claims the run", func(s said) bool { return s.run == run && s.Kind == wirev1.StatusKind_STATUS_KIND_STARTED })
	close(release)
	p.ended(run)
	if n := begun.Load(); n != 1 {
		t.Errorf("one hand-over was begun %d times", n)
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
	first := wait(t, "the first hand-over", keys)
	p.gone(m)
	m.Dispatch, m.Attempt = 2, 2
	p.publish(m)
	if second := wait(t, "the second hand-over", keys); second != first || first[0] == "" {
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
	c, err := p.js.CreateOrUpdateConsumer(t.Context(), p.runs.Name, jetstream.ConsumerConfig{
		Durable: p.consumer(m), FilterSubject: "run." + job.SharedNamespace + "." + m.Queue + "." + m.Priority + ".>", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: 200 * time.Millisecond, MaxAckPending: -1, MaxDeliver: -1, MaxWaiting: 4096, InactiveThreshold: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Next(); err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(&wirev1.StatusBatch{Executor: "dead", Statuses: []*wirev1.Status{{Ticket: m.Ticket, Kind: wirev1.StatusKind_STATUS_KIND_SUCCEEDED}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.js.Publish(t.Context(), streams.StatusSubject("dead"), b); err != nil {
		t.Fatal(err)
	}
	p.employ(map[string]executor.Handler{"never": func(context.Context, *executor.Run) error {
		t.Error("it was executed")
		return nil
	}})
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
	dead, err := p.nc.SubscribeSync("dead.>")
	if err != nil {
		t.Fatal(err)
	}
	p.employ(map[string]executor.Handler{"ok": func(context.Context, *executor.Run) error { return nil }})
	target := p.message("ok") // never published itself
	b, err := proto.Marshal(&wirev1.StatusBatch{Executor: "mallory"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.nc.PublishRequest(streams.StatusSubject("mallory"), subject(target), b); err != nil {
		t.Fatal(err)
	}
	got, err := dead.NextMsg(patience)
	if err != nil {
		t.Fatal(err)
	}
	if got.Header.Get("Waterclock-Subject") != subject(target) || !strings.Contains(got.Header.Get("Waterclock-Reason"), "cannot be read") {
		t.Errorf("dead letter %q with %v", got.Data, got.Header)
	}
	p.gone(target)
	if s := p.ended(p.publish(p.message("ok"))); s.Kind != wirev1.StatusKind_STATUS_KIND_SUCCEEDED {
		t.Errorf("the run behind it: %s", s.Kind)
	}
	if words := p.words(uuid.UUID(target.RunId)); len(words) != 0 {
		t.Errorf("of what was never handed out is said %v", words)
	}
}

// The fault: a planner of the next version hands out messages with fields that this one does not know. They are passed over.
func TestMessageOfALaterVersion(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.employ(map[string]executor.Handler{"ok": func(context.Context, *executor.Run) error { return nil }})
	m := p.message("ok")
	m.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 9999, protowire.BytesType), "of the future"))
	if s := p.ended(p.publish(m)); s.Kind != wirev1.StatusKind_STATUS_KIND_SUCCEEDED {
		t.Errorf("%s %s", s.Kind, s.Message)
	}
}
