package streams

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// consumer is the one consumer of a lane, as it is now.
//
// A consumer that is made anew, because it was deleted or idle for long, knows nothing of what the one before had delivered: it delivers all of it again, as if for
// the first time. So each has a name of its own, which every delivery carries, and whoever pulls from it knows when it was made: what was stored before that may
// have been delivered, and somebody may be at work on it.
type consumer struct {
	name    string
	created time.Time // server clock
}

// errNoConsumer: nobody serves the lane now.
var errNoConsumer = errors.New("the lane has no consumer")

// consumerTries is how often a consumer is looked for that somebody else is making.
const consumerTries = 5

// codeNotUnique is the server's error where a consumer with this filter exists.
const codeNotUnique = 10100

// findConsumer looks for the consumer of a lane. Its information is that of the moment.
func findConsumer(ctx context.Context, js jetstream.JetStream, stream string, l Lane) (*jetstream.ConsumerInfo, error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", stream, err)
	}
	names := s.ConsumerNames(ctx)
	found := ""
	for name := range names.Name() {
		if strings.HasPrefix(name, l.consumerPrefix()) {
			found = name
		}
	}
	if err := names.Err(); err != nil {
		return nil, fmt.Errorf("list consumers of %s: %w", stream, err)
	}
	if found == "" {
		return nil, errNoConsumer
	}
	c, err := s.Consumer(ctx, found)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, errNoConsumer
	}
	if err != nil {
		return nil, fmt.Errorf("look up consumer of lane %s: %w", l, err)
	}
	return c.CachedInfo(), nil
}

// EnsureConsumer makes the consumer of a lane where there is none. A planner does so before it hands out the first run of a lane: what is stored before its consumer
// is made is taken for something that another may have delivered.
func EnsureConsumer(ctx context.Context, js jetstream.JetStream, r Runs, l Lane, ackWait time.Duration) error {
	_, err := ensureConsumer(ctx, js, r.Name, l, ackWait, false)
	return err
}

// ensureConsumer returns the consumer of a lane, and makes it where there is none. Whoever leases from it sets its lease.
func ensureConsumer(ctx context.Context, js jetstream.JetStream, stream string, l Lane, ackWait time.Duration, leases bool) (consumer, error) {
	// An answer is lost where the connection breaks meanwhile, and ctx may last long.
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	for try := 1; ; try++ {
		info, err := findConsumer(ctx, js, stream, l)
		if errors.Is(err, errNoConsumer) {
			info, err = makeConsumer(ctx, js, stream, l, ackWait)
		}
		if api := (*jetstream.APIError)(nil); try < consumerTries && errors.As(err, &api) && api.ErrorCode == codeNotUnique {
			continue // somebody else was quicker
		}
		if err != nil {
			return consumer{}, err
		}
		if leases && info.Config.AckWait != ackWait {
			info.Config.AckWait = ackWait
			if _, err := js.UpdateConsumer(ctx, stream, info.Config); err != nil {
				return consumer{}, fmt.Errorf("set the lease of lane %s: %w", l, err)
			}
		}
		return consumer{info.Name, info.Created}, nil
	}
}

func makeConsumer(ctx context.Context, js jetstream.JetStream, stream string, l Lane, ackWait time.Duration) (*jetstream.ConsumerInfo, error) {
	c, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: l.consumerPrefix() + rand.Text(), FilterSubject: l.filter(), AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait,
		MaxAckPending: -1, MaxDeliver: -1, MaxWaiting: 4096, InactiveThreshold: idleConsumer, DeliverPolicy: jetstream.DeliverAllPolicy,
	})
	if err != nil {
		return nil, fmt.Errorf("make consumer of lane %s on %s: %w", l, stream, err)
	}
	return c.CachedInfo(), nil
}
