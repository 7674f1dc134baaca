package natssubmit

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/streams"
)

// lookBackEvery is how often messages are looked for that the consumer has passed over.
const lookBackEvery = 15 * time.Second

// passedOver returns messages that nobody is given any more. They are stored as if they were delivered once more, which finds their jobs.
func passedOver(ctx context.Context, stream jetstream.Stream, consumer jetstream.Consumer) ([]message, error) {
	info, err := consumer.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("look up consumer: %w", err)
	}
	left, err := streams.PassedOver(ctx, stream, ">", info.AckFloor.Stream, maxPull)
	if err != nil {
		return nil, fmt.Errorf("look for messages that were passed over: %w", err)
	}
	found := make([]message, len(left))
	for i, m := range left {
		found[i] = &leftover{ctx: ctx, stream: stream, raw: m}
	}
	return found, nil
}

// leftover is a message that was passed over. It is under nobody's lease: what is not stored now is found at the next look.
type leftover struct {
	ctx    context.Context //nolint:containedctx // the interface of a delivery has none
	stream jetstream.Stream
	raw    *jetstream.RawStreamMsg
}

func (l *leftover) Subject() string      { return l.raw.Subject }
func (l *leftover) Headers() nats.Header { return l.raw.Header }
func (l *leftover) Data() []byte         { return l.raw.Data }

func (l *leftover) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Stream: l.raw.Sequence}, Timestamp: l.raw.Time}, nil
}

func (l *leftover) Ack() error                       { return l.stream.DeleteMsg(l.ctx, l.raw.Sequence) } //nolint:wrapcheck // as that of a delivery
func (l *leftover) Nak() error                       { return nil }
func (l *leftover) NakWithDelay(time.Duration) error { return nil }
func (l *leftover) InProgress() error                { return nil }
