package natssubmit_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/api"
	"github.com/waterclock-io/waterclock/api/convert"
	"github.com/waterclock-io/waterclock/api/natssubmit"
	"github.com/waterclock-io/waterclock/api/submit"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/store/sqlite"
)

type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

type deaf struct{}

func (deaf) Wake([]store.DueRow) {}

// flaky fails the first calls as a store that is away, and tells of each.
type flaky struct {
	*sqlite.Store
	mu     sync.Mutex
	left   int
	failed chan struct{}
}

func (f *flaky) Submit(ctx context.Context, subs []store.Submission) ([]store.SubmitResult, error) {
	f.mu.Lock()
	fail := f.left > 0
	f.left--
	f.mu.Unlock()
	if fail {
		f.failed <- struct{}{}
		return nil, fmt.Errorf("in a test: %w", store.ErrUnavailable)
	}
	return f.Store.Submit(ctx, subs)
}

type world struct {
	t     *testing.T
	store *flaky
	nc    *nats.Conn
	js    jetstream.JetStream
	srv   *natssubmit.Server
	dead  jetstream.Consumer
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newWorld(t *testing.T, failures int) *world {
	t.Helper()
	w := &world{t: t}
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "w.db"), sqlite.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	w.store = &flaky{Store: s, left: failures, failed: make(chan struct{}, 100)}

	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true})
	must(t, err)
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server does not start")
	}
	w.nc, err = nats.Connect(ns.ClientURL())
	must(t, err)
	t.Cleanup(w.nc.Close)
	w.js, err = jetstream.New(w.nc)
	must(t, err)
	_, err = w.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "SUBMIT", Subjects: []string{"enqueue.*"}, Retention: jetstream.WorkQueuePolicy})
	must(t, err)
	dead, err := w.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>"}})
	must(t, err)
	w.dead, err = dead.CreateConsumer(t.Context(), jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	must(t, err)

	v, err := convert.NewValidator()
	must(t, err)
	service := submit.New(submit.Config{Store: w.store, Clock: realClock{}, Waker: deaf{}, Validator: v})
	t.Cleanup(service.Stop)
	w.srv = natssubmit.New(natssubmit.Config{
		Conn: w.nc, JS: w.js, Submit: service, Errors: api.NewErrors(), RequestSubjects: "submit.*", Stream: "SUBMIT",
		DeadSubject: func(namespace string) string { return strings.TrimSuffix("dead.submit."+namespace, ".") }, Log: slog.New(slog.DiscardHandler),
	})
	must(t, w.srv.Start())
	must(t, w.srv.Start())
	t.Cleanup(func() { w.srv.Stop(); w.srv.Stop() })
	return w
}

// jobs waits until the namespace has n jobs. Each look is a round trip through the stream's own state, not a sleep.
func (w *world) jobs(n int) []string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		list, err := w.store.ListJobs(ctx, store.JobQuery{Namespace: "acme", Limit: 10_000})
		must(w.t, err)
		if len(list) >= n {
			var ids []string
			for _, j := range list {
				ids = append(ids, j.ID.String())
			}
			return ids
		}
		select {
		case <-ctx.Done():
			w.t.Fatalf("%d jobs, want %d", len(list), n)
		case <-tick.C:
		}
	}
}

// drained waits until the stream is empty.
func (w *world) drained() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := w.js.Stream(ctx, "SUBMIT")
		must(w.t, err)
		if s.CachedInfo().State.Msgs == 0 {
			return
		}
		select {
		case <-ctx.Done():
			w.t.Fatalf("%d messages left", s.CachedInfo().State.Msgs)
		case <-tick.C:
		}
	}
}

func (w *world) deadLetter() jetstream.Msg {
	w.t.Helper()
	m, err := w.dead.Next(jetstream.FetchMaxWait(10 * time.Second))
	must(w.t, err)
	return m
}

func body(t *testing.T, kind, key string) []byte {
	t.Helper()
	b, err := proto.Marshal(&waterclockv1.SubmitJobRequest{Spec: &waterclockv1.JobSpec{Kind: kind}, IdempotencyKey: key})
	must(t, err)
	return b
}

