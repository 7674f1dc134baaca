package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/store"
)

// What no executor has got can be taken out of RUNS and come back at once; what one may have got, only when nobody speaks of it.

// Fate is what became of a message that was to be taken out.
type Fate int

// What became of it.
const (
	Absent    Fate = iota // it is not there: not stored yet, or done with
	Delivered             // an executor has got it; it was left
	TakenOut              // it is deleted, and no executor has got it
	Doubtful              // it is deleted, and an executor may have got it a moment before
)

// DeleteUndelivered deletes the message of a hand-over that no executor has got yet. JetStream does not do both in one, the look and the deletion: what was
// delivered in between is found by a second look, and so is what a consumer that is no more may have delivered. With an error nothing was deleted.
func DeleteUndelivered(ctx context.Context, js jetstream.JetStream, r Runs, t store.Timer) (Fate, error) {
	lane := Lane{Namespace: t.QueueNamespace, Queue: t.Queue, Priority: t.Priority}
	m, err := findRun(ctx, js, r, RunSubject(lane, t.RunID, t.Dispatch))
	if err != nil || m == nil {
		return Absent, err
	}
	if before, err := findConsumer(ctx, js, r.Name, lane); err == nil && before.Delivered.Stream >= m.Sequence {
		return Delivered, nil
	} else if err != nil && !errors.Is(err, errNoConsumer) {
		return Absent, err
	}
	if err := DeleteRun(ctx, js, r, m.Sequence); err != nil {
		return Absent, err
	}
	after, err := lookAgain(ctx, js, r, lane)
	if err != nil || after.Created.After(m.Time) || after.Delivered.Stream >= m.Sequence {
		return Doubtful, nil //nolint:nilerr // that is what it means
	}
	return TakenOut, nil
}

// applyPause is how long a server that keeps up may take to apply what the leader of a stream has stored.
const applyPause = 100 * time.Millisecond

var errLags = errors.New("the server that leads the consumer lags behind the leader of the stream")

// lookAgain looks at the consumer of a lane after a deletion. Another server than the leader of the stream may lead it, and deliver from its own copy until the
// deletion has come there.
func lookAgain(ctx context.Context, js jetstream.JetStream, r Runs, l Lane) (*jetstream.ConsumerInfo, error) {
	for first := true; ; first = false {
		s, err := js.Stream(ctx, r.Name)
		if err != nil {
			return nil, fmt.Errorf("look up %s: %w", r.Name, err)
		}
		info, err := s.Info(ctx) // what the handle has cached may be older
		if err != nil {
			return nil, fmt.Errorf("look up %s: %w", r.Name, err)
		}
		c, err := findConsumer(ctx, js, r.Name, l)
		switch stream := info.Cluster; {
		case err != nil:
			return nil, err
		case stream == nil || c.Cluster == nil || c.Cluster.Leader == stream.Leader:
			return c, nil
		case !first && keepsUp(stream, c.Cluster.Leader):
			return c, nil
		case !first:
			return nil, errLags
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(applyPause):
		}
	}
}

// keepsUp tells whether a server has what the leader of a stream has stored.
func keepsUp(stream *jetstream.ClusterInfo, server string) bool {
	return slices.ContainsFunc(stream.Replicas, func(p *jetstream.PeerInfo) bool { return p.Name == server && p.Current && !p.Offline && p.Lag == 0 })
}
