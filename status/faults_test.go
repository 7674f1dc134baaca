package status

import (
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/internal/sqltest"
	"github.com/waterclock-io/waterclock/job"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
)

// due waits until a run is due anew, alone in its shard, and returns its row.
func (r *rig) due(t *store.Timer) store.Timer {
	r.t.Helper()
	var row store.Timer
	check.Await(r.t, "the run comes back", func() bool {
		rows, err := r.store.ReadDue(r.t.Context(), []store.ShardCursor{{Shard: t.Shard}}, time.Now().Add(time.Hour), 100)
		check.OK(r.t, err)
		if len(rows) == 1 {
			row = rows[0].Timer
		}
		return row.RunID == t.RunID
	})
	return row
}

// again waits until a run is due anew and hands it out once more.
func (r *rig) again(t *store.Timer) store.Timer {
	r.t.Helper()
	return sqltest.HandOut(r.t, r.store, r.marks.Add(1), r.due(t))[0]
}

// The fault: a job kills every executor that works on it, some before they have said that they began. Its run comes to an end all the same: after its attempts, and
// after a bounded number of hand-overs that nobody spoke of.
func TestJobWhoseExecutorAlwaysDies(t *testing.T) {
	t.Parallel()
	for name, begins := range map[string]bool{"after the start was told": true, "before": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			const attempts = 3
			run := r.handedOut(1, func(j *job.Job) {
				j.Spec.Retry = job.RetryPolicy{MaxAttempts: attempts, InitialBackoff: time.Microsecond, MaxBackoff: time.Microsecond}
			})[0]
			r.recorder(nil)
			handed := int64(0)
			for now := run; ; now = r.again(&now) {
				if handed++; handed > attempts+freeLosses {
					t.Fatalf("handed out %d times and no end", handed)
				}
				if begins {
					r.send("dies", r.say(&now, started))
				}
				loss := r.say(&now, lost)
				loss.Reason = "lost"
				r.send("watch", loss)
				r.settled()
				if r.row(&now) != nil {
					t.Fatalf("hand-over %d was lost, and its row is there", handed)
				}
				if rows := r.history(&run); len(rows) > 0 && rows[len(rows)-1].Final {
					break
				}
			}
			rows := r.history(&run)
			if len(rows) != attempts {
				t.Fatalf("history is %+v, want %d attempts", rows, attempts)
			}
			for i, row := range rows {
				if row.Step != job.StepFailed || row.Reason != "lost" || row.Attempt != int32(i)+1 || row.Final != (i == attempts-1) { //nolint:gosec // few
					t.Errorf("attempt %d: %+v", i+1, row)
				}
			}
			if begins && handed != attempts {
				t.Errorf("%d hand-overs for %d attempts that began", handed, attempts)
			}
			r.dead(0)
		})
	}
}

// The fault: executors of the next version report with fields and kinds that this one does not know. Fields are passed over; a kind that is not known changes
// nothing.
func TestStatusOfALaterVersion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.handedOut(2, nil)
	r.recorder(nil)
	unknown := r.say(&runs[0], wirev1.StatusKind(99))
	more := r.say(&runs[1], succeeded)
	more.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 9999, protowire.BytesType), "of the future"))
	r.send("later", unknown, more)
	r.settled()
	r.ended(&runs[1], job.StepSucceeded)
	if row := r.row(&runs[0]); row == nil || row.Step != job.StepDispatched || len(r.history(&runs[0])) != 0 {
		t.Errorf("by a kind that is not known the run became %+v, %+v", row, r.history(&runs[0]))
	}
	r.dead(0)
}

// The fault: the memory of message ids is over, or was lost in a restart of the server, and two executors' claims of one hand-over are both stored. The first holds;
// the run ends once, by whoever is first.
func TestTwoClaimsOfOneHandOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	run := r.handedOut(1, nil)[0]
	r.recorder(nil)
	r.send("first", r.say(&run, started))
	r.settled()
	r.send("second", r.say(&run, started))
	r.settled()
	if row := r.row(&run); row == nil || row.Step != job.StepRunning || row.Executor != "first" {
		t.Errorf("the row is %+v", row)
	}
	r.send("second", r.say(&run, succeeded))
	r.send("first", r.say(&run, failed))
	r.settled()
	r.ended(&run, job.StepSucceeded)
}
