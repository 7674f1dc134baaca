package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
)

// ShardCursor is a place in a shard from which due rows are read.
type ShardCursor struct {
	Shard int32
	From  TimerKey // rows after this key; only DueAt and RunID count
}

// DueRow is a timer that is due soon, with what a hand-over needs of its job.
type DueRow struct {
	Timer
	Name    string
	Spec    job.Spec
	Payload []byte
	// JobCreatedAt is when the job was made: deadlines of a run whose nominal time lies before it count from there.
	JobCreatedAt time.Time
}

// MarkItem asks for one row to be handed out.
type MarkItem struct {
	Key     TimerKey
	Version int64
	// Dispatch is the count that was read; the row must still have it, and gets one more.
	Dispatch int64
	// Forbid: not while the job has a live run with an earlier nominal time.
	Forbid bool
	JobID  uuid.UUID
	// ScheduledAt is the nominal time that Forbid compares by.
	ScheduledAt time.Time
}

// Mark is a batch of rows to hand out. Items need not be sorted.
type Mark struct {
	// ID is unique to the batch: a lost answer is settled by looking for it.
	ID         int64
	Generation int64
	Items      []MarkItem
}

// MarkResult is the answer for one item.
type MarkResult int8

// What can become of a MarkItem.
const (
	MarkStale    MarkResult = iota // gone, changed, or handed out by another: forget it, a new read finds what there is
	MarkDone                       // marked by this batch: publish it
	MarkOverlaps                   // still due, but an earlier run of the job goes on
)

// Planning is what a planner asks for.
type Planning interface {
	// ReadDue returns rows that are due (StepDue) before until, of several shards in one statement, at most limit per shard, sorted by due time and then
	// priority. It runs outside write transactions and takes no locks.
	ReadDue(ctx context.Context, from []ShardCursor, until time.Time, limit int) ([]*DueRow, error)
	// MarkDispatched moves rows from due to dispatched in one guarded statement: step, version and dispatch must be those given. Results are in the order
	// of the items. After ErrUnknownOutcome, Marked tells which rows carry the batch's id.
	MarkDispatched(ctx context.Context, m Mark) ([]MarkResult, error)
	// Marked returns which of the items carry the mark of this batch.
	Marked(ctx context.Context, m Mark) ([]bool, error)
	// ReadInFlight returns rows in StepDispatched, StepRunning or StepCancelling that are due before until, of several shards in one statement, at most limit per
	// shard, in no order. What is due later cannot be in flight, and is not looked at: there may be millions of it.
	ReadInFlight(ctx context.Context, from []ShardCursor, until time.Time, limit int) ([]Timer, error)
	// ReadTimers returns those of the rows that exist, in no order.
	ReadTimers(ctx context.Context, keys []TimerKey) ([]Timer, error)
	// BrokenSeries returns active recurring jobs of a shard, in order of id after the given one, that have no timer made by their schedule at or after
	// the given time: candidates for a mend.
	BrokenSeries(ctx context.Context, shard int32, from time.Time, after uuid.UUID, limit int) ([]uuid.UUID, error)
}

// ReportKind tells what a report asks of its row.
type ReportKind int8

// The kinds of report.
const (
	// ReportEnd takes the row away: decide says what follows. It applies only where the row's dispatch is the report's.
	ReportEnd ReportKind = iota + 1
	// ReportStart sets the row to running. It applies only where the row's dispatch is the report's and the step is dispatched.
	ReportStart
	// ReportFollow marks the row as followed and asks for the next occurrence of its job. It applies only where the row's dispatch is the report's and it was
	// not followed before: so however often it is told, the next occurrence is made once.
	ReportFollow
)

// Report is one thing that a recorder was told of a run.
type Report struct {
	Kind     ReportKind
	Key      TimerKey
	JobID    uuid.UUID
	Dispatch int64
	// NeedJob: decide gets the job, locked against change until the end of the transaction.
	NeedJob bool
	// For ReportStart.
	StartedAt time.Time
	Executor  string
}

// ReportResult is what became of a report.
type ReportResult struct {
	// Applied is false where the guard did not hold: late, doubled, out of date, or never handed out.
	Applied bool
	// Timer is the row as it was before, where Applied; for ReportStart also where a row with this dispatch was found in
	// another step (so that a cancelled run can be answered).
	Timer *Timer
	// Put are the timers that this report caused.
	Put []Timer
}