func TestRequestReply(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	m, err := w.nc.Request("submit.acme", body(t, "exec", ""), 10*time.Second)
	must(t, err)
	res := &waterclockv1.SubmitJobResponse{}
	must(t, proto.Unmarshal(m.Data, res))
	if res.GetJob().GetNamespace() != "acme" || res.GetRun().GetRunId() == "" || m.Header.Get("Nats-Service-Error") != "" {
		t.Errorf("%v %v", res, m.Header)
	}
	m, err = w.nc.Request("submit.acme", []byte(`{"spec":{"kind":"exec","schedule":{"cron":{"spec":"0 9 * * *","zone":"Europe/Berlin"}}}}`), 10*time.Second)
	must(t, err)
	must(t, protojson.Unmarshal(m.Data, res))
	if m.Header.Get("Content-Type") != "application/json" || res.GetJob().GetSpec().GetSchedule().GetCron().GetZone() != "Europe/Berlin" {
		t.Errorf("%s %v", m.Data, m.Header)
	}
	m, err = w.nc.Request("submit.acme", []byte(`{"spec":{"kind":"exec","schedule":{"cron":{"spec":"0 9 * * *","zone":"Mars/Olympus"}}}}`), 10*time.Second)
	must(t, err)
	bad := &waterclockv1.SubmitError{}
	must(t, protojson.Unmarshal(m.Data, bad))
	if bad.GetCode() != "invalid_argument" || bad.GetViolations()[0].GetField() != "spec.schedule.cron.zone" || bad.GetViolations()[0].GetGiven() != "Mars/Olympus" ||
		m.Header.Get("Nats-Service-Error-Code") != "invalid_argument" || m.Header.Get("Nats-Service-Error") == "" {
		t.Errorf("%s %v", m.Data, m.Header)
	}
	m, err = w.nc.Request("submit._", body(t, "exec", ""), 10*time.Second)
	must(t, err)
	must(t, proto.Unmarshal(m.Data, bad))
	if bad.GetViolations()[0].GetField() != "subject" {
		t.Errorf("namespace _: %v", bad)
	}
	w.jobs(2)
}

func TestReplyGoesToInboxesOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	stolen, err := w.nc.SubscribeSync("run.default.default.critical.x.1")
	must(t, err)
	must(t, w.nc.PublishRequest("submit.acme", "run.default.default.critical.x.1", body(t, "exec", "")))
	w.jobs(1)
	w.srv.Stop()
	must(t, w.nc.Flush()) // what was published on this connection before is here now
	if n, _, err := stolen.Pending(); err != nil || n != 0 {
		t.Errorf("the server published for its requester: %d messages, %v", n, err)
	}
}

func TestPublishOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	for i := range 700 {
		_, err := w.js.PublishAsync("enqueue.acme", body(t, "exec", ""))
		must(t, err)
		if i%100 == 0 {
			_, err = w.js.PublishAsync("enqueue.acme", body(t, "exec", "the same"))
			must(t, err)
		}
	}
	for range 3 { // the same message id outside of the window of the stream is the same job all the same
		m := nats.NewMsg("enqueue.acme")
		m.Data = body(t, "exec", "")
		m.Header.Set("Nats-Msg-Id", "the same")
		_, err := w.js.PublishMsgAsync(m)
		must(t, err)
	}
	w.drained()
	if got := len(w.jobs(701)); got != 701 {
		t.Errorf("%d jobs, want 701", got)
	}
}

func TestInvalidGoesToTheDeadLetter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	for name, c := range map[string]struct {
		data  []byte
		field string
	}{
		"field":    {body(t, "no good", ""), "spec.kind"},
		"protobuf": {[]byte("\xff\xff\xff"), "body"},
		"json":     {[]byte(`{"spec":`), "body"},
	} {
		ack, err := w.js.Publish(t.Context(), "enqueue.acme", c.data)
		must(t, err)
		m := w.deadLetter()
		h := m.Headers()
		if m.Subject() != "dead.submit.acme" || string(m.Data()) != string(c.data) || h.Get("Waterclock-Field") != c.field || h.Get("Waterclock-Reason") == "" ||
			h.Get("Waterclock-Subject") != "enqueue.acme" || h.Get("Waterclock-Sequence") != fmt.Sprint(ack.Sequence) {
			t.Errorf("%s: %s %q %v", name, m.Subject(), m.Data(), h)
		}
	}
	_, err := w.js.Publish(t.Context(), "enqueue.acme", body(t, "exec", "k"))
	must(t, err)
	_, err = w.js.Publish(t.Context(), "enqueue.acme", body(t, "http", "k"))
	must(t, err)
	if h := w.deadLetter().Headers(); h.Get("Waterclock-Code") != "already_exists" {
		t.Errorf("a conflict: %v", h)
	}
	w.drained()
}

func TestNothingIsLostWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	for range 20 {
		_, err := w.js.Publish(t.Context(), "enqueue.acme", body(t, "exec", ""))
		must(t, err)
	}
	for range 3 {
		<-w.store.failed
	}
	w.drained()
	if got := len(w.jobs(20)); got != 20 {
		t.Errorf("%d jobs, want 20", got)
	}
}

func TestStreamMadeAnewDoesNotFindOldJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	_, err := w.js.Publish(t.Context(), "enqueue.acme", body(t, "exec", ""))
	must(t, err)
	w.drained()
	must(t, w.js.DeleteStream(t.Context(), "SUBMIT"))
	_, err = w.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "SUBMIT", Subjects: []string{"enqueue.*"}, Retention: jetstream.WorkQueuePolicy})
	must(t, err)
	_, err = w.js.Publish(t.Context(), "enqueue.acme", body(t, "exec", "")) // sequence 1 again
	must(t, err)
	if ids := w.jobs(2); ids[0] == ids[1] {
		t.Error("two messages made one job")
	}
}
