package streams

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/store"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// rig is a NATS server of the test's own, and what SQL would know of its streams.
type rig struct {
	t   testing.TB
	dir string
	srv *Embedded
	nc  *nats.Conn
	js  jetstream.JetStream
	reg *memory
}

func newRig(t testing.TB) *rig { return newRigVia(t, (*rig).connect) }

// newRigByURL has a connection that goes by a socket, and outlives its server.
func newRigByURL(t testing.TB) *rig {
	return newRigVia(t, func(r *rig) *nats.Conn { return r.dial(Dial{URL: "nats://" + r.srv.Addr()}) })
}

func newRigVia(t testing.TB, connect func(*rig) *nats.Conn) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), reg: newMemory()}
	r.serve("127.0.0.1:0")
	r.nc = connect(r)
	r.js = jsOf(t, r.nc)
	return r
}

// serve starts the server, again with the data of before where it was stopped.
func (r *rig) serve(listen string) {
	r.t.Helper()
	var err error
	r.srv, err = StartEmbedded(EmbeddedOptions{Dir: r.dir, Listen: listen, Logger: quiet})
	check.OK(r.t, err)
	r.t.Cleanup(r.srv.Stop)
}

func (r *rig) connect() *nats.Conn {
	r.t.Helper()
	return r.dial(Dial{Embedded: r.srv})
}

func (r *rig) dial(d Dial) *nats.Conn {
	r.t.Helper()
	d.Name, d.Logger = "test", quiet
	nc, err := Connect(d)
	check.OK(r.t, err)
	r.t.Cleanup(nc.Close)
	return nc
}

// subscribe listens on a subject for the rest of the test.
func (r *rig) subscribe(nc *nats.Conn, subject string, heard nats.MsgHandler) {
	r.t.Helper()
	sub, err := nc.Subscribe(subject, heard)
	check.OK(r.t, err)
	r.t.Cleanup(func() { _ = sub.Unsubscribe() }) // the connection may be closed
}

func jsOf(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	check.OK(t, err)
	return js
}

// ensure makes the streams with the limits of a small test.
func (r *rig) ensure() Runs {
	r.t.Helper()
	runs, err := Ensure(r.t.Context(), r.js, r.reg, Limits{}, quiet)
	check.OK(r.t, err)
	return runs
}

func (r *rig) window(size int, timeout time.Duration) *Window {
	r.t.Helper()
	w, err := NewWindow(r.nc, size, timeout)
	check.OK(r.t, err)
	r.t.Cleanup(w.Close)
	return w
}

// publish stores a run on a lane and returns its id.
func (r *rig) publish(l Lane) uuid.UUID {
	r.t.Helper()
	id := uuid.New()
	_, err := r.js.Publish(r.t.Context(), RunSubject(l, id, 1), []byte("x"))
	check.OK(r.t, err)
	return id
}

func (r *rig) count(stream string) uint64 {
	r.t.Helper()
	s, err := r.js.Stream(r.t.Context(), stream)
	check.OK(r.t, err)
	return s.CachedInfo().State.Msgs
}

// memory is a Registrar without SQL.
type memory struct {
	mu      sync.Mutex
	cluster store.Cluster
	stream  store.Stream
	counted int
	// read is called after the streams were read; may be nil.
	read func()
}

func newMemory() *memory { return &memory{cluster: store.Cluster{StoreID: uuid.New()}} }

func (m *memory) Cluster(context.Context) (store.Cluster, error) { return m.cluster, nil }

func (m *memory) Streams(context.Context) ([]store.Stream, error) {
	m.mu.Lock()
	s, read := m.stream, m.read
	m.mu.Unlock()
	if read != nil {
		read()
	}
	if s.Generation == 0 {
		return nil, nil
	}
	return []store.Stream{s}, nil
}

func (m *memory) NextGeneration(_ context.Context, name string, from int64) (store.Stream, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stream.Generation == from {
		m.stream = store.Stream{Name: name, Generation: from + 1}
		m.counted++
	}
	return m.stream, nil
}

func (m *memory) current() store.Stream {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stream
}

func (m *memory) set(change func(*memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}
