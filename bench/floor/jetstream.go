package floor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/streams"
)

const (
	// inFlight is how many runs are between their publish and their ack at a time.
	inFlight = 4096
	// runSize and resultSize are about those of the product's messages: a job with a small payload and its ticket, a result with its ticket.
	runSize, resultSize = 300, 160
	pullSize            = 500
	flushLimit          = 10 * time.Second
)

// loop is publish, fetch, status, ack, and the status fetched and acked.
type loop struct {
	jobs, results int // results per status message
	nc            *nats.Conn
	inbox         string
	worker        jetstream.Consumer
	recorder      jetstream.Consumer
	room          chan struct{} // one for each run in flight
	recorded      atomic.Int64
	done          chan error // the first failure, or nil when all is recorded

	mu      sync.Mutex
	waiting []jetstream.Msg            // runs whose result was not published yet
	status  map[uint64][]jetstream.Msg // runs by the status message that waits for its answer
	last    uint64
}

// jetStream measures the loop with an embedded server like the product's.
func jetStream(results int) func(context.Context, contend.Env, int) (func(context.Context) error, func(), error) {
	return func(ctx context.Context, env contend.Env, jobs int) (_ func(context.Context) error, end func(), err error) {
		server, err := streams.StartEmbedded(streams.EmbeddedOptions{
			Dir: filepath.Join(env.Dir, "nats"), Listen: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		})
		if err != nil {
			return nil, nil, err
		}
		nc, err := nats.Connect("", nats.InProcessServer(server.InProcess()))
		if err != nil {
			server.Stop()
			return nil, nil, err
		}
		end = func() { nc.Close(); server.Stop() }
		l := &loop{
			jobs: jobs, results: results, nc: nc, inbox: nats.NewInbox() + ".", room: make(chan struct{}, inFlight), done: make(chan error, 16),
			status: map[uint64][]jetstream.Msg{},
		}
		if err := l.prepare(ctx); err != nil {
			end()
			return nil, nil, err
		}
		return l.run, end, nil
	}
}

// prepare makes streams and consumers with the settings of the product.
func (l *loop) prepare(ctx context.Context) error {
	js, err := jetstream.New(l.nc)
	if err != nil {
		return err
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "RUNS", Subjects: []string{"run.>"}, Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew, MaxMsgsPerSubject: 1,
		DiscardNewPerSubject: true,
	})
	if err != nil {
		return err
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "STATUS", Subjects: []string{"status.>"}, Discard: jetstream.DiscardNew}); err != nil {
		return err
	}
	consumer := jetstream.ConsumerConfig{Durable: "all", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1}
	if l.worker, err = js.CreateConsumer(ctx, "RUNS", consumer); err != nil {
		return err
	}
	l.recorder, err = js.CreateConsumer(ctx, "STATUS", consumer)
	return err
}

func (l *loop) run(ctx context.Context) error {
	answers, err := l.nc.Subscribe(l.inbox+"*", l.answered)
	if err != nil {
		return err
	}
	defer answers.Unsubscribe() //nolint:errcheck // the connection is closed next
	for _, c := range []struct {
		consumer jetstream.Consumer
		handle   jetstream.MessageHandler
	}{{l.worker, l.work}, {l.recorder, l.record}} {
		consuming, err := c.consumer.Consume(c.handle, jetstream.PullMaxMessages(pullSize))
		if err != nil {
			return err
		}
		defer consuming.Stop()
	}
	if err := l.publish(ctx); err != nil {
		return err
	}
	select {
	case err := <-l.done:
		return errors.Join(err, l.nc.FlushTimeout(flushLimit))
	case <-ctx.Done():
		return fmt.Errorf("%d of %d recorded: %w", l.recorded.Load(), l.jobs, context.Cause(ctx))
	}
}

// publish sends the runs, each under a subject of its own.
func (l *loop) publish(ctx context.Context) error {
	body := bytes.Repeat([]byte("r"), runSize)
	for i := range l.jobs {
		select {
		case l.room <- struct{}{}:
		case err := <-l.done:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		err := l.nc.PublishRequest("run.bench.bench.normal.01890000-0000-7000-8000-"+fmt.Sprintf("%012d", i)+".1", l.inbox+"r", body)
		if err != nil {
			return err
		}
	}
	return nil
}

// answered takes JetStream's answers to publishes.
func (l *loop) answered(m *nats.Msg) {
	if bytes.Contains(m.Data, []byte(`"error"`)) {
		l.fail(fmt.Errorf("publish refused: %s", m.Data))
		return
	}
	id := strings.TrimPrefix(m.Subject, l.inbox)
	if id == "r" {
		return
	}
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		l.fail(err)
		return
	}
	l.mu.Lock()
	runs := l.status[n]
	delete(l.status, n)
	l.mu.Unlock()
	for _, run := range runs {
		if err := run.Ack(); err != nil {
			l.fail(err)
		}
		<-l.room
	}
}

// work reports the end of a run; its ack waits for the answer.
func (l *loop) work(m jetstream.Msg) {
	l.mu.Lock()
	l.waiting = append(l.waiting, m)
	if len(l.waiting) < l.results && int(l.last)*l.results+len(l.waiting) < l.jobs { //nolint:gosec // small
		l.mu.Unlock()
		return
	}
	runs := l.waiting
	l.waiting = nil
	l.last++
	n := l.last
	l.status[n] = runs
	l.mu.Unlock()
	body := make([]byte, 8+resultSize*len(runs))
	binary.BigEndian.PutUint64(body, uint64(len(runs)))
	if err := l.nc.PublishRequest("status.worker", l.inbox+strconv.FormatUint(n, 10), body); err != nil {
		l.fail(err)
	}
}

func (l *loop) record(m jetstream.Msg) {
	if err := m.Ack(); err != nil {
		l.fail(err)
		return
	}
	n := int64(binary.BigEndian.Uint64(m.Data())) //nolint:gosec // small
	if l.recorded.Add(n) == int64(l.jobs) {
		l.done <- nil
	}
}

// fail ends the measure; what fails after the first few times is not told.
func (l *loop) fail(err error) {
	select {
	case l.done <- err:
	default:
	}
}
