// Package store is the contract of the truth: what the roles ask of SQL, and what an implementation must keep.
//
// It holds no code that talks to a database. Implementations are store/crdb (CockroachDB and PostgreSQL) and store/sqlite (the embedded default);
// store/storetest is the suite that every one of them passes, and what it tests is what this contract means.
//
// For all methods:
//   - Times are whole microseconds; implementations truncate what they are given.
//   - Each call is one transaction that is applied whole or not at all, and is repeated by the implementation on a serialization failure or deadlock;
//     functions given as arguments may so be called more than once and must depend on nothing but their arguments.
//   - Errors are the sentinels below, wrapped, or the driver's own. Where a commit's answer was lost, the error wraps ErrUnknownOutcome: the effect
//     may or may not be there. Any error that wraps ErrUnavailable means the database could not be reached or refused for want of resources: nothing was
//     done, and the call may be repeated.
//   - Where several rows are locked, jobs come before timers, and each kind is sorted by key: that is what keeps deadlocks away.
//   - Slices that are passed in are not kept after the call and not changed.
package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
)

// The errors that callers branch on.
var (
	ErrNotFound       = errors.New("not found")
	ErrNameTaken      = errors.New("name is taken by another job of the namespace")
	ErrKeyReused      = errors.New("idempotency key was used with another body")
	ErrVersion        = errors.New("version is not the one stored")
	ErrSchemaNewer    = errors.New("schema is newer than this binary")
	ErrSchemaOlder    = errors.New("schema is older than this binary; run migrate up")
	ErrUnavailable    = errors.New("store is unavailable")
	ErrUnknownOutcome = errors.New("the answer to the commit was lost")
	ErrHeld           = errors.New("data folder is held by another process")
)

// Store is everything that one implementation offers. Roles ask for the smaller interfaces below.
type Store interface {
	Clock
	Submitter
	Jobs
	History
	Planning
	Recording
	Membership
	Registry
	Retention

	// Traits tells where implementations differ in what is good for them, never in what is right.
	Traits() Traits
	// Ping answers whether the database can be reached and written to.
	Ping(ctx context.Context) error
	// Close ends all use. It waits for calls under way.
	Close() error
}

// Traits are the choices that an implementation makes for its database.
type Traits struct {
	// Shards is the number of key ranges that timers are spread over; fixed when the database is made.
	Shards int32
	// NewJobID makes ids that suit the database: random where ranges split, ascending where pages are filled in order.
	NewJobID func() uuid.UUID
	// Name of the implementation and its database for logs, such as "sqlite" or "postgres".
	Name string
}

// Clock gives the time of the database, which decides what is due.
type Clock interface {
	Now(ctx context.Context) (time.Time, error)
}

// TimerKey is the primary key of a timer; its bucket (the minute of DueAt) follows from it.
type TimerKey struct {
	Shard int32
	DueAt time.Time
	RunID uuid.UUID
}

// Compare orders keys as the table does.
func (k TimerKey) Compare(o TimerKey) int {
	if k.Shard != o.Shard {
		if k.Shard < o.Shard {
			return -1
		}
		return 1
	}
	if c := k.DueAt.Compare(o.DueAt); c != 0 {
		return c
	}
	for i := range k.RunID {
		if k.RunID[i] != o.RunID[i] {
			if k.RunID[i] < o.RunID[i] {
				return -1
			}
			return 1
		}
	}
	return 0
}

// Bucket is the minute of a timer's DueAt since 1970, the second part of its key in SQL.
func Bucket(dueAt time.Time) int64 { return dueAt.Unix() / 60 }

// Timer is the row of a run that has not ended.
type Timer struct {
	TimerKey
	JobID          uuid.UUID
	Namespace      string
	QueueNamespace string
	Queue          string
	Priority       job.Priority
	Kind           string
	Step           job.Step
	Origin         job.Origin
	ScheduledAt    time.Time // nominal
	Civil          string    // nominal, on the wall clock of the schedule's zone; empty for one-time jobs
	Attempt        int32     // the one that comes or goes on, from 1
	Version        int64     // of the job, as the row was made
	Dispatch       int64     // how often the run was handed out: the fencing token
	DispatchedAt   time.Time
	StartedAt      time.Time // of the hand-over that is under way; of one that is due, when it began before it was snoozed or given back
	Executor       string
	Generation     int64 // of the RUNS stream that the last hand-over went to
	CancelAt       time.Time
	WaitReason     string
	LastError      string // of the attempt before
	// Recurring: the schedule may have another occurrence after this one.
	Recurring bool
	// Followed: the next occurrence of the series has been made, so it is not made a second time.
	Followed bool
	// Listed rows are in the index by job. A one-time run as it was submitted is not: jobs.due_at leads to its key.
	Listed bool
}

// RunRow is a row of history: one attempt that ended. Rows are never changed.
type RunRow struct {
	JobID       uuid.UUID
	RunID       uuid.UUID
	Namespace   string
	Queue       string
	Priority    job.Priority
	Kind        string
	Origin      job.Origin
	ScheduledAt time.Time
	Civil       string
	DueAt       time.Time
	Attempt     int32
	Dispatch    int64
	Executor    string
	StartedAt   time.Time // zero where it never started
	EndedAt     time.Time
	// Step is what this attempt made of the run: terminal where Final, else StepFailed for an attempt that is followed by another.
	Step      job.Step
	Final     bool
	Reason    string
	Message   string
	Code      int32
	Result    []byte
	ResultRef string
	LogRef    string
}

