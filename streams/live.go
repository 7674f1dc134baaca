package streams

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
)

// PublishLive sends progress or a piece of the live log of a run. Nobody waits for an answer: losing it loses nothing that ends in history.
func PublishLive(nc *nats.Conn, namespace string, run uuid.UUID, l *wirev1.Live) error {
	b, err := proto.Marshal(l)
	if err != nil {
		return fmt.Errorf("encode live message: %w", err)
	}
	subject := LiveSubject(namespace, run)
	if l.Stream == 0 && !l.End {
		subject = progressSubject(namespace, run)
	}
	if err := nc.Publish(subject, b); err != nil {
		return fmt.Errorf("publish live message: %w", err)
	}
	return nil
}

// LiveReader reads what executors say of runs while they go on.
type LiveReader struct{ js jetstream.JetStream }

// NewLiveReader returns a LiveReader.
func NewLiveReader(js jetstream.JetStream) *LiveReader { return &LiveReader{js} }

// Live yields what is kept of a run from the beginning, then what comes, until the attempt ends or ctx does.
func (r *LiveReader) Live(ctx context.Context, namespace string, run uuid.UUID) iter.Seq2[*wirev1.Live, error] {
	return func(yield func(*wirev1.Live, error) bool) {
		c, err := r.js.OrderedConsumer(ctx, LiveStream, jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{LiveSubject(namespace, run)}, DeliverPolicy: jetstream.DeliverAllPolicy, InactiveThreshold: time.Minute,
		})
		if err != nil {
			yield(nil, fmt.Errorf("read live log: %w", err))
			return
		}
		msgs, err := c.Messages()
		if err != nil {
			yield(nil, fmt.Errorf("read live log: %w", err))
			return
		}
		defer msgs.Stop()
		stop := context.AfterFunc(ctx, msgs.Stop)
		defer stop()
		for {
			m, err := msgs.Next()
			if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
				return
			}
			if err != nil {
				yield(nil, fmt.Errorf("read live log: %w", err))
				return
			}
			l := new(wirev1.Live)
			if proto.Unmarshal(m.Data(), l) != nil {
				continue
			}
			if !yield(l, nil) || l.End {
				return
			}
		}
	}
}

// Progress returns what the handler of a run last said of its work. False where it said nothing that is still kept, or its last word was of its output.
func (r *LiveReader) Progress(ctx context.Context, namespace string, run uuid.UUID) (*wirev1.Live, bool) {
	s, err := r.js.Stream(ctx, LiveStream)
	if err != nil {
		return nil, false
	}
	m, err := s.GetLastMsgForSubject(ctx, progressSubject(namespace, run))
	if err != nil {
		return nil, false
	}
	l := new(wirev1.Live)
	return l, proto.Unmarshal(m.Data, l) == nil
}
