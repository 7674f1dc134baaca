package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waterclock-io/waterclock/executor"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/streams"
)

// start is the start of a run as the worker sees it, by the wall clock that the server has too.
type start struct {
	number    uint64
	scheduled time.Time
	at        time.Time
}

// worker is an executor in Go with a queue of its own.
type worker struct {
	nc     *nats.Conn
	exec   *executor.Executor
	starts chan start
}

const workerQueue = "bench"

func startWorker(ctx context.Context, url string) (*worker, error) {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	w := &worker{starts: make(chan start, 10_000)}
	var err error
	w.nc, err = streams.Connect(streams.Dial{URL: url, Name: "bench", Logger: log})
	if err != nil {
		return nil, err
	}
	w.exec, err = executor.New(executor.Config{
		Conn: w.nc, Queues: []streams.Queue{{Namespace: job.DefaultNamespace, Name: workerQueue}}, Slots: 16, Logger: log,
		Handlers: map[string]executor.Handler{"bench": func(_ context.Context, run *executor.Run) error {
			now := time.Now()
			if len(run.Payload) != 8 {
				return executor.Fatal(fmt.Errorf("payload of %d bytes", len(run.Payload)))
			}
			w.starts <- start{binary.BigEndian.Uint64(run.Payload), run.ScheduledAt, now}
			return nil
		}},
	})
	if err == nil {
		err = w.exec.Start(ctx)
	}
	if err != nil {
		w.nc.Close()
		return nil, fmt.Errorf("start the worker: %w", err)
	}
	return w, nil
}

func (w *worker) stop() {
	w.exec.Stop(context.Background())
	w.nc.Close()
}

// next returns the next start.
func (w *worker) next(ctx context.Context) (start, error) {
	select {
	case s := <-w.starts:
		return s, nil
	case <-ctx.Done():
		return start{}, context.Cause(ctx)
	case <-time.After(30 * time.Second):
		return start{}, fmt.Errorf("no run started for 30s")
	}
}

func payload(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }
