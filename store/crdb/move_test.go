package crdb

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

const moveRow = "WITH gone AS (DELETE FROM timers RETURNING *) INSERT INTO timers (shard, bucket, due_at, run_id, job_id, namespace, queue_namespace, queue, " +
	"priority, kind, step, origin, scheduled_at, civil, attempt, version, dispatch, dispatched_at, started_at, executor, generation, cancel_at, wait_reason, " +
	"last_error, recurring, listed, followed) SELECT shard, bucket + 1, due_at + 60000000, run_id, job_id, namespace, queue_namespace, queue, priority, kind, step, " +
	"origin, scheduled_at, civil, attempt + 1, version, dispatch, 0, 0, '', generation, cancel_at, wait_reason, last_error, recurring, true, false FROM gone"

// A recorder that does not need the job moves its row to another key while a user cancels: the cancel waits for the row, and must get the one that it
// became, or the run goes on after an acknowledged cancel.
func TestChangeSeesTheRowThatMoves(t *testing.T) {
	t.Parallel()
	for _, level := range []Isolation{ReadCommitted, Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			dsn := newDatabase(t)
			s := open(t, dsn, Options{Isolation: level})
			jobs, timers := fill(t, s, 2)
			recorder, watch := rawConn(t, dsn), rawConn(t, dsn)
			run(t, recorder, "DELETE FROM timers WHERE listed") // leaves the one-time job's
			run(t, recorder, "BEGIN")
			run(t, recorder, moveRow)
			var seen []store.Timer
			changed := make(chan error, 1)
			go func() {
				_, _, err := s.ChangeJob(t.Context(), "ns", jobs[1].ID, func(_ *job.Job, ts []store.Timer, _ time.Time) (store.Change, error) {
					seen = ts
					return store.Change{}, nil
				})
				changed <- err
			}()
			waitForLock(t, watch)
			run(t, recorder, "COMMIT")
			if err := <-changed; err != nil {
				t.Fatal(err)
			}
			if len(seen) != 1 || seen[0].RunID != timers[1].RunID || seen[0].Attempt != 2 {
				t.Errorf("decided on %+v, want the row as it is now", seen)
			}
		})
	}
}

// waitForLock returns when a session of the database waits for a lock.
func waitForLock(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	for n := 0; n == 0; {
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		pause(t.Context(), time.Millisecond)
	}
}
