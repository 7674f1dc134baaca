package crdb

import (
	"slices"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// keyCols are the primary key of a timer.
var keyCols = []column{{"shard", int4Kind, ""}, {"bucket", int8Kind, ""}, {"due_at", int8Kind, ""}, {"run_id", uuidKind, ""}}

// timerCols are the columns of a timer as addTimer fills them.
var timerCols = append(slices.Clone(keyCols), []column{
	{"job_id", uuidKind, ""}, {"namespace", textKind, ""}, {"queue_namespace", textKind, ""}, {"queue", textKind, ""}, {"priority", int4Kind, ""},
	{"kind", textKind, ""}, {"step", int4Kind, ""}, {"origin", textKind, ""}, {"scheduled_at", int8Kind, ""}, {"civil", textKind, ""},
	{"attempt", int4Kind, ""}, {"version", int8Kind, ""}, {"dispatch", int8Kind, ""}, {"dispatched_at", int8Kind, ""}, {"started_at", int8Kind, ""},
	{"executor", textKind, ""}, {"generation", int8Kind, ""}, {"cancel_at", int8Kind, ""}, {"wait_reason", textKind, ""}, {"last_error", textKind, ""},
	{"recurring", boolKind, ""}, {"listed", boolKind, ""}, {"followed", boolKind, ""},
}...)

// timerColumns are what scanTimer reads.
var timerColumns = selected("t", timerCols)

// sameKey joins a timer with a row of a batch that starts with keyCols.
const sameKey = "t.shard = ANY (ARRAY[u.shard]) AND t.bucket = u.bucket AND t.due_at = u.due_at AND t.run_id = u.run_id"

// itemCols ask for timers by key, each at a dispatch, with the place of the asker in its list.
var itemCols = append(slices.Clone(keyCols), column{"dispatch", int8Kind, ""}, column{"item", int4Kind, ""})

func addKey(b *batch, k *store.TimerKey) {
	b.int4(k.Shard)
	b.int8(store.Bucket(k.DueAt))
	b.time(k.DueAt)
	b.uuid(k.RunID)
}

func addItem(b *batch, k *store.TimerKey, dispatch int64, item int) {
	addKey(b, k)
	b.int8(dispatch)
	b.int4(int32(item)) //nolint:gosec // batches are small
}

func addTimer(b *batch, t *store.Timer) {
	addKey(b, &t.TimerKey)
	b.uuid(t.JobID)
	b.text(t.Namespace)
	b.text(t.QueueNamespace)
	b.text(t.Queue)
	b.int4(int32(t.Priority))
	b.text(t.Kind)
	b.int4(int32(t.Step))
	b.text(string(t.Origin))
	b.time(t.ScheduledAt)
	b.text(t.Civil)
	b.int4(t.Attempt)
	b.int8(t.Version)
	b.int8(t.Dispatch)
	b.time(t.DispatchedAt)
	b.time(t.StartedAt)
	b.text(t.Executor)
	b.int8(t.Generation)
	b.time(t.CancelAt)
	b.text(t.WaitReason)
	b.text(t.LastError)
	b.bool(t.Recurring)
	b.bool(t.Listed)
	b.bool(t.Followed)
}

func scanTimer(r *row) (t store.Timer, _ error) {
	t.Shard = r.int32()
	r.take() // the bucket follows from the due time
	t.DueAt, t.RunID, t.JobID = r.time(), r.uuid(), r.uuid()
	t.Namespace, t.QueueNamespace, t.Queue = r.name(), r.name(), r.name()
	t.Priority, t.Kind, t.Step = job.Priority(r.int32()), r.name(), job.Step(r.int32())
	t.Origin, t.ScheduledAt, t.Civil = job.Origin(r.name()), r.time(), r.string()
	t.Attempt, t.Version, t.Dispatch = r.int32(), r.int64(), r.int64()
	t.DispatchedAt, t.StartedAt, t.Executor = r.time(), r.time(), r.name()
	t.Generation, t.CancelAt = r.int64(), r.time()
	t.WaitReason, t.LastError = r.name(), r.string()
	t.Recurring, t.Listed, t.Followed = r.bool(), r.bool(), r.bool()
	return t, nil
}

// stored is a timer as it would be read back.
func stored(t store.Timer) store.Timer {
	t.DueAt, t.ScheduledAt = truncate(t.DueAt), truncate(t.ScheduledAt)
	t.DispatchedAt, t.StartedAt, t.CancelAt = truncate(t.DispatchedAt), truncate(t.StartedAt), truncate(t.CancelAt)
	return t
}

func storedKey(k store.TimerKey) store.TimerKey {
	k.DueAt = truncate(k.DueAt)
	return k
}

func byKey(a, b *store.Timer) int { return a.Compare(b.TimerKey) }

func scanKey(r *row) (k store.TimerKey, _ error) {
	k.Shard, k.DueAt, k.RunID = r.int32(), r.time(), r.uuid()
	return k, nil
}

var (
	insertTimers = insert("timers", 1, timerCols, "ON CONFLICT DO NOTHING RETURNING shard, due_at, run_id")
	// setTimers replaces rows but for their key and the id of their last mark.
	setTimers    = "UPDATE timers AS t SET " + assign(timerCols[4:]) + " FROM " + unnest(1, timerCols) + " WHERE " + sameKey
	deleteTimers = "DELETE FROM timers AS t USING " + unnest(1, keyCols) + " WHERE " + sameKey
	readTimers   = "SELECT " + timerColumns + " FROM " + unnest(1, keyCols) + " JOIN timers AS t ON " + sameKey
	lockTimers   = readTimers + " ORDER BY u.shard, u.bucket, u.due_at, u.run_id FOR UPDATE OF t"
	listedTimers = "SELECT " + timerColumns + " FROM timers AS t WHERE t.job_id = ANY ($1::uuid[]) AND t.listed"
)

// timersArgs are the rows of a statement over timerCols, sorted by key.
func timersArgs(ts []store.Timer) []any {
	sorted := make([]*store.Timer, len(ts))
	for i := range ts {
		sorted[i] = &ts[i]
	}
	slices.SortFunc(sorted, byKey)
	b := newBatch(timerCols, len(ts))
	for _, t := range sorted {
		addTimer(b, t)
	}
	return b.args()
}

// keysArgs are the rows of a statement over keyCols, sorted by key.
func keysArgs(keys []store.TimerKey) []any {
	sorted := slices.Clone(keys)
	slices.SortFunc(sorted, store.TimerKey.Compare)
	b := newBatch(keyCols, len(sorted))
	for i := range sorted {
		addKey(b, &sorted[i])
	}
	return b.args()
}

// firstRun is the key of the row that a one-time job had when it was submitted; no index leads to it.
func firstRun(j *job.Job) (store.TimerKey, bool) {
	if j.Spec.Recurring() || j.DueAt.IsZero() {
		return store.TimerKey{}, false
	}
	return store.TimerKey{Shard: j.Shard, DueAt: j.DueAt, RunID: job.RunID(j.ID, job.FromSchedule, j.Spec.Schedule.At, "")}, true
}
