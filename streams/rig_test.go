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

	"github.com/waterclock-io/waterclock/store"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// rig is a NATS server of the test's own, and what SQL would know of its streams.
type rig struct {
	t   testing.TB
	srv *Embedded
	nc  *nats.Conn
	js  jetstream.JetStream
	reg *memory
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, srv: startServer(t, t.TempDir(), "127.0.0.1:0"), reg: newMemory()}
	t.Cleanup(r.srv.Stop)
	r.nc = r.connect()
	r.js = jsOf(t, r.nc)
	return r
}

func startServer(t testing.TB, dir, listen string) *Embedded {
	t.Helper()
	e, err := StartEmbedded(EmbeddedOptions{Dir: dir, Listen: listen, Logger: quiet})
	check(t, err)
	return e
}

func (r *rig) connect() *nats.Conn {
	r.t.Helper()
	nc, err := Connect(Dial{Embedded: r.srv, Name: "test", Logger: quiet})
	check(r.t, err)
	r.t.Cleanup(nc.Close)
	return nc
}

func jsOf(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	check(t, err)
	return js
}

// ensure makes the streams with the limits of a small test.
func (r *rig) ensure() Runs {
	r.t.Helper()
	runs, err := Ensure(r.t.Context(), r.js, r.reg, Limits{}, quiet)
	check(r.t, err)
	return runs
}

func (r *rig) window(size int, timeout time.Duration) *Window {
	r.t.Helper()
	w, err := NewWindow(r.nc, size, timeout)
	check(r.t, err)
	r.t.Cleanup(w.Close)
	return w
}

// publish stores a run on a lane and returns its id.
func (r *rig) publish(l Lane) uuid.UUID {
	r.t.Helper()
	id := uuid.New()
	_, err := r.js.Publish(r.t.Context(), RunSubject(l, id, 1), []byte("x"))
	check(r.t, err)
	return id
}

func (r *rig) count(stream string) uint64 {
	r.t.Helper()
	s, err := r.js.Stream(r.t.Context(), stream)
	check(r.t, err)
	return s.CachedInfo().State.Msgs
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await asks until it is told yes.
func await(t testing.TB, what string, yes func() bool) {
	t.Helper()
	over := time.NewTimer(20 * time.Second)
	defer over.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-tick.C:
		case <-over.C:
			t.Fatalf("never came: %s", what)
		}
	}
}

// receive takes the next value, and fails where none comes.
func receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	over := time.NewTimer(20 * time.Second)
	defer over.Stop()
	select {
	case v := <-c:
		return v
	case <-over.C:
		t.Fatalf("never came: %s", what)
		panic("unreachable")
	}
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
