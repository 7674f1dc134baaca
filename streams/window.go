package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// The outcomes of a publish that callers branch on.
var (
	// ErrNotAcked: no answer came in time. The message may or may not be in the stream.
	ErrNotAcked = errors.New("publish was not acknowledged in time")
	// ErrThere: the subject holds a message already (JetStream error 10077): for a hand-over that means success.
	ErrThere = errors.New("subject holds a message already")
	// ErrFull: the stream refuses messages until it is drained.
	ErrFull = errors.New("stream is full")
	// ErrWindowClosed: the window was closed before the answer came.
	ErrWindowClosed = errors.New("publish window is closed")
)

// Ack is JetStream's answer to a publish.
type Ack struct {
	Stream    string
	Seq       uint64
	Duplicate bool
}

// Window publishes asynchronously with at most size messages unanswered. It is nats.go's own asynchronous publish with two differences that matter here:
// a full window blocks the publisher for as long as it takes instead of failing after 200 ms, and every answer is handed to the caller's function, so that no
// goroutine waits per message.
type Window struct {
	nc      *nats.Conn
	prefix  string
	sub     *nats.Subscription
	timeout time.Duration
	slots   chan struct{}

	mu      sync.Mutex
	next    uint64
	pending map[uint64]pendingPublish
	closed  bool
	stop    chan struct{}
	heard   sync.WaitGroup // the goroutine that follows the connection
	round   *time.Timer    // the next look at what nobody answers; only while something is unanswered
	looks   bool           // it is set
	rounds  sync.WaitGroup
}

type pendingPublish struct {
	done func(*nats.Msg, error)
	at   time.Time
}

// NewWindow opens a window. A publish without an answer after timeout, or once its connection was lost and is back, is reported as ErrNotAcked.
func NewWindow(nc *nats.Conn, size int, timeout time.Duration) (*Window, error) {
	w := &Window{
		nc:      nc,
		prefix:  nc.NewInbox() + ".",
		timeout: timeout,
		slots:   make(chan struct{}, size),
		pending: make(map[uint64]pendingPublish, size),
		stop:    make(chan struct{}),
	}
	w.round = time.AfterFunc(math.MaxInt64, w.sweep)
	w.round.Stop()
	sub, err := nc.Subscribe(w.prefix+"*", w.onAck)
	if err != nil {
		return nil, fmt.Errorf("subscribe to publish answers: %w", err)
	}
	// Answers are bounded by the window; the subscription must never drop one.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, fmt.Errorf("set limits of publish answers: %w", err)
	}
	w.sub = sub
	w.heard.Go(w.follow)
	return w, nil
}

// Publish sends a message to a stream and returns as soon as the window has room; done is called exactly once, from another goroutine, unless Publish returns an
// error.
func (w *Window) Publish(ctx context.Context, subject string, header nats.Header, data []byte, done func(Ack, error)) error {
	return w.Request(ctx, subject, header, data, func(m *nats.Msg, err error) {
		if err != nil {
			done(Ack{}, err)
			return
		}
		done(parseAck(m))
	})
}

// Request is Publish for anything that answers; done gets the answer as it came. An answer that says that nobody listens is nats.ErrNoResponders.
func (w *Window) Request(ctx context.Context, subject string, header nats.Header, data []byte, done func(*nats.Msg, error)) error {
	select {
	case w.slots <- struct{}{}:
	default:
		// Flush what is buffered before waiting for room, or nobody would answer.
		_ = w.nc.Flush() // a failing connection shows in the publish itself
		select {
		case w.slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.stop:
			return ErrWindowClosed
		}
	}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		<-w.slots
		return ErrWindowClosed
	}
	w.next++
	id := w.next
	w.pending[id] = pendingPublish{done, time.Now()}
	w.lookLater()
	w.mu.Unlock()

	err := w.nc.PublishMsg(&nats.Msg{Subject: subject, Reply: w.prefix + strconv.FormatUint(id, 36), Header: header, Data: data})
	if err != nil {
		if w.take(id) != nil {
			return fmt.Errorf("publish to %s: %w", subject, err)
		}
	}
	return nil
}

// PublishWait sends a message and waits for the answer.
func (w *Window) PublishWait(ctx context.Context, subject string, header nats.Header, data []byte) (Ack, error) {
	type answer struct {
		ack Ack
		err error
	}
	got := make(chan answer, 1)
	if err := w.Publish(ctx, subject, header, data, func(a Ack, err error) { got <- answer{a, err} }); err != nil {
		return Ack{}, err
	}
	select {
	case a := <-got:
		return a.ack, a.err
	case <-ctx.Done():
		return Ack{}, fmt.Errorf("%w: %w", ErrNotAcked, context.Cause(ctx))
	}
}

// GiveUp reports all that wait for their answer as ErrNotAcked, now: to be called when the stream has a new leader, who knows nothing of them.
func (w *Window) GiveUp() { w.giveUp(func(pendingPublish) bool { return true }) }

// giveUp reports those of which late is true.
func (w *Window) giveUp(late func(pendingPublish) bool) {
	w.mu.Lock()
	var ids []uint64
	for id, p := range w.pending {
		if late(p) {
			ids = append(ids, id)
		}
	}
	w.mu.Unlock()
	for _, id := range ids {
		if done := w.take(id); done != nil {
			done(nil, ErrNotAcked)
		}
	}
}

// Unanswered returns how many publishes wait for their answer.
func (w *Window) Unanswered() int { return len(w.slots) }

// Close ends the window; publishes that wait for their answer are reported as ErrWindowClosed. It may be called more than once.
func (w *Window) Close() {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.closed = true
	left := w.pending
	w.pending = map[uint64]pendingPublish{}
	if w.looks && w.round.Stop() {
		w.rounds.Done()
	}
	w.mu.Unlock()
	close(w.stop)
	w.heard.Wait()
	w.rounds.Wait()
	_ = w.sub.Unsubscribe() // fails only where the connection is closed, which is as good
	for _, p := range left {
		<-w.slots
		p.done(nil, ErrWindowClosed)
	}
}

func (w *Window) take(id uint64) func(*nats.Msg, error) {
	w.mu.Lock()
	p, ok := w.pending[id]
	delete(w.pending, id)
	w.mu.Unlock()
	if !ok {
		return nil
	}
	<-w.slots
	return p.done
}

func (w *Window) onAck(m *nats.Msg) {
	id, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, w.prefix), 36, 64)
	if err != nil {
		return
	}
	done := w.take(id)
	if done == nil {
		return
	}
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		done(nil, nats.ErrNoResponders)
		return
	}
	done(m, nil)
}

// follow reports what was under way when the connection was lost, once it is back: it is lost with it.
func (w *Window) follow() {
	back := w.nc.StatusChanged(nats.CONNECTED)
	defer w.nc.RemoveStatusListener(back)
	for {
		select {
		case <-w.stop:
			return
		case _, open := <-back:
			if !open {
				back = nil // the connection is closed for good
			}
			w.GiveUp()
		}
	}
}

// lookLater sets the next look, where there is none to come. The lock is held.
func (w *Window) lookLater() {
	if !w.looks && !w.closed {
		w.looks = true
		w.rounds.Add(1)
		w.round.Reset(w.timeout / 4)
	}
}

// sweep reports publishes that nobody answers.
func (w *Window) sweep() {
	defer w.rounds.Done()
	now := time.Now()
	w.giveUp(func(p pendingPublish) bool { return now.Sub(p.at) >= w.timeout })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks = false
	if len(w.pending) > 0 {
		w.lookLater()
	}
}

// codes of JetStream's errors, as its server numbers them.
const (
	codeMaxMsgsPerSubject = 10077 // shared with other "maximum exceeded" refusals; the text tells them apart
	codeInsufficient      = 10023
)

func parseAck(m *nats.Msg) (Ack, error) {
	var a struct {
		Stream    string `json:"stream"`
		Seq       uint64 `json:"seq"`
		Duplicate bool   `json:"duplicate"`
		Error     *struct {
			Code        int    `json:"code"`
			ErrCode     int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return Ack{}, fmt.Errorf("publish: unreadable answer %q: %w", m.Data, err)
	}
	if a.Error == nil {
		return Ack{Stream: a.Stream, Seq: a.Seq, Duplicate: a.Duplicate}, nil
	}
	switch {
	case a.Error.ErrCode == codeMaxMsgsPerSubject && strings.Contains(a.Error.Description, "per subject"):
		return Ack{}, ErrThere
	case a.Error.ErrCode == codeMaxMsgsPerSubject, a.Error.ErrCode == codeInsufficient:
		return Ack{}, fmt.Errorf("%w: %s", ErrFull, a.Error.Description)
	default:
		return Ack{}, fmt.Errorf("publish refused: %s (%d)", a.Error.Description, a.Error.ErrCode)
	}
}
