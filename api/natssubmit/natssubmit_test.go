package natssubmit_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/api"
	"github.com/waterclock-io/waterclock/api/convert"
	"github.com/waterclock-io/waterclock/api/natssubmit"
	"github.com/waterclock-io/waterclock/api/submit"
	"github.com/waterclock-io/waterclock/chaos/proxy"
	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/internal/natstest"
	"github.com/waterclock-io/waterclock/internal/sqltest"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/store/sqlite"
	"github.com/waterclock-io/waterclock/streams"
)

type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

type deaf struct{}

func (deaf) Wake([]*store.DueRow) {}

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
	t       *testing.T
	store   *flaky
	nc      *nats.Conn
	js      jetstream.JetStream
	service *submit.Service
	srv     *natssubmit.Server
	dead    jetstream.Consumer
}

func newWorld(t *testing.T, failures int) *world {
	t.Helper()
	return newWorldOn(t, natstest.Start(t, streams.EmbeddedOptions{}), failures)
}

func newWorldOn(t *testing.T, e *streams.Embedded, failures int) *world {
	t.Helper()
	w := &world{t: t}
	w.store = &flaky{Store: sqltest.Open(t, sqlite.Options{}), left: failures, failed: make(chan struct{}, 100)}
	w.nc = natstest.Connect(t, streams.Dial{Embedded: e})
	w.js = natstest.JetStream(t, w.nc)
	createStream(t, w.js)
	dead, err := w.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>"}})
	check.OK(t, err)
	w.dead, err = dead.CreateConsumer(t.Context(), jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	check.OK(t, err)

	v, err := convert.NewValidator()
	check.OK(t, err)
	w.service = submit.New(submit.Config{Store: w.store, Clock: realClock{}, Waker: deaf{}, Validator: v})
	t.Cleanup(w.service.Stop)
	w.srv = w.server(w.nc)
	check.OK(t, w.srv.Start())
	check.OK(t, w.srv.Start())
	return w
}

// server returns one that has not started, on a connection.
func (w *world) server(nc *nats.Conn) *natssubmit.Server {
	s := natssubmit.New(natssubmit.Config{
		Conn: nc, JS: natstest.JetStream(w.t, nc), Submit: w.service, Errors: api.NewErrors(), RequestSubjects: "submit.*", Stream: "SUBMIT",
		DeadSubject: func(namespace string) string { return strings.TrimSuffix("dead.submit."+namespace, ".") }, Log: slog.New(slog.DiscardHandler),
	})
	w.t.Cleanup(func() { s.Stop(); s.Stop() })
	return s
}

// createStream makes the stream of those who only publish.
func createStream(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "SUBMIT", Subjects: []string{"enqueue.*"}, Retention: jetstream.WorkQueuePolicy})
	check.OK(t, err)
}

// enqueue publishes a submission and returns its place in the stream.
func (w *world) enqueue(data []byte) uint64 {
	w.t.Helper()
	ack, err := w.js.Publish(w.t.Context(), "enqueue.acme", data)
	check.OK(w.t, err)
	return ack.Sequence
}

// ask submits by a request, and returns what is answered.
func (w *world) ask(subject string, data []byte) *nats.Msg {
	w.t.Helper()
	m, err := w.nc.Request(subject, data, 10*time.Second)
	check.OK(w.t, err)
	return m
}

// jobs waits until the namespace has n jobs.
func (w *world) jobs(n int) (ids []string) {
	w.t.Helper()
	check.Await(w.t, fmt.Sprintf("%d jobs", n), func() bool {
		list, err := w.store.ListJobs(w.t.Context(), store.JobQuery{Namespace: "acme", Limit: 10_000})
		check.OK(w.t, err)
		ids = nil
		for _, j := range list {
			ids = append(ids, j.ID.String())
		}
		return len(list) >= n
	})
	return ids
}

// drained waits until the stream is empty.
func (w *world) drained() {
	w.t.Helper()
	check.Await(w.t, "an empty stream", func() bool {
		s, err := w.js.Stream(w.t.Context(), "SUBMIT")
		check.OK(w.t, err)
		return s.CachedInfo().State.Msgs == 0
	})
}

func (w *world) deadLetter() jetstream.Msg {
	w.t.Helper()
	m, err := w.dead.Next(jetstream.FetchMaxWait(10 * time.Second))
	check.OK(w.t, err)
	return m
}

func body(t *testing.T, kind, key string) []byte {
	t.Helper()
	b, err := proto.Marshal(&waterclockv1.SubmitJobRequest{Spec: &waterclockv1.JobSpec{Kind: kind}, IdempotencyKey: key})
	check.OK(t, err)
	return b
}

