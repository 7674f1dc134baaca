package natssubmit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/api/submit"
	"github.com/waterclock-io/waterclock/internal/failpoint"
	"github.com/waterclock-io/waterclock/job/fielderr"
)

const (
	ackWait = 30 * time.Second
	// maxPull is how many messages are taken at once, and pullBytes about how many bytes: what comes is as large as what came before.
	maxPull   = 500
	pullBytes = 16 << 20
	pullWait  = 5 * time.Second
	// minBackoff and maxBackoff are the waits between attempts while the store or NATS is away.
	minBackoff = 250 * time.Millisecond
	maxBackoff = 5 * time.Second
	// maxUnexpected is how often an error is tried again that nobody knows: it may lie in the message.
	maxUnexpected = 5
)

// consume works through the stream until ctx ends.
func (s *Server) consume(ctx context.Context) {
	wait := minBackoff
	for ctx.Err() == nil {
		err := s.consumeOnce(ctx, func() { wait = minBackoff })
		if ctx.Err() != nil {
			return
		}
		s.cfg.Log.Warn("cannot take submits from the stream; trying again", "stream", s.cfg.Stream, "wait", wait, "error", err)
		pause(ctx, wait)
		wait = min(2*wait, maxBackoff)
	}
}

// consumeOnce returns when the stream cannot be read.
func (s *Server) consumeOnce(ctx context.Context, works func()) error {
	stream, err := s.cfg.JS.Stream(ctx, s.cfg.Stream)
	if err != nil {
		return fmt.Errorf("look up stream: %w", err)
	}
	consumer, err := stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: durable, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxDeliver: -1, MaxAckPending: 4 * maxPull,
		Description: "stores jobs that were published",
	})
	if err != nil {
		return fmt.Errorf("make consumer: %w", err)
	}
	made := stream.CachedInfo().Created
	size := 16
	var looked time.Time
	for ctx.Err() == nil {
		if time.Since(looked) >= lookBackEvery {
			left, err := passedOver(ctx, stream, consumer)
			if err != nil {
				return err
			}
			s.store(ctx, made, left)
			looked = time.Now()
		}
		batch, err := pull(ctx, consumer, size)
		if err != nil {
			return err
		}
		works()
		if len(batch) == 0 {
			continue
		}
		total := 0
		for _, m := range batch {
			total += len(m.Data())
		}
		size = min(max(pullBytes/max(total/len(batch), 1), 1), maxPull)
		failpoint.Here(failpoint.EnqueueFetched)
		s.store(ctx, made, batch)
	}
	return context.Cause(ctx)
}

// pull waits for a message and takes with it what else is there.
func pull(ctx context.Context, c jetstream.Consumer, size int) ([]message, error) {
	waitCtx, cancel := context.WithTimeout(ctx, pullWait)
	defer cancel()
	first, err := c.Fetch(1, jetstream.FetchContext(waitCtx))
	if err != nil {
		return nil, fmt.Errorf("pull: %w", err)
	}
	batch, err := drain(first, nil)
	if err != nil || len(batch) == 0 || size == 1 {
		return batch, err
	}
	more, err := c.FetchNoWait(size - 1)
	if err != nil {
		return batch, nil //nolint:nilerr // the next pull fails as well, and says so
	}
	batch, _ = drain(more, batch) // as above
	return batch, nil
}

func drain(b jetstream.MessageBatch, into []message) ([]message, error) {
	for m := range b.Messages() {
		into = append(into, m)
	}
	err := b.Error()
	if err == nil || errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, jetstream.ErrNoMessages) {
		return into, nil
	}
	return into, fmt.Errorf("pull: %w", err)
}

// message is what is asked of a jetstream.Msg.
type message interface {
	Subject() string
	Headers() nats.Header
	Data() []byte
	Metadata() (*jetstream.MsgMetadata, error)
	Ack() error
	Nak() error
	NakWithDelay(delay time.Duration) error
	InProgress() error
}

// item is a message on its way into the store.
type item struct {
	msg   message
	req   submit.Request
	seq   uint64
	made  time.Time // of the stream
	tries int       // with errors that nobody knows
}

// store keeps at it until every message of the batch is stored or in the dead letter, so that their order is kept. What is left when ctx ends is
// delivered again.
func (s *Server) store(ctx context.Context, made time.Time, batch []message) {
	todo := s.read(ctx, made, batch)
	wait := minBackoff
	for len(todo) > 0 && ctx.Err() == nil {
		reqs := make([]submit.Request, len(todo))
		for i := range todo {
			reqs[i] = todo[i].req
		}
		var again []item
		var last error
		for i, res := range s.cfg.Submit.Submit(ctx, reqs) {
			failpoint.Here(failpoint.EnqueueStored)
			if it := s.settle(ctx, todo[i], res.Err); it != nil {
				again, last = append(again, *it), res.Err
			}
		}
		if todo = again; len(todo) == 0 {
			return
		}
		s.cfg.Log.Warn("published submits cannot be stored; trying again", "messages", len(todo), "wait", wait, "error", last)
		pause(ctx, wait)
		wait = min(2*wait, maxBackoff)
		for i := range todo {
			_ = todo[i].msg.InProgress() // else it is delivered again, and found to exist
		}
	}
	for i := range todo {
		_ = todo[i].msg.Nak() // else it is delivered again after ackWait
	}
}

