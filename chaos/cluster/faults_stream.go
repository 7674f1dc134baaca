package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/streams"
)

// healLimit is how long the end of a fault may be asked for where NATS does not answer at once.
const healLimit = 30 * time.Second

// streamFaults hit what NATS keeps, through its own API.
func (c *Cluster) streamFaults() []fault.Fault {
	hit := c.nats.nodes[0].target
	on := func(kind string, bring fault.Bringer) fault.Fault {
		return newFault(kind, fault.Stream, hit, bring)
	}
	out := []fault.Fault{
		on("runs stream deleted", func(ctx context.Context, _ *rand.Rand) error { return c.deleteStream(ctx, streams.RunsStream) }),
		on("status stream deleted", func(ctx context.Context, _ *rand.Rand) error { return c.deleteStream(ctx, streams.StatusStream) }),
		on("consumer deleted", c.deleteConsumer),
	}
	out[1].Loses = true
	for _, name := range []string{streams.RunsStream, streams.StatusStream} {
		out = append(out, on("stream full", func(ctx context.Context, rng *rand.Rand) error { return c.fillStream(ctx, rng, name) }))
	}
	return out
}

// streamName is the stream's own name: that of RUNS changes with its generation. ErrNotLanded where there is none at the moment.
func (c *Cluster) streamName(ctx context.Context, name string) (string, error) {
	if name != streams.RunsStream {
		return name, nil
	}
	runs, err := streams.Discover(ctx, c.nats.js)
	if errors.Is(err, streams.ErrNoRuns) {
		return "", fault.ErrNotLanded
	}
	return runs.Name, err
}

// persist asks NATS until it answers: it may be without a leader for some seconds. What NATS says no to is not asked again.
func persist(ctx context.Context, ask func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, healLimit, fmt.Errorf("NATS does not answer within %s", healLimit))
	defer cancel()
	again := func(err error) bool {
		var api *jetstream.APIError
		return !errors.Is(err, fault.ErrNotLanded) && (!errors.As(err, &api) || api.Code == http.StatusServiceUnavailable)
	}
	return fault.Retry(ctx, askLimit, 200*time.Millisecond, again, ask)
}

// gone says that what was to be deleted is not there, and whether that is this fault's doing: an answer to an earlier try may have been lost.
func gone(tried bool) error {
	if tried {
		return nil
	}
	return fault.ErrNotLanded
}

func (c *Cluster) deleteStream(ctx context.Context, stream string) error {
	tried := ""
	return persist(ctx, func(ctx context.Context) error {
		name, err := c.streamName(ctx, stream)
		if err != nil {
			return err
		}
		if tried != "" && tried != name {
			return nil // it was deleted, and has a successor
		}
		if err = c.nats.js.DeleteStream(ctx, name); errors.Is(err, jetstream.ErrStreamNotFound) {
			return gone(tried != "")
		}
		tried = name
		return err
	})
}

// deleteConsumer deletes one of the consumers of RUNS, or the recorders'.
func (c *Cluster) deleteConsumer(ctx context.Context, rng *rand.Rand) error {
	draw, tried := rng.Uint32(), false
	return persist(ctx, func(ctx context.Context) error {
		runs, err := c.streamName(ctx, streams.RunsStream)
		if err != nil {
			return err
		}
		s, err := c.nats.js.Stream(ctx, runs)
		if err != nil {
			return err
		}
		list := s.ConsumerNames(ctx)
		var names []string
		for name := range list.Name() {
			names = append(names, name)
		}
		if err := list.Err(); err != nil {
			return err
		}
		slices.Sort(names)
		stream, name := streams.StatusStream, streams.RecorderConsumer
		if i := int(draw % uint32(len(names)+1)); i < len(names) { //nolint:gosec // few
			stream, name = runs, names[i]
		}
		err = c.nats.js.DeleteConsumer(ctx, stream, name)
		if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
			return gone(tried)
		}
		tried = true
		return err
	})
}

// fullBytes is a limit that any stream with a message in it has reached, and that a stream without takes no message under.
const fullBytes = 1

// fillStream takes a stream's room away for a while. A process that starts meanwhile puts the limits right by itself, and the fault is over earlier.
func (c *Cluster) fillStream(ctx context.Context, rng *rand.Rand, stream string) error {
	var name string
	var size int64
	resize := func(to func(jetstream.StreamConfig) (int64, bool)) func(context.Context) error {
		return func(ctx context.Context) error {
			s, err := c.nats.js.Stream(ctx, name)
			if err != nil {
				return err
			}
			cfg := s.CachedInfo().Config
			bytes, change := to(cfg)
			if !change {
				return nil
			}
			cfg.MaxBytes = bytes
			_, err = c.nats.js.UpdateStream(ctx, cfg)
			return err
		}
	}
	shrink := resize(func(cfg jetstream.StreamConfig) (int64, bool) { size = cfg.MaxBytes; return fullBytes, true })
	restore := resize(func(cfg jetstream.StreamConfig) (int64, bool) { return size, cfg.MaxBytes == fullBytes })
	err := persist(ctx, func(ctx context.Context) (err error) {
		if name, err = c.streamName(ctx, stream); err != nil {
			return err
		}
		return shrink(ctx)
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fault.ErrNotLanded
	}
	if err != nil {
		return err
	}
	waited := fault.Wait(ctx, fault.Between(rng, time.Second, 5*time.Second))
	if err = persist(context.WithoutCancel(ctx), restore); errors.Is(err, jetstream.ErrStreamNotFound) {
		err = nil // it was made anew, as large as ever
	}
	return errors.Join(waited, err)
}