// Recording is what a recorder asks for.
type Recording interface {
	// Record applies a batch of reports in one transaction. decide is called for each ReportEnd and ReportFollow whose guard held, with the row as it was
	// before, the job (nil where NeedJob is false, or where it is gone) and database time; of its Change, Put, Runs, Skips and Job are applied. Two reports of one row in a batch: ReportStart
	// and ReportFollow are applied before ReportEnd, of two ReportEnd the first counts.
	Record(ctx context.Context, reports []Report, decide func(i int, t *Timer, j *job.Job, now time.Time) Change) ([]ReportResult, error)
}

// Member is a planner that is alive.
type Member struct {
	ID        string
	Host      string
	RenewedAt time.Time
}

// Shard is who plans a key range, and from where.
type Shard struct {
	ID         int32
	Owner      string
	Epoch      int64
	Checkpoint time.Time // no row is due before it
}

// Membership keeps planners and their shards.
type Membership interface {
	// Renew says that a member is alive and returns those that renewed within ttl by database time, sorted by id, this one included, and that time.
	Renew(ctx context.Context, m Member, ttl time.Duration) ([]Member, time.Time, error)
	// Leave removes a member and clears its ownership of shards.
	Leave(ctx context.Context, id string) error
	// Shards returns all shards.
	Shards(ctx context.Context) ([]Shard, error)
	// Claim makes the member the owner of shards, with an epoch one higher; shards that it owns already stay as they are. It returns them as they are after.
	Claim(ctx context.Context, member string, shards []int32) ([]Shard, error)
	// Checkpoint stores how far shards were planned, where the member still owns them at that epoch.
	Checkpoint(ctx context.Context, member string, shards []Shard) error
}

// APIKey is a stored credential. The secret itself is never stored.
type APIKey struct {
	ID        string
	Namespace string
	Note      string
	Hash      []byte // SHA-256 of the secret
	CreatedAt time.Time
	RevokedAt time.Time
	ExpiresAt time.Time
}

// Cluster is what all processes of one installation share.
type Cluster struct {
	StoreID uuid.UUID // made with the database; a stream of another store is foreign
	Key     []byte    // 32 random bytes that seal tickets and page tokens
}

// Stream is what SQL remembers of a JetStream stream.
type Stream struct {
	Name       string
	Generation int64
	LastSeq    uint64
}

// Registry keeps the small things.
type Registry interface {
	Cluster(ctx context.Context) (Cluster, error)
	CreateKey(ctx context.Context, k APIKey) error
	// Keys returns all keys, revoked ones included, oldest first; namespace "" means every one.
	Keys(ctx context.Context, namespace string) ([]APIKey, error)
	// KeyByID returns one key. ErrNotFound.
	KeyByID(ctx context.Context, id string) (APIKey, error)
	// RevokeKey is idempotent. ErrNotFound.
	RevokeKey(ctx context.Context, id string) error
	// SharedQueues returns the names of the queues that all namespaces share; DefaultQueue is always one.
	SharedQueues(ctx context.Context) ([]string, error)
	// Streams returns what is known of streams; a stream that was never seen is not in it.
	Streams(ctx context.Context) ([]Stream, error)
	// NextGeneration makes generation from+1 of a stream current. Where another was quicker it changes nothing. It returns the one now current.
	NextGeneration(ctx context.Context, name string, from int64) (Stream, error)
	// SaveStreamSeq remembers how far a stream had come, if it is further than what is known, at that generation.
	SaveStreamSeq(ctx context.Context, s Stream) error
}

// Retention removes what is older than its keeping time.
type Retention interface {
	// Purge deletes up to limit rows of history, of skips and of jobs that nothing can come of any more (deleted, completed, or one-time without a timer),
	// that ended or changed before the given time. It returns how many it deleted; less than limit means that it is done. Before rows of history are deleted,
	// drop is called with the blobs that they name, and where it fails they are not; without drop blobs stay.
	Purge(ctx context.Context, before time.Time, limit int, drop func(ctx context.Context, blobs []string) error) (int, error)
}
