package executor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/executor"
	"github.com/waterclock-io/waterclock/executor/guard"
	"github.com/waterclock-io/waterclock/job"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/streams"
)

func TestMain(m *testing.M) {
	if guard.Main() {
		return
	}
	os.Exit(m.Run())
}

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// registrar is what the streams need of SQL, in memory.
type registrar struct {
	mu    sync.Mutex
	store uuid.UUID
	runs  store.Stream
}

func (r *registrar) Cluster(context.Context) (store.Cluster, error) {
	return store.Cluster{StoreID: r.store, Key: []byte("key")}, nil
}

func (r *registrar) Streams(context.Context) ([]store.Stream, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runs.Generation == 0 {
		return nil, nil
	}
	return []store.Stream{r.runs}, nil
}

func (r *registrar) NextGeneration(_ context.Context, name string, from int64) (store.Stream, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = store.Stream{Name: name, Generation: from + 1}
	return r.runs, nil
}

// plant is a NATS server with the streams, and a planner and a recorder that the test plays itself.
type plant struct {
	t      testing.TB
	srv    *streams.Embedded
	nc     *nats.Conn
	js     jetstream.JetStream
	reg    *registrar
	runs   streams.Runs
	sealer *streams.Sealer

	mu    sync.Mutex
	heard []said
	more  chan struct{} // closed and made anew with each said
}

// said is a status as STATUS has it.
type said struct {
	*wirev1.Status
	run      uuid.UUID
	dispatch int64
	executor string
	msgID    string
	at       time.Time // when it was heard
}

func newPlant(t testing.TB) *plant { return newPlantIn(t, t.TempDir()) }

