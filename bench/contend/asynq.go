package contend

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"
)

const (
	asynqSettings = "append-only file synced every second, 128 workers, checks for delayed tasks and for new ones every 20 ms, strict priority, " +
		"batches as single submits by 64 goroutines, else its defaults; submits in process"

	asynqWorkers = 128
	asynqCheck   = 20 * time.Millisecond
	asynqClients = 64
)

// asynqPeer is Asynq with one client and, from Work on, one server. Its priorities are queues.
type asynqPeer struct {
	closers
	redis     asynq.RedisClientOpt
	client    *asynq.Client
	inspector *asynq.Inspector
}

var asynqQueues = [Levels]string{"critical", "high", "default", "low"}

func openAsynq(_ context.Context, env Env) (Contender, error) {
	a := &asynqPeer{redis: asynq.RedisClientOpt{Addr: env.RedisAddr, PoolSize: asynqWorkers}}
	a.client, a.inspector = asynq.NewClient(a.redis), asynq.NewInspector(a.redis)
	a.add(func(context.Context) error { return a.client.Close() })
	a.add(func(context.Context) error { return a.inspector.Close() })
	return a, a.client.Ping()
}

func (a *asynqPeer) Submit(ctx context.Context, j Job) error {
	opts := []asynq.Option{asynq.Queue(asynqQueues[j.Level])}
	if !j.Due.IsZero() {
		opts = append(opts, asynq.ProcessAt(j.Due))
	}
	_, err := a.client.EnqueueContext(ctx, asynq.NewTask(workKind, binary.BigEndian.AppendUint64(nil, j.Number)), opts...)
	return err
}

// SubmitMany submits one by one, since Asynq has no other way.
func (a *asynqPeer) SubmitMany(ctx context.Context, jobs []Job) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(asynqClients)
	for _, j := range jobs {
		g.Go(func() error { return a.Submit(ctx, j) })
	}
	return g.Wait()
}

func (a *asynqPeer) Work(_ context.Context, started Started) error {
	queues := make(map[string]int, Levels)
	for i, q := range asynqQueues {
		queues[q] = Levels - i
	}
	srv := asynq.NewServer(a.redis, asynq.Config{
		Concurrency: asynqWorkers, TaskCheckInterval: asynqCheck, DelayedTaskCheckInterval: asynqCheck, Queues: queues, StrictPriority: true,
		LogLevel: asynq.WarnLevel,
	})
	err := srv.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		if len(t.Payload()) != 8 {
			return fmt.Errorf("a payload of %d bytes", len(t.Payload()))
		}
		started(binary.BigEndian.Uint64(t.Payload()), time.Time{})
		return nil
	}))
	if err != nil {
		return err
	}
	a.add(func(context.Context) error { srv.Shutdown(); return nil })
	return nil
}

func (a *asynqPeer) Done(context.Context) (bool, error) {
	queues, err := a.inspector.Queues()
	if err != nil {
		return false, err
	}
	for _, q := range queues {
		info, err := a.inspector.GetQueueInfo(q)
		if err != nil {
			return false, err
		}
		if info.Size > 0 {
			return false, nil
		}
	}
	return true, nil
}

func (a *asynqPeer) Close(ctx context.Context) error { return a.close(ctx) }