func TestRequestReply(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	m := w.ask("submit.acme", body(t, "exec", ""))
	res := &waterclockv1.SubmitJobResponse{}
	check.OK(t, proto.Unmarshal(m.Data, res))
	if res.GetJob().GetNamespace() != "acme" || res.GetRun().GetRunId() == "" || m.Header.Get("Nats-Service-Error") != "" {
		t.Errorf("%v %v", res, m.Header)
	}
	m = w.ask("submit.acme", []byte(`{"spec":{"kind":"exec","schedule":{"cron":{"spec":"0 9 * * *","zone":"Europe/Berlin"}}}}`))
	check.OK(t, protojson.Unmarshal(m.Data, res))
	if m.Header.Get("Content-Type") != "application/json" || res.GetJob().GetSpec().GetSchedule().GetCron().GetZone() != "Europe/Berlin" {
		t.Errorf("%s %v", m.Data, m.Header)
	}
	m = w.ask("submit.acme", []byte(`{"spec":{"kind":"exec","schedule":{"cron":{"spec":"0 9 * * *","zone":"Mars/Olympus"}}}}`))
	bad := &waterclockv1.SubmitError{}
	check.OK(t, protojson.Unmarshal(m.Data, bad))
	if bad.GetCode() != "invalid_argument" || bad.GetViolations()[0].GetField() != "spec.schedule.cron.zone" || bad.GetViolations()[0].GetGiven() != "Mars/Olympus" ||
		m.Header.Get("Nats-Service-Error-Code") != "invalid_argument" || m.Header.Get("Nats-Service-Error") == "" {
		t.Errorf("%s %v", m.Data, m.Header)
	}
	m = w.ask("submit._", body(t, "exec", ""))
	check.OK(t, proto.Unmarshal(m.Data, bad))
	if bad.GetViolations()[0].GetField() != "subject" {
		t.Errorf("namespace _: %v", bad)
	}
	w.jobs(2)
}

// The fault: NATS goes away in the moment in which a server starts. It starts all the same, and answers when NATS is back.
func TestNATSGoesAwayWhileItStarts(t *testing.T) {
	t.Parallel()
	e := natstest.Start(t, streams.EmbeddedOptions{})
	w := newWorldOn(t, e, 0)
	w.srv.Stop()
	l := natstest.Link(t, e.Addr())
	nc := natstest.Connect(t, streams.Dial{URL: "nats://" + l.Addr()})
	srv := w.server(nc)
	l.Hold(proxy.ToClient)
	started := make(chan error, 1)
	go func() { started <- srv.Start() }()
	check.Await(t, "it listens for requests", func() bool { return nc.NumSubscriptions() > 0 })
	l.Cut()
	check.OK(t, check.Receive(t, "the end of its start", started))
	l.Heal()
	check.Await(t, "a request is answered", func() bool {
		_, err := w.nc.Request("submit.acme", body(t, "exec", "key"), time.Second)
		return err == nil
	})
	w.jobs(1)
}

func TestReplyGoesToInboxesOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	stolen, err := w.nc.SubscribeSync("run.default.default.critical.x.1")
	check.OK(t, err)
	check.OK(t, w.nc.PublishRequest("submit.acme", "run.default.default.critical.x.1", body(t, "exec", "")))
	w.jobs(1)
	w.srv.Stop()
	check.OK(t, w.nc.Flush()) // what was published on this connection before is here now
	if n, _, err := stolen.Pending(); err != nil || n != 0 {
		t.Errorf("the server published for its requester: %d messages, %v", n, err)
	}
}

func TestPublishOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	for i := range 700 {
		_, err := w.js.PublishAsync("enqueue.acme", body(t, "exec", ""))
		check.OK(t, err)
		if i%100 == 0 {
			_, err = w.js.PublishAsync("enqueue.acme", body(t, "exec", "the same"))
			check.OK(t, err)
		}
	}
	for range 3 { // the same message id outside of the window of the stream is the same job all the same
		m := nats.NewMsg("enqueue.acme")
		m.Data = body(t, "exec", "")
		m.Header.Set("Nats-Msg-Id", "the same")
		_, err := w.js.PublishMsgAsync(m)
		check.OK(t, err)
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
		sequence := w.enqueue(c.data)
		m := w.deadLetter()
		h := m.Headers()
		if m.Subject() != "dead.submit.acme" || string(m.Data()) != string(c.data) || h.Get("Waterclock-Field") != c.field || h.Get("Waterclock-Reason") == "" ||
			h.Get("Waterclock-Subject") != "enqueue.acme" || h.Get("Waterclock-Sequence") != fmt.Sprint(sequence) {
			t.Errorf("%s: %s %q %v", name, m.Subject(), m.Data(), h)
		}
	}
	w.enqueue(body(t, "exec", "k"))
	w.enqueue(body(t, "http", "k"))
	if h := w.deadLetter().Headers(); h.Get("Waterclock-Code") != "already_exists" {
		t.Errorf("a conflict: %v", h)
	}
	w.drained()
}

func TestNothingIsLostWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	for range 20 {
		w.enqueue(body(t, "exec", ""))
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
	w.enqueue(body(t, "exec", ""))
	w.drained()
	check.OK(t, w.js.DeleteStream(t.Context(), "SUBMIT"))
	createStream(t, w.js)
	w.enqueue(body(t, "exec", "")) // sequence 1 again
	if ids := w.jobs(2); ids[0] == ids[1] {
		t.Error("two messages made one job")
	}
}