// newPlantIn has its streams in a folder.
func newPlantIn(t testing.TB, folder string) *plant {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	srv, err := streams.StartEmbedded(streams.EmbeddedOptions{Dir: folder, Listen: "127.0.0.1:0", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	p := &plant{t: t, srv: srv, reg: &registrar{store: uuid.New()}, sealer: streams.NewSealer([]byte("key")), more: make(chan struct{})}
	t.Cleanup(func() { p.srv.Stop() })
	nc, err := streams.Connect(streams.Dial{Embedded: srv, Name: "test", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	p.nc = nc
	if p.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	if p.runs, err = streams.Ensure(context.Background(), p.js, p.reg, streams.Limits{}, log); err != nil {
		t.Fatal(err)
	}
	p.record()
	return p
}

// record reads what executors say.
func (p *plant) record() {
	c, err := p.js.OrderedConsumer(context.Background(), streams.StatusStream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		p.t.Fatal(err)
	}
	reading, err := c.Consume(func(m jetstream.Msg) {
		b := new(wirev1.StatusBatch)
		if err := proto.Unmarshal(m.Data(), b); err != nil {
			p.t.Errorf("a status that cannot be read: %v", err)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, s := range b.Statuses {
			ticket, err := p.sealer.Open(s.Ticket)
			if err != nil {
				p.t.Errorf("status %s: %v", s.Kind, err)
				continue
			}
			p.heard = append(p.heard, said{s, uuid.UUID(ticket.RunId), ticket.Dispatch, b.Executor, m.Headers().Get(jetstream.MsgIDHeader), time.Now()})
		}
		close(p.more)
		p.more = make(chan struct{})
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(reading.Stop)
}

// find waits until STATUS has what is looked for.
func (p *plant) find(what string, match func(said) bool) said {
	p.t.Helper()
	over := time.After(patience)
	for {
		p.mu.Lock()
		i := slices.IndexFunc(p.heard, match)
		var found said
		if i >= 0 {
			found = p.heard[i]
		}
		more := p.more
		p.mu.Unlock()
		if i >= 0 {
			return found
		}
		select {
		case <-more:
		case <-over:
			p.t.Fatalf("STATUS does not have %s", what)
		}
	}
}

// ended waits for the last word on a run.
func (p *plant) ended(run uuid.UUID) said {
	p.t.Helper()
	return p.find("the end of "+run.String(), func(s said) bool { return s.run == run && s.Kind != wirev1.StatusKind_STATUS_KIND_STARTED })
}

// started waits for the claim of a run.
func (p *plant) started(run uuid.UUID) said {
	p.t.Helper()
	return p.find("the start of "+run.String(), func(s said) bool { return s.run == run && s.Kind == wirev1.StatusKind_STATUS_KIND_STARTED })
}

// words are all the kinds of status that a run has so far.
func (p *plant) words(run uuid.UUID) []wirev1.StatusKind {
	p.mu.Lock()
	defer p.mu.Unlock()
	var kinds []wirev1.StatusKind
	for _, s := range p.heard {
		if s.run == run {
			kinds = append(kinds, s.Kind)
		}
	}
	return kinds
}

// message is a hand-over of a run of a kind, as a planner makes it.
func (p *plant) message(kind string) *wirev1.RunMessage {
	run, jobID, now := uuid.New(), uuid.New(), time.Now()
	return &wirev1.RunMessage{
		JobId: jobID[:], RunId: run[:], Dispatch: 1, Attempt: 1, MaxAttempts: 3, Namespace: "team-a", Kind: kind, Queue: job.DefaultQueue, Priority: job.Normal.String(),
		ScheduledAt: now.UnixMicro(), DueAt: now.UnixMicro(), PublishedAt: now.UnixMicro(), PublishBy: now.Add(time.Hour).UnixMicro(),
		AttemptTimeout: time.Hour.Microseconds(), Server: streams.ServerMark(p.nc),
	}
}

// lane is the road of a message.
func lane(m *wirev1.RunMessage) streams.Lane {
	l := streams.Lane{Namespace: job.SharedNamespace, Queue: m.Queue}
	for _, priority := range job.Priorities {
		if priority.String() == m.Priority {
			l.Priority = priority
		}
	}
	return l
}

func subject(m *wirev1.RunMessage) string {
	return streams.RunSubject(lane(m), uuid.UUID(m.RunId), m.Dispatch)
}

// consumer is the name of the consumer of a message's lane.
func consumerPrefix(m *wirev1.RunMessage) string {
	return job.SharedNamespace + "~" + m.Queue + "~" + m.Priority + "~"
}

// consumer is the name of the one that delivers a message now; empty where there is none.
func (p *plant) consumer(m *wirev1.RunMessage) string {
	s, err := p.js.Stream(context.Background(), p.runs.Name)
	if err != nil {
		return ""
	}
	found := ""
	for name := range s.ConsumerNames(context.Background()).Name() {
		if strings.HasPrefix(name, consumerPrefix(m)) {
			found = name
		}
	}
	return found
}

// publish hands a run out, as a planner does: never before its lane has a consumer.
func (p *plant) publish(m *wirev1.RunMessage) uuid.UUID {
	p.t.Helper()
	lane, _, _, err := streams.ParseRunSubject(subject(m))
	if err == nil {
		err = streams.EnsureConsumer(context.Background(), p.js, p.runs, lane, time.Minute)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	ticket, err := p.sealer.Seal(&wirev1.Ticket{JobId: m.JobId, RunId: m.RunId, Dispatch: m.Dispatch, Namespace: m.Namespace, Queue: m.Queue, Attempt: m.Attempt})
	if err != nil {
		p.t.Fatal(err)
	}
	m.Ticket = ticket
	b, err := proto.Marshal(m)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.js.Publish(context.Background(), subject(m), b); err != nil {
		p.t.Fatal(err)
	}
	return uuid.UUID(m.RunId)
}

// claim says in the name of an executor that it works on a hand-over.
func (p *plant) claim(m *wirev1.RunMessage, executorID string) {
	p.t.Helper()
	b, err := proto.Marshal(&wirev1.StatusBatch{Executor: executorID, Statuses: []*wirev1.Status{{Ticket: m.Ticket, Kind: wirev1.StatusKind_STATUS_KIND_STARTED}}})
	if err != nil {
		p.t.Fatal(err)
	}
	id := fmt.Sprintf("%s/%d", uuid.UUID(m.RunId), m.Dispatch)
	if _, err := p.js.Publish(context.Background(), streams.StatusSubject(executorID), b, jetstream.WithMsgID(id)); err != nil {
		p.t.Fatal(err)
	}
}

// gone waits until a message has left RUNS, which is when it is acknowledged.
func (p *plant) gone(m *wirev1.RunMessage) {
	p.t.Helper()
	p.until("message acknowledged", func() bool { return !p.there(m) })
}

func (p *plant) there(m *wirev1.RunMessage) bool {
	p.t.Helper()
	_, found, err := streams.FindRun(context.Background(), p.js, p.runs, subject(m))
	if err != nil {
		p.t.Fatal(err)
	}
	return found
}

// until asks again and again, where nothing tells that it is time to.
func (p *plant) until(what string, holds func() bool) {
	p.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	over := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-over:
			p.t.Fatalf("still waiting for: %s", what)
		}
	}
}

// employ starts an executor; it is stopped, with what it works on, when the test is over.
func (p *plant) employ(handlers map[string]executor.Handler, change ...func(*executor.Config)) *executor.Executor {
	p.t.Helper()
	return p.employVia("", handlers, change...)
}

// employVia is employ over a connection to an address; empty means within the process.
func (p *plant) employVia(address string, handlers map[string]executor.Handler, change ...func(*executor.Config)) *executor.Executor {
	p.t.Helper()
	dial := streams.Dial{Name: "executor", Logger: slog.New(slog.DiscardHandler)}
	if address == "" {
		dial.Embedded = p.srv
	} else {
		dial.URL = "nats://" + address
	}
	nc, err := streams.Connect(dial)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(nc.Close)
	cfg := executor.Config{
		Conn: nc, Handlers: handlers, Slots: 8, Lease: executor.Lease{AckWait: 3 * time.Second, Beat: 300 * time.Millisecond, Margin: 700 * time.Millisecond},
	}
	for _, f := range change {
		f(&cfg)
	}
	e, err := executor.New(cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		e.Stop(over)
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := e.Start(ctx); err != nil {
		p.t.Fatal(err)
	}
	return e
}

// untilStopped is a handler that goes on until its context ends; it reports its start and why it ended.
func untilStopped(begun chan<- *executor.Run, why chan<- error) executor.Handler {
	return func(ctx context.Context, run *executor.Run) error {
		begun <- run
		<-ctx.Done()
		why <- context.Cause(ctx)
		return context.Cause(ctx)
	}
}

func wait[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("still waiting for: %s", what)
		panic("unreachable")
	}
}

// memory is a blob store.
type memory struct {
	mu    sync.Mutex
	blobs map[string][]byte
	fails bool
	puts  int
}

func (m *memory) Put(_ context.Context, key string, content []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.puts++
	if m.fails {
		return errors.New("disk full")
	}
	if m.blobs == nil {
		m.blobs = map[string][]byte{}
	}
	m.blobs[key] = slices.Clone(content)
	return nil
}

func (m *memory) get(key string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.blobs[key]
}
