package contend

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"time"
)

const (
	riverSettings = "fetch cooldown 1 ms, poll interval 20 ms, 500 workers, pool of 32 connections, batches by InsertMany, else its defaults; submits in process"

	riverCooldown = time.Millisecond
	riverPoll     = 20 * time.Millisecond
	riverWorkers  = 500
	riverConns    = 32
)

// riverPeer is River with a client that inserts and, from Work on, works.
type riverPeer struct {
	closers
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

type riverArgs struct {
	Number uint64 `json:"number"`
}

func (riverArgs) Kind() string { return workKind }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	started Started
}

func (w *riverWorker) Work(_ context.Context, j *river.Job[riverArgs]) error {
	w.started(j.Args.Number, j.ScheduledAt)
	return nil
}

func openRiver(ctx context.Context, env Env) (_ Contender, err error) {
	cfg, err := pgxpool.ParseConfig(env.PostgresDSN)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = riverConns
	r := &riverPeer{}
	if r.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, err
	}
	r.add(func(context.Context) error { r.pool.Close(); return nil })
	migrator, err := rivermigrate.New(riverpgxv5.New(r.pool), &rivermigrate.Config{Logger: logger()})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err == nil {
		r.client, err = river.NewClient(riverpgxv5.New(r.pool), &river.Config{Logger: logger()})
	}
	if err != nil {
		r.pool.Close()
		return nil, err
	}
	return r, nil
}

func riverOptions(j Job) *river.InsertOpts {
	return &river.InsertOpts{ScheduledAt: j.Due, Priority: j.Level + 1}
}

func (r *riverPeer) Submit(ctx context.Context, j Job) error {
	_, err := r.client.Insert(ctx, riverArgs{j.Number}, riverOptions(j))
	return err
}

func (r *riverPeer) SubmitMany(ctx context.Context, jobs []Job) error {
	params := make([]river.InsertManyParams, len(jobs))
	for i := range jobs {
		params[i] = river.InsertManyParams{Args: riverArgs{jobs[i].Number}, InsertOpts: riverOptions(jobs[i])}
	}
	_, err := r.client.InsertMany(ctx, params)
	return err
}

// Work puts a client that works in the place of the one that only inserts.
func (r *riverPeer) Work(ctx context.Context, started Started) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{started: started})
	client, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		Logger: logger(), Workers: workers, FetchCooldown: riverCooldown, FetchPollInterval: riverPoll,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
	})
	if err != nil {
		return err
	}
	r.client = client
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	r.add(func(ctx context.Context) error {
		if err := client.StopAndCancel(ctx); err != nil {
			return fmt.Errorf("stop River: %w", err)
		}
		return nil
	})
	return nil
}

func (r *riverPeer) Done(ctx context.Context) (done bool, err error) {
	err = r.pool.QueryRow(ctx, "SELECT NOT EXISTS (SELECT FROM river_job WHERE state <> 'completed')").Scan(&done)
	return done, err
}

func (r *riverPeer) Close(ctx context.Context) error { return r.close(ctx) }
