package executor_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
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
	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/internal/natstest"
	"github.com/waterclock-io/waterclock/job"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/streams"
)

func TestMain(m *testing.M) {
	if guard.Main() {
		return
	}
	os.Exit(m.Run())
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

func newPlant(t testing.TB) *plant { return newPlantIn(t, t.TempDir()) }

// newPlantIn has its streams in a folder.
func newPlantIn(t testing.TB, folder string) *plant {
	t.Helper()
	p := &plant{
		t: t, srv: natstest.Start(t, streams.EmbeddedOptions{Dir: folder}), reg: &registrar{store: uuid.New()}, sealer: streams.NewSealer([]byte("key")),
		more: make(chan struct{}),
	}
	p.nc = natstest.Connect(t, streams.Dial{Embedded: p.srv})
	p.js = natstest.JetStream(t, p.nc)
	p.ensure()
	p.record()
	return p
}

// ensure makes the streams, or finds them.
func (p *plant) ensure() {
	p.t.Helper()
	var err error
	p.runs, err = streams.Ensure(context.Background(), p.js, p.reg, streams.Limits{}, slog.New(slog.DiscardHandler))
	check.OK(p.t, err)
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

// take plays an executor that gets the first message of the lane of one, under a lease, and is never heard of again.
func (p *plant) take(m *wirev1.RunMessage, lease time.Duration) jetstream.Msg {
	p.t.Helper()
	c, err := p.js.CreateOrUpdateConsumer(context.Background(), p.runs.Name, jetstream.ConsumerConfig{
		Durable: p.consumer(m), FilterSubject: "run." + job.SharedNamespace + "." + m.Queue + "." + m.Priority + ".>", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: lease, MaxAckPending: -1, MaxDeliver: -1, MaxWaiting: 4096, InactiveThreshold: time.Hour,
	})
	check.OK(p.t, err)
	taken, err := c.Next()
	check.OK(p.t, err)
	return taken
}

// delivered says whether a consumer of the runs is there and has delivered anything.
func (p *plant) delivered(consumer string) bool {
	c, err := p.js.Consumer(p.t.Context(), p.runs.Name, consumer)
	return err == nil && c.CachedInfo().Delivered.Stream > 0
}

// publish hands a run out, as a planner does: never before its lane has a consumer.
func (p *plant) publish(m *wirev1.RunMessage) uuid.UUID {
	p.t.Helper()
	lane, _, _, err := streams.ParseRunSubject(subject(m))
	if err == nil {
		err = streams.EnsureConsumer(context.Background(), p.js, p.runs, lane, time.Minute)
	}
	check.OK(p.t, err)
	ticket, err := p.sealer.Seal(&wirev1.Ticket{JobId: m.JobId, RunId: m.RunId, Dispatch: m.Dispatch, Namespace: m.Namespace, Queue: m.Queue, Attempt: m.Attempt})
	check.OK(p.t, err)
	m.Ticket = ticket
	b, err := proto.Marshal(m)
	check.OK(p.t, err)
	if _, err := p.js.Publish(context.Background(), subject(m), b); err != nil {
		p.t.Fatal(err)
	}
	return uuid.UUID(m.RunId)
}

// claim says in the name of an executor that it works on a hand-over.
func (p *plant) claim(m *wirev1.RunMessage, executorID string) {
	p.t.Helper()
	b, err := proto.Marshal(&wirev1.StatusBatch{Executor: executorID, Statuses: []*wirev1.Status{{Ticket: m.Ticket, Kind: wirev1.StatusKind_STATUS_KIND_STARTED}}})
	check.OK(p.t, err)
	id := fmt.Sprintf("%s/%d", uuid.UUID(m.RunId), m.Dispatch)
	if _, err := p.js.Publish(context.Background(), streams.StatusSubject(executorID), b, jetstream.WithMsgID(id)); err != nil {
		p.t.Fatal(err)
	}
}

// gone waits until a message has left RUNS, which is when it is acknowledged.
func (p *plant) gone(m *wirev1.RunMessage) {
	p.t.Helper()
	check.Await(p.t, "message acknowledged", func() bool { return !p.there(m) })
}

func (p *plant) there(m *wirev1.RunMessage) bool {
	p.t.Helper()
	_, found, err := streams.FindRun(context.Background(), p.js, p.runs, subject(m))
	check.OK(p.t, err)
	return found
}

// employ starts an executor; it is stopped, with what it works on, when the test is over.
func (p *plant) employ(handlers map[string]executor.Handler, change ...func(*executor.Config)) *executor.Executor {
	p.t.Helper()
	return p.employVia("", handlers, change...)
}

// employVia is employ over a connection to an address; empty means within the process.
func (p *plant) employVia(address string, handlers map[string]executor.Handler, change ...func(*executor.Config)) *executor.Executor {
	p.t.Helper()
	dial := streams.Dial{Name: "executor"}
	if address == "" {
		dial.Embedded = p.srv
	} else {
		dial.URL = "nats://" + address
	}
	cfg := executor.Config{
		Conn: natstest.Connect(p.t, dial), Handlers: handlers, Slots: 8, Lease: executor.Lease{AckWait: 3 * time.Second, Beat: 300 * time.Millisecond, Margin: 700 * time.Millisecond},
	}
	for _, f := range change {
		f(&cfg)
	}
	e, err := executor.New(cfg)
	check.OK(p.t, err)
	p.t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		e.Stop(over)
	})
	ctx, cancel := context.WithTimeout(context.Background(), check.Patience)
	defer cancel()
	check.OK(p.t, e.Start(ctx))
	return e
}
