package sqlite

import (
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// timerColumns are the columns of a timer in the order of scanTimer and insertTimer.
const timerColumns = "t.shard, t.due_at, t.run_id, t.job_id, t.namespace, t.queue_namespace, t.queue, t.priority, t.kind, t.step, t.origin, " +
	"t.scheduled_at, t.civil, t.attempt, t.version, t.dispatch, t.dispatched_at, t.started_at, t.executor, t.generation, t.cancel_at, t.wait_reason, " +
	"t.last_error, t.recurring, t.followed, t.listed"

// timerKey is the condition for one row by its whole key; its arguments are those of keyArgs.
const timerKey = "shard = ? AND bucket = ? AND due_at = ? AND run_id = ?"

func scanTimer(r *row) store.Timer {
	return store.Timer{
		TimerKey:       store.TimerKey{Shard: r.int32(), DueAt: r.time(), RunID: r.uuid()},
		JobID:          r.uuid(),
		Namespace:      r.string(),
		QueueNamespace: r.string(),
		Queue:          r.string(),
		Priority:       job.Priority(r.int32()),
		Kind:           r.string(),
		Step:           job.Step(r.int32()),
		Origin:         job.Origin(r.string()),
		ScheduledAt:    r.time(),
		Civil:          r.string(),
		Attempt:        r.int32(),
		Version:        r.int64(),
		Dispatch:       r.int64(),
		DispatchedAt:   r.time(),
		StartedAt:      r.time(),
		Executor:       r.string(),
		Generation:     r.int64(),
		CancelAt:       r.time(),
		WaitReason:     r.string(),
		LastError:      r.string(),
		Recurring:      r.bool(),
		Followed:       r.bool(),
		Listed:         r.bool(),
	}
}

// stored is a timer as it would be read back.
func stored(t store.Timer) store.Timer {
	t.DueAt, t.ScheduledAt = truncate(t.DueAt), truncate(t.ScheduledAt)
	t.DispatchedAt, t.StartedAt, t.CancelAt = truncate(t.DispatchedAt), truncate(t.StartedAt), truncate(t.CancelAt)
	return t
}

// insertTimer tells whether the row was not there yet.
func (c *conn) insertTimer(t *store.Timer) (bool, error) {
	n, err := c.exec("INSERT INTO timers (shard, bucket, due_at, run_id, job_id, namespace, queue_namespace, queue, priority, kind, step, origin, "+
		"scheduled_at, civil, attempt, version, dispatch, dispatched_at, started_at, executor, generation, cancel_at, wait_reason, last_error, recurring, followed, listed) "+
		"VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING",
		int64(t.Shard), store.Bucket(t.DueAt), micros(t.DueAt), t.RunID[:], t.JobID[:], t.Namespace, t.QueueNamespace, t.Queue, int64(t.Priority), t.Kind,
		int64(t.Step), string(t.Origin), micros(t.ScheduledAt), t.Civil, int64(t.Attempt), t.Version, t.Dispatch, micros(t.DispatchedAt),
		micros(t.StartedAt), t.Executor, t.Generation, micros(t.CancelAt), t.WaitReason, t.LastError, flag(t.Recurring), flag(t.Followed), flag(t.Listed))
	return n > 0, err
}

// setTimer replaces a row but for its key and the id of its last mark.
func (c *conn) setTimer(t *store.Timer) error {
	_, err := c.exec("UPDATE timers SET job_id = ?, namespace = ?, queue_namespace = ?, queue = ?, priority = ?, kind = ?, step = ?, origin = ?, "+
		"scheduled_at = ?, civil = ?, attempt = ?, version = ?, dispatch = ?, dispatched_at = ?, started_at = ?, executor = ?, generation = ?, "+
		"cancel_at = ?, wait_reason = ?, last_error = ?, recurring = ?, followed = ?, listed = ? WHERE "+timerKey,
		t.JobID[:], t.Namespace, t.QueueNamespace, t.Queue, int64(t.Priority), t.Kind, int64(t.Step), string(t.Origin), micros(t.ScheduledAt), t.Civil,
		int64(t.Attempt), t.Version, t.Dispatch, micros(t.DispatchedAt), micros(t.StartedAt), t.Executor, t.Generation, micros(t.CancelAt),
		t.WaitReason, t.LastError, flag(t.Recurring), flag(t.Followed), flag(t.Listed),
		int64(t.Shard), store.Bucket(t.DueAt), micros(t.DueAt), t.RunID[:])
	return err
}

func (c *conn) deleteTimer(k *store.TimerKey) error {
	_, err := c.exec("DELETE FROM timers WHERE "+timerKey, int64(k.Shard), store.Bucket(k.DueAt), micros(k.DueAt), k.RunID[:])
	return err
}

// timer returns one row, nil where there is none.
func (c *conn) timer(k *store.TimerKey) (t *store.Timer, err error) {
	err = c.query("SELECT "+timerColumns+" FROM timers t WHERE "+timerKey, func(r *row) error {
		found := scanTimer(r)
		t = &found
		return nil
	}, int64(k.Shard), store.Bucket(k.DueAt), micros(k.DueAt), k.RunID[:])
	return t, err
}

// firstRun is the key of the row that a one-time job had when it was submitted; no index leads to it.
func firstRun(j *job.Job) (store.TimerKey, bool) {
	if j.Spec.Recurring() || j.DueAt.IsZero() {
		return store.TimerKey{}, false
	}
	return store.TimerKey{Shard: j.Shard, DueAt: j.DueAt, RunID: job.RunID(j.ID, job.FromSchedule, j.Spec.Schedule.At, "")}, true
}

// timersOf returns the live rows of a job, sorted by key.
func (c *conn) timersOf(j *job.Job) ([]store.Timer, error) {
	var ts []store.Timer
	err := c.query("SELECT "+timerColumns+" FROM timers t INDEXED BY timers_listed WHERE t.job_id = ? AND t.listed",
		func(r *row) error { ts = append(ts, scanTimer(r)); return nil }, j.ID[:])
	if err != nil {
		return nil, err
	}
	if k, ok := firstRun(j); ok {
		// A listed row under this key was found above.
		t, err := c.timer(&k)
		if err != nil {
			return nil, err
		}
		if t != nil && !t.Listed {
			ts = append(ts, *t)
		}
	}
	sortTimers(ts)
	return ts, nil
}

// live tells whether a job has a timer.
func (c *conn) live(j *job.Job) (bool, error) {
	found, err := c.has("SELECT 1 FROM timers INDEXED BY timers_listed WHERE job_id = ? AND listed LIMIT 1", j.ID[:])
	if err != nil || found {
		return found, err
	}
	k, ok := firstRun(j)
	if !ok {
		return false, nil
	}
	return c.has("SELECT 1 FROM timers WHERE "+timerKey, int64(k.Shard), store.Bucket(k.DueAt), micros(k.DueAt), k.RunID[:])
}
