package measure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/bench/scale"
	"github.com/waterclock-io/waterclock/bench/world"
	"github.com/waterclock-io/waterclock/executor"
	"github.com/waterclock-io/waterclock/internal/dbclock"
	"github.com/waterclock-io/waterclock/planner"
	"github.com/waterclock-io/waterclock/status"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/store/crdb"
	"github.com/waterclock-io/waterclock/streams"
)

// statusKept is how long the recorder leaves a report in STATUS; its own constant is not exported.
const statusKept = 150

// patience is how long the roles may take for a few thousand runs on a busy machine.
const patience = 2 * time.Minute

// Streams measures what a number of runs leave in RUNS and STATUS: planner, recorder and one executor on an embedded NATS server and an empty database.
// The runs wait in RUNS until all are there; then they are worked on.
func Streams(ctx context.Context, dsn, dir string, runs, payload int) (_ scale.Messages, publish float64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the runs did not come to their end"))
	defer cancel()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	m := scale.Messages{Runs: runs, StatusKept: statusKept}
	s, err := crdb.Open(ctx, dsn, crdb.Options{Log: log})
	if err != nil {
		return m, 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	server, err := streams.StartEmbedded(streams.EmbeddedOptions{Dir: filepath.Join(dir, "nats"), Listen: "127.0.0.1:0", Logger: log})
	if err != nil {
		return m, 0, err
	}
	defer server.Stop()
	nc, err := streams.Connect(streams.Dial{Embedded: server, Name: "scale", Logger: log})
	if err != nil {
		return m, 0, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return m, 0, err
	}
	limits := streams.Limits{Replicas: 1}
	if _, err := streams.Ensure(ctx, js, s, limits, log); err != nil {
		return m, 0, err
	}
	b := &bench{store: s, jobs: runs, facts: &scale.Facts{Payload: payload}, due: time.Now().Add(time.Second)}
	var subs []store.Submission
	for range runs {
		sub, err := b.newJob(b.due)
		if err != nil {
			return m, 0, err
		}
		subs = append(subs, sub)
	}
	if _, err := s.Submit(ctx, subs); err != nil {
		return m, 0, err
	}
	if publish, err = sends(ctx, js, payload+300); err != nil {
		return m, 0, err
	}
	gate := make(chan struct{})
	rec, err := status.New(status.Config{Store: s, Conn: nc, Logger: log})
	if err != nil {
		return m, 0, err
	}
	if err := rec.Start(ctx); err != nil {
		return m, 0, err
	}
	defer rec.Stop()
	ex, err := executor.New(executor.Config{
		Conn: nc, Logger: log, Queues: []streams.Queue{{Namespace: "_", Name: "default"}}, Handlers: map[string]executor.Handler{"send-mail": func(ctx context.Context, _ *executor.Run) error {
			select {
			case <-gate:
			case <-ctx.Done():
			}
			return nil
		}},
	})
	if err != nil {
		return m, 0, err
	}
	if err := ex.Start(ctx); err != nil {
		return m, 0, err
	}
	defer ex.Stop(ctx)
	clock := dbclock.New(s, log)
	if err := clock.Start(ctx); err != nil {
		return m, 0, err
	}
	defer clock.Stop()
	p, err := planner.New(planner.Config{Store: s, Clock: clock, Conn: nc, Limits: limits, Logger: log})
	if err != nil {
		return m, 0, err
	}
	if err := p.Start(ctx); err != nil {
		return m, 0, err
	}
	defer p.Stop()
	first, err := await(ctx, js, "RUNS", func(i *jetstream.StreamInfo) bool { return i.State.LastSeq >= uint64(runs) }) //nolint:gosec // few
	if err != nil {
		return m, 0, err
	}
	m.RunBytes = float64(first.State.Bytes) / float64(first.State.Msgs)
	started, err := await(ctx, js, "STATUS", func(*jetstream.StreamInfo) bool { return true })
	if err != nil {
		return m, 0, err
	}
	close(gate)
	if _, err := await(ctx, js, "RUNS", func(i *jetstream.StreamInfo) bool { return i.State.Msgs == 0 }); err != nil {
		return m, 0, err
	}
	end, err := await(ctx, js, "STATUS", func(*jetstream.StreamInfo) bool { return true })
	if err != nil {
		return m, 0, err
	}
	// What was said of the few that had begun before is left out: a run that ends at once is spoken of once.
	m.StatusBytes = float64(end.State.Bytes-started.State.Bytes) / float64(runs)
	m.StatusMessages = float64(end.State.LastSeq-started.State.LastSeq) / float64(runs)
	return m, publish, nil
}

// sends times publishes whose answers are not waited for, as a planner's, into a stream like RUNS, in microseconds each.
func sends(ctx context.Context, js jetstream.JetStream, bytes int) (float64, error) {
	const stream, many = "SENDS", 400
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: stream, Subjects: []string{"sends.>"}, Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew, MaxMsgsPerSubject: 1, DiscardNewPerSubject: true,
	})
	if err != nil {
		return 0, err
	}
	body, n := make([]byte, bytes), 0
	each, err := times(func() error {
		for range many {
			n++
			if _, err := js.PublishAsync(fmt.Sprintf("sends.%d", n), body); err != nil {
				return err
			}
		}
		select {
		case <-js.PublishAsyncComplete():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	return each / many, errors.Join(err, js.DeleteStream(ctx, stream))
}

// await polls the stream whose name begins so until it is as wanted.
func await(ctx context.Context, js jetstream.JetStream, prefix string, done func(*jetstream.StreamInfo) bool) (*jetstream.StreamInfo, error) {
	for {
		for info := range js.ListStreams(ctx).Info() {
			if strings.HasPrefix(info.Config.Name, prefix) && done(info) {
				return info, nil
			}
		}
		if err := world.Wait(ctx, 100*time.Millisecond); err != nil {
			return nil, fmt.Errorf("%s: %w", prefix, err)
		}
	}
}
