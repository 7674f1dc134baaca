// Package submit is the one way in for jobs: it checks what is asked for, makes the job and its first timer, stores many in one transaction, and tells
// planners of what is due soon.
//
// The Connect handlers and the NATS submit call it. It does not know how a request came in or how its answer goes out, and it never waits for a run.
package submit

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/api/convert"
	"github.com/waterclock-io/waterclock/internal/failpoint"
	"github.com/waterclock-io/waterclock/job"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
)

// WakeWithin is how soon a run must be due for planners to be told of it; later ones they find by themselves.
const WakeWithin = 5 * time.Second

// Store is what the service asks of SQL.
type Store interface {
	store.Submitter
	Traits() store.Traits
	SharedQueues(ctx context.Context) ([]string, error)
}

// Clock gives an estimate of database time without asking the database each time.
type Clock interface {
	Now() time.Time
}

// Waker tells planners of rows that are due soon: best effort, without blocking.
type Waker interface {
	Wake(rows []*store.DueRow)
}

// Request asks for one job.
type Request struct {
	Namespace string
	Message   *waterclockv1.SubmitJobRequest
	// ID is that of the job where the way in has made one that a repetition finds again; zero: by idempotency key, else new.
	ID uuid.UUID
}

// Result is the fate of a request. Err is nil, fielderr.FieldErrors, ErrBusy, or one of the store's.
type Result struct {
	Job *job.Job
	// Timer is that of the first run; nil where the schedule has none to come, and where the job existed.
	Timer    *store.Timer
	Existed  bool
	Warnings []string
	Err      error
}

// Config is what a Service needs.
type Config struct {
	Store     Store
	Clock     Clock
	Waker     Waker
	Validator *convert.Validator
	// MaxWaiting is how many submits may wait for the store, 10,000 where zero; one more gets ErrBusy.
	MaxWaiting int
	// Metrics may be nil.
	Metrics *Metrics
}

// Service stores jobs. Safe for concurrent use.
type Service struct {
	cfg    Config
	traits store.Traits
	queues *Queues
	group  *group
}

// New returns a Service.
func New(cfg Config) *Service {
	if cfg.MaxWaiting <= 0 {
		cfg.MaxWaiting = 10_000
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	return &Service{
		cfg: cfg, traits: cfg.Store.Traits(), queues: NewQueues(cfg.Store, cfg.Clock),
		group: newGroup(cfg.Store, cfg.MaxWaiting),
	}
}

// Queues tells which queues are shared; the update of a job asks it too.
func (s *Service) Queues() *Queues { return s.queues }

// Stop refuses further submits and waits for those under way. It may be called more than once.
func (s *Service) Stop() { s.group.stop() }

// Submit stores up to MaxBatch jobs and returns after the commit. Results are in the order of the requests; requests that are refused do not hold up the
// others. Where ctx ends first the results say so, and the jobs may be stored all the same.
func (s *Service) Submit(ctx context.Context, reqs []Request) []Result {
	results := make([]Result, len(reqs))
	defer s.cfg.Metrics.count(results)
	subs := make([]store.Submission, 0, len(reqs))
	at := make([]int, 0, len(reqs)) // index of the request of each submission
	now := s.cfg.Clock.Now()
	for i := range reqs {
		sub, warnings, err := s.prepare(ctx, &reqs[i], now)
		results[i].Warnings, results[i].Err = warnings, err
		if err == nil {
			subs = append(subs, sub)
			at = append(at, i)
		}
	}
	if len(subs) == 0 {
		return results
	}
	failpoint.Here(failpoint.SubmitPrepared)
	stored, err := s.group.submit(ctx, subs)
	var soon []*store.DueRow
	for n, i := range at {
		res := &results[i]
		if err != nil {
			res.Err = err
			continue
		}
		res.Job, res.Existed, res.Err = stored[n].Job, stored[n].Existed, stored[n].Err
		if keyed := reqs[i].ID != uuid.Nil || reqs[i].Message.GetIdempotencyKey() != ""; !keyed {
			res.Existed = false // a new id can be found only by our own repetition of a commit whose answer was lost
		}
		if res.Err != nil || res.Existed {
			continue
		}
		res.Timer = subs[n].Timer
		if res.Timer != nil && DueSoon(res.Timer, now) {
			soon = append(soon, Row(subs[n].Job, *res.Timer))
		}
	}
	if len(soon) > 0 {
		failpoint.Here(failpoint.SubmitWaking)
		s.cfg.Waker.Wake(soon)
		failpoint.Here(failpoint.SubmitWoken)
	}
	return results
}

// DueSoon tells whether planners should be told of a timer.
func DueSoon(t *store.Timer, now time.Time) bool {
	return t.Step == job.StepDue && !t.DueAt.After(now.Add(WakeWithin))
}

// Row makes the row that planners are told. The job must have its payload.
func Row(j *job.Job, t store.Timer) *store.DueRow {
	return &store.DueRow{Timer: t, Name: j.Name, Spec: j.Spec, Payload: j.Payload, JobCreatedAt: j.CreatedAt}
}

// prepare makes the job and its first timer.
func (s *Service) prepare(ctx context.Context, r *Request, now time.Time) (store.Submission, []string, error) {
	if err := s.cfg.Validator.Check(r.Message); err != nil {
		return store.Submission{}, nil, err
	}
	spec := r.Message.GetSpec()
	d, err := convert.Define(spec, convert.Context{Now: now})
	if err != nil {
		return store.Submission{}, nil, fmt.Errorf("submit: %w", err)
	}
	shared, err := s.queues.Shared(ctx, d.Queue)
	if err != nil {
		return store.Submission{}, nil, err
	}
	now = now.UTC().Truncate(time.Microsecond)
	j := &job.Job{
		ID: s.jobID(r), Namespace: r.Namespace, Version: 1, State: job.Active, BodyHash: convert.BodyHash(spec), CreatedAt: now, UpdatedAt: now,
	}
	j.Shard = job.ShardOf(j.ID, s.traits.Shards)
	d.Put(j, shared)
	sub := store.Submission{Job: j}
	if occ, ok := convert.FirstFrom(j.Spec.Schedule, now); ok {
		t := store.NewTimer(j, occ, now)
		j.DueAt = t.DueAt
		sub.Timer = &t
	} else {
		j.State = job.Completed
	}
	return sub, d.Warnings, nil
}

func (s *Service) jobID(r *Request) uuid.UUID {
	if key := r.Message.GetIdempotencyKey(); key != "" {
		return job.KeyedID(r.Namespace, key)
	}
	if r.ID != uuid.Nil {
		return r.ID
	}
	return s.traits.NewJobID()
}
