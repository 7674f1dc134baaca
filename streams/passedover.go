package streams

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// PassedOver returns up to a number of messages of a work queue that lie where their consumer has everything acknowledged, oldest first. There are some after a
// server was killed that had noted an acknowledgement, and not that the message went with it. Nobody is given them any more, and they stay for ever. One whose
// acknowledgement is under way this moment may be among them.
func PassedOver(ctx context.Context, s jetstream.Stream, filter string, floor uint64, most int) ([]*jetstream.RawStreamMsg, error) {
	var found []*jetstream.RawStreamMsg
	for seq := uint64(1); seq <= floor && len(found) < most; seq++ {
		m, err := s.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(filter)) // the first from there on
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read message %d of %s: %w", seq, s.CachedInfo().Config.Name, err)
		}
		if m.Sequence > floor {
			break
		}
		found = append(found, m)
		seq = m.Sequence
	}
	return found, nil
}

// sweepMost bounds what one sweep takes out of a lane.
const sweepMost = 200

// SweepRuns deletes hand-overs that were passed over, and returns how many. Runs that still are as they were handed out come back when their message is found gone.
func SweepRuns(ctx context.Context, js jetstream.JetStream, r Runs) (int, error) {
	s, err := js.Stream(ctx, r.Name)
	if err != nil {
		return 0, fmt.Errorf("look up %s: %w", r.Name, err)
	}
	var lanes []*jetstream.ConsumerInfo
	known := uint64(0)
	list := s.ListConsumers(ctx)
	for c := range list.Info() {
		lanes = append(lanes, c)
		known += c.NumPending + uint64(c.NumAckPending) //nolint:gosec // a count
	}
	if err := list.Err(); err != nil {
		return 0, fmt.Errorf("list consumers of %s: %w", r.Name, err)
	}
	if s.CachedInfo().State.Msgs <= known {
		return 0, nil
	}
	swept := 0
	for _, c := range lanes {
		left, err := PassedOver(ctx, s, c.Config.FilterSubject, c.AckFloor.Stream, sweepMost)
		if err != nil {
			return swept, err
		}
		for _, m := range left {
			if err := DeleteRun(ctx, js, r, m.Sequence); err != nil {
				return swept, err
			}
			swept++
		}
	}
	return swept, nil
}
