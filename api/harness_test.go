package api_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/api"
	"github.com/waterclock-io/waterclock/api/auth"
	"github.com/waterclock-io/waterclock/api/convert"
	"github.com/waterclock-io/waterclock/api/submit"
	"github.com/waterclock-io/waterclock/internal/apitest"
	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/internal/sqltest"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/proto/waterclock/v1/waterclockv1connect"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/store/sqlite"
)

// clock is a settable database time.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// ear hears what handlers tell others.
type ear struct {
	mu        sync.Mutex
	woken     []*store.DueRow
	withdrawn []store.Timer
	takenBack []store.Timer
	onTake    func() // called when something is to be taken back
	deaf      error  // that nothing can be withdrawn
	watchers  map[uuid.UUID]chan struct{}
	logs      map[uuid.UUID][]*wirev1.Live
}

func (e *ear) Wake(rows []*store.DueRow) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.woken = append(e.woken, rows...)
}

func (e *ear) TakeBack(ctx context.Context, t store.Timer, moved func(context.Context) bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.takenBack = append(e.takenBack, t)
	if e.onTake != nil {
		e.onTake()
	}
	if e.deaf == nil || moved(ctx) {
		return nil
	}
	return e.deaf
}

func (e *ear) Withdraw(_ context.Context, t store.Timer, _ string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.withdrawn = append(e.withdrawn, t)
	return e.deaf
}

func (e *ear) Watch(id uuid.UUID) (<-chan struct{}, func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := make(chan struct{}, 1)
	e.watchers[id] = c
	return c, func() {}
}

func (e *ear) changed(id uuid.UUID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case e.watchers[id] <- struct{}{}:
	default:
	}
}

func (e *ear) Live(ctx context.Context, _ string, id uuid.UUID) iter.Seq2[*wirev1.Live, error] {
	return func(yield func(*wirev1.Live, error) bool) {
		e.mu.Lock()
		logs := e.logs[id]
		e.mu.Unlock()
		for _, m := range logs {
			if !yield(m, nil) || m.GetEnd() {
				return
			}
		}
		<-ctx.Done()
		yield(nil, context.Cause(ctx))
	}
}

type blobs map[string]string

func (b blobs) Open(_ context.Context, key string) (io.ReadCloser, error) {
	text, ok := b[key]
	if !ok {
		return nil, errors.New("no such blob")
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

// offers lists the kinds of the live executors.
type offers []string

func (o offers) Offers(_, _, kind string) bool {
	for _, k := range o {
		if k == kind {
			return true
		}
	}
	return false
}

// world is a server on a real store, with two namespaces.
type world struct {
	t       *testing.T
	store   *sqlite.Store
	clock   *clock
	ear     *ear
	url     string
	http    *http.Client
	handler http.Handler
	submit  *submit.Service
	keys    map[string]string // namespace to credential
}

func newWorld(t *testing.T, change ...func(*api.Deps)) *world {
	t.Helper()
	return newWorldWith(t, time.Minute, change...)
}

func newWorldWith(t *testing.T, bodyTimeout time.Duration, change ...func(*api.Deps)) *world {
	t.Helper()
	w := &world{t: t, clock: &clock{at: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}, keys: map[string]string{}}
	w.ear = &ear{watchers: map[uuid.UUID]chan struct{}{}, logs: map[uuid.UUID][]*wirev1.Live{}}
	w.store = sqltest.Open(t, sqlite.Options{Now: w.clock.Now})
	for _, ns := range []string{"acme", "rival"} {
		k, text := auth.NewKey(ns, "test", w.clock.Now(), time.Time{})
		check.OK(t, w.store.CreateKey(t.Context(), k))
		w.keys[ns] = text
	}
	validator, err := convert.NewValidator()
	check.OK(t, err)
	w.submit = submit.New(submit.Config{Store: w.store, Clock: w.clock, Waker: w.ear, Validator: validator})
	t.Cleanup(w.submit.Stop)
	cluster, err := w.store.Cluster(t.Context())
	check.OK(t, err)
	d := api.Deps{
		Store: w.store, Submit: w.submit, Validator: validator, Clock: w.clock, Waker: w.ear, Withdrawer: w.ear, Watcher: w.ear, LiveLog: w.ear,
		Executors: offers{"exec", "http"}, ClusterKey: cluster.Key, AllowAnonymousLoopback: true, Log: slog.New(slog.DiscardHandler),
		Blobs: blobs{"logs/1": "stored log"},
		DecodeLog: func(r io.Reader) iter.Seq2[api.LogEntry, error] {
			return func(yield func(api.LogEntry, error) bool) {
				b, err := io.ReadAll(r)
				yield(api.LogEntry{Stream: 1, Time: time.Unix(1, 0), Data: b}, err)
			}
		},
	}
	for _, f := range change {
		f(&d)
	}
	w.handler, err = api.NewHandlerWithBodyTimeout(d, bodyTimeout)
	check.OK(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	srv := api.NewServer(w.handler, d.Log)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		check.OK(t, srv.Close())
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	w.url = "http://" + l.Addr().String()
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &p}
	t.Cleanup(transport.CloseIdleConnections)
	w.http = &http.Client{Transport: transport}
	return w
}

func (w *world) jobs(ns string, o ...connect.ClientOption) waterclockv1connect.JobServiceClient {
	return waterclockv1connect.NewJobServiceClient(w.http, w.url, append(o, apitest.WithKey(w.keys[ns]))...)
}

func (w *world) runs(ns string, o ...connect.ClientOption) waterclockv1connect.RunServiceClient {
	return waterclockv1connect.NewRunServiceClient(w.http, w.url, append(o, apitest.WithKey(w.keys[ns]))...)
}

// add submits a job to acme.
func (w *world) add(spec *waterclockv1.JobSpec) *waterclockv1.SubmitJobResponse {
	w.t.Helper()
	res, err := w.jobs("acme").SubmitJob(w.t.Context(), connect.NewRequest(&waterclockv1.SubmitJobRequest{Spec: spec}))
	check.OK(w.t, err)
	return res.Msg
}

func code(err error) connect.Code {
	if err == nil {
		return 0
	}
	return connect.CodeOf(err)
}

// violation returns the first FieldViolation of an error.
func violation(err error) *waterclockv1.FieldViolation {
	var c *connect.Error
	if errors.As(err, &c) {
		for _, d := range c.Details() {
			if v, err := d.Value(); err == nil {
				if f, ok := v.(*waterclockv1.FieldViolation); ok {
					return f
				}
			}
		}
	}
	return nil
}