// SkipRow accounts for occurrences that were not run: those from NominalAt to ThroughAt, Count in number.
type SkipRow struct {
	JobID     uuid.UUID
	NominalAt time.Time
	ThroughAt time.Time
	Count     int64
	Reason    string
	At        time.Time // when it was decided
}

// Submission is a job to store, with the timer of its first run (nil where the schedule has none).
type Submission struct {
	Job   *job.Job
	Timer *Timer
}

// SubmitResult is the fate of one submission: Err is nil, ErrKeyReused or ErrNameTaken. Existed: a job with this id and body was there; Job is that one.
type SubmitResult struct {
	Job     *job.Job
	Existed bool
	Err     error
}

// Submitter stores new jobs.
type Submitter interface {
	// Submit stores many jobs in one transaction; results are in the order of the arguments. A submission that is refused does not hold up the others.
	// Where two of one call have the same id, the first counts and the second finds it. A submission whose id exists with the same BodyHash is
	// Existed, also where that job has been deleted since.
	Submit(ctx context.Context, subs []Submission) ([]SubmitResult, error)
}

// Change is what a decision about one job writes. All of it is applied in the transaction in which the decision was made.
type Change struct {
	// Job replaces the row of the job, where not nil. Its payload is written where PayloadChanged.
	Job            *job.Job
	PayloadChanged bool
	// Remove deletes timers.
	Remove []TimerKey
	// Put inserts timers; one that is there already stays as it is.
	Put []Timer
	// Set replaces timers that keep their key.
	Set []Timer
	// Runs and Skips are added to history; one that is there already stays as it is.
	Runs  []RunRow
	Skips []SkipRow
}

// Jobs reads and changes jobs.
type Jobs interface {
	// Job returns a job with its payload. ErrNotFound also where it belongs to another namespace.
	Job(ctx context.Context, namespace string, id uuid.UUID) (*job.Job, error)
	// JobsByID returns jobs without their payloads. One that is not there, or belongs to another namespace than asked for, is left out.
	JobsByID(ctx context.Context, refs []JobRef) (map[JobRef]*job.Job, error)
	// JobNamespace returns the namespace that a job belongs to, for roles that serve all of them. ErrNotFound.
	JobNamespace(ctx context.Context, id uuid.UUID) (string, error)
	// ListJobs returns a page of jobs without payloads, newest first.
	ListJobs(ctx context.Context, q JobQuery) ([]*job.Job, error)
	// ChangeJob locks a job and its timers, lets decide say what becomes of them, and applies that. An error of decide ends it without effect and is
	// returned as it is. It returns the job and its timers as they are after the change. ErrNotFound as for Job; ErrNameTaken.
	ChangeJob(ctx context.Context, namespace string, id uuid.UUID, decide func(j *job.Job, timers []Timer, now time.Time) (Change, error)) (*job.Job, []Timer, error)
}

// JobQuery selects jobs of a namespace; zero fields do not restrict. Order: CreatedAt descending, then id descending.
type JobQuery struct {
	Namespace  string
	State      job.State // zero: all but the deleted
	Queue      string
	Kind       string
	Labels     map[string]string
	NamePrefix string
	// Before is the last row of the page before.
	BeforeCreated time.Time
	BeforeID      uuid.UUID
	Limit         int
}

// History reads runs, ended or not. Reads may be slightly old on replicated databases.
type History interface {
	// Timers returns the live rows of jobs, sorted by due time. The jobs need ID, Shard, DueAt, Spec and Namespace.
	Timers(ctx context.Context, jobs []*job.Job) (map[uuid.UUID][]Timer, error)
	// LastRuns returns the newest final rows of jobs, where there are any.
	LastRuns(ctx context.Context, jobIDs []uuid.UUID) (map[uuid.UUID]RunRow, error)
	// RunAttempts returns the history rows of one run, first attempt first. Empty where there are none.
	RunAttempts(ctx context.Context, jobID, runID uuid.UUID) ([]RunRow, error)
	// ListRuns returns final rows of a job, newest nominal time first, then by run id descending, after the given position.
	ListRuns(ctx context.Context, jobID uuid.UUID, before RunPosition, limit int) ([]RunRow, error)
	// ListFailures returns final rows of failed runs of a namespace, newest end first, then by run id descending.
	ListFailures(ctx context.Context, namespace string, before RunPosition, limit int) ([]RunRow, error)
	// ListSkips returns the skips of a job, newest nominal time first, before the given time (zero: all).
	ListSkips(ctx context.Context, jobID uuid.UUID, before time.Time, limit int) ([]SkipRow, error)
}

// JobRef names a job and the namespace that it is asked for in.
type JobRef struct {
	Namespace string
	ID        uuid.UUID
}

// RunPosition is a place in a list of runs; the zero value is its beginning.
type RunPosition struct {
	At    time.Time
	RunID uuid.UUID
}
