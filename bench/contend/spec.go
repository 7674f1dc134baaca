package contend

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waterclock-io/waterclock/executor"
	"github.com/waterclock-io/waterclock/job"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/streams"
)

// workQueue keeps the jobs away from the executor that a server has.
const workQueue, workKind = "bench", "bench"

var levels = [Levels]waterclockv1.Priority{
	waterclockv1.Priority_PRIORITY_CRITICAL, waterclockv1.Priority_PRIORITY_HIGH, waterclockv1.Priority_PRIORITY_NORMAL, waterclockv1.Priority_PRIORITY_LOW,
}

// request asks Waterclock for a job.
func request(j Job) *waterclockv1.SubmitJobRequest {
	spec := &waterclockv1.JobSpec{
		Kind: workKind, Queue: workQueue, Input: &waterclockv1.JobSpec_Payload{Payload: binary.BigEndian.AppendUint64(nil, j.Number)},
	}
	if j.Level != Ordinary {
		spec.Priority = levels[j.Level]
	}
	switch {
	case j.Every > 0:
		spec.Schedule = &waterclockv1.Schedule{
			Kind:  &waterclockv1.Schedule_Every{Every: &waterclockv1.Every{Period: durationpb.New(j.Every), Anchor: timestamppb.New(j.Due)}},
			Start: timestamppb.New(j.Due), End: timestamppb.New(j.Until),
		}
	case !j.Due.IsZero():
		spec.Schedule = &waterclockv1.Schedule{Kind: &waterclockv1.Schedule_Once{Once: &waterclockv1.Once{At: timestamppb.New(j.Due)}}}
	}
	return &waterclockv1.SubmitJobRequest{Spec: spec}
}

// startExecutor starts a worker in Go at its default settings.
func startExecutor(ctx context.Context, nc *nats.Conn, metrics *executor.Metrics, started Started) (*executor.Executor, error) {
	e, err := executor.New(executor.Config{
		Conn: nc, Queues: []streams.Queue{{Namespace: job.DefaultNamespace, Name: workQueue}}, Logger: logger(), Metrics: metrics,
		Handlers: map[string]executor.Handler{workKind: func(_ context.Context, run *executor.Run) error {
			if len(run.Payload) != 8 {
				return executor.Fatal(fmt.Errorf("a payload of %d bytes", len(run.Payload)))
			}
			started(binary.BigEndian.Uint64(run.Payload), run.ScheduledAt)
			return nil
		}},
	})
	if err != nil {
		return nil, err
	}
	return e, e.Start(ctx)
}

// logger shows what is wrong and nothing else.
func logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