// read decodes a batch; what cannot be read goes to the dead letter.
func (s *Server) read(ctx context.Context, made time.Time, batch []message) []item {
	items := make([]item, 0, len(batch))
	for _, m := range batch {
		it := item{msg: m, made: made}
		meta, err := m.Metadata()
		if err != nil {
			s.cfg.Log.Error("a message of the stream has no metadata", "subject", m.Subject(), "error", err)
			continue
		}
		it.seq = meta.Sequence.Stream
		if it.req, _, err = request(m.Subject(), m.Headers(), m.Data()); err != nil {
			s.settle(ctx, it, err)
			continue
		}
		it.req.ID = streamID(it.req.Namespace, made, it.seq, meta.Timestamp)
		items = append(items, it)
	}
	return items
}

// settle acknowledges what is stored, or never can be; it returns the item where it is to be tried again.
func (s *Server) settle(ctx context.Context, it item, err error) *item {
	if err != nil {
		if !permanent(s.cfg.Errors, err) {
			if s.cfg.Errors.Unexpected(err) {
				it.tries++
			}
			if it.tries < maxUnexpected {
				return &it
			}
			s.cfg.Log.Error("a published submit cannot be stored and goes to the dead letter", "subject", it.msg.Subject(), "sequence", it.seq, "error", err)
		}
		r := refused{subject: it.msg.Subject(), namespace: it.req.Namespace, sequence: it.seq, made: it.made, body: it.msg.Data(), err: err}
		failpoint.Here(failpoint.EnqueueBurying)
		if err := s.deadLetter(ctx, r); err != nil {
			s.cfg.Log.Error("cannot write to the dead letter; the message stays", "subject", r.subject, "sequence", r.sequence, "error", err)
			_ = it.msg.NakWithDelay(maxBackoff) // else it is delivered again after ackWait
			return nil
		}
		failpoint.Here(failpoint.EnqueueBuried)
	}
	_ = it.msg.Ack() // else it is delivered again, and found to exist
	failpoint.Here(failpoint.EnqueueAcked)
	return nil
}

// streamIDs is the UUIDv5 name space of jobs that were published without a key. It must never change: a message delivered again after an upgrade would
// make its job a second time.
var streamIDs = uuid.MustParse("0b6f6f53-0a5f-5a43-9d0e-8b1a2c6a7e21")

// streamID is the same each time a message is delivered, and never that of another: a stream that is made anew counts from 1 again, but has another birth;
// one that went back to older data has the same birth, but stored its messages at other times.
func streamID(namespace string, made time.Time, seq uint64, stored time.Time) uuid.UUID {
	b := append([]byte(namespace), 0)
	b = binary.BigEndian.AppendUint64(b, uint64(made.UnixNano())) //nolint:gosec // bits
	b = binary.BigEndian.AppendUint64(b, seq)
	b = binary.BigEndian.AppendUint64(b, uint64(stored.UnixNano())) //nolint:gosec // bits
	return uuid.NewSHA1(streamIDs, b)
}

// refused is a message that cannot be taken.
type refused struct {
	subject, namespace string
	sequence           uint64
	made               time.Time
	body               []byte
	err                error
}

func (s *Server) deadLetter(ctx context.Context, r refused) error {
	m := nats.NewMsg(s.cfg.DeadSubject(r.namespace))
	m.Data = r.body
	e := s.cfg.Errors.Submit(r.err)
	m.Header.Set("Waterclock-Reason", headerText(e.GetMessage()))
	m.Header.Set("Waterclock-Code", e.GetCode())
	m.Header.Set("Waterclock-Subject", r.subject)
	var bad fielderr.FieldErrors
	var one *fielderr.FieldError
	switch {
	case errors.As(r.err, &bad) && len(bad) > 0:
		m.Header.Set("Waterclock-Field", headerText(bad[0].Field))
	case errors.As(r.err, &one):
		m.Header.Set("Waterclock-Field", headerText(one.Field))
	}
	var opts []jetstream.PublishOpt
	if r.sequence > 0 {
		m.Header.Set("Waterclock-Sequence", strconv.FormatUint(r.sequence, 10))
		opts = append(opts, jetstream.WithMsgID(fmt.Sprintf("submit/%d/%d", r.made.UnixNano(), r.sequence)))
	}
	if _, err := s.cfg.JS.PublishMsg(ctx, m, opts...); err != nil {
		return fmt.Errorf("publish to %s: %w", m.Subject, err)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
