package status

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/internal/natstest"
	"github.com/waterclock-io/waterclock/job"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/streams"
)

// What is forged, of another cluster, or out of date changes nothing; the first two are dead letters, with the reason.
func TestForgedAndOutdatedStatuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.handedOut(4, nil)
	r.recorder(nil)
	foreign, err := streams.NewSealer([]byte("another cluster")).Seal(ticketOf(&runs[0]))
	check.OK(t, err)
	flipped := bytes.Clone(r.say(&runs[0], succeeded).Ticket)
	flipped[3] ^= 1
	bad := [][]byte{nil, {}, []byte("forged"), foreign, flipped}
	for _, ticket := range bad {
		// In one message with a good one, which counts.
		r.send("mallory", &wirev1.Status{Ticket: ticket, Kind: succeeded}, r.say(&runs[3], started))
	}
	for _, b := range [][]byte{{0xff}, []byte("nonsense"), bytes.Repeat([]byte{0x0a, 0xff, 0xff}, 10)} {
		r.raw("mallory", b)
	}
	old := runs[1]
	old.Dispatch--
	later := runs[1]
	later.Dispatch++
	elsewhere := runs[1]
	elsewhere.DueAt = elsewhere.DueAt.Add(time.Second)
	r.send("x", r.say(&old, succeeded), r.say(&later, succeeded), r.say(&elsewhere, lost), r.say(&old, started), r.say(&later, released))
	r.send("x", r.say(&runs[2], succeeded)) // the stream is not blocked
	r.settled()
	r.ended(&runs[2], job.StepSucceeded)
	for i := range 2 {
		r.untouched(runs[i])
		if rows := r.history(&runs[i]); len(rows) != 0 {
			t.Errorf("run %d has history %+v", i, rows)
		}
	}
	if row := r.row(&runs[3]); row == nil || row.Step != job.StepRunning {
		t.Errorf("the good status beside the forged did not count: %+v", row)
	}
	m, err := r.dead(len(bad)+3).GetMsg(t.Context(), 1)
	check.OK(t, err)
	if !strings.Contains(m.Header.Get("Waterclock-Reason"), streams.ErrSeal.Error()) || m.Header.Get("Waterclock-Subject") != "status.mallory" {
		t.Errorf("a dead letter says %v", m.Header)
	}
}

// Who starts what nobody wants any more is told so, on its own subject.
func TestRefusedStartIsAnswered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.handedOut(3, nil)
	orders := natstest.Orders(t, r.nc, "x")
	// The first was cancelled and is gone, the second is being cancelled, the third runs already.
	change := func(run *store.Timer, to job.Step) {
		t.Helper()
		_, _, err := r.store.ChangeJob(t.Context(), "default", run.JobID, func(_ *job.Job, timers []store.Timer, now time.Time) (store.Change, error) {
			tm := timers[0]
			if to.Terminal() {
				return store.Change{Remove: []store.TimerKey{tm.TimerKey}, Runs: []store.RunRow{tm.History(to, true, "cancelled", now)}}, nil
			}
			tm.Step, tm.Executor = to, "x"
			return store.Change{Set: []store.Timer{tm}}, nil
		})
		check.OK(t, err)
	}
	change(&runs[0], job.StepCancelled)
	change(&runs[1], job.StepCancelling)
	change(&runs[2], job.StepRunning)
	r.recorder(nil)
	r.send("x", r.say(&runs[0], started))
	r.send("x", r.say(&runs[1], started))
	r.send("x", r.say(&runs[2], started))
	r.settled()
	got := map[string]string{}
	for range 2 {
		select {
		case c := <-orders:
			got[fmt.Sprintf("%x", c.RunId)] = c.Reason
			if c.Dispatch != 1 {
				t.Errorf("an order for dispatch %d", c.Dispatch)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("orders: %v", got)
		}
	}
	want := map[string]string{fmt.Sprintf("%x", runs[0].RunID[:]): "refused", fmt.Sprintf("%x", runs[1].RunID[:]): "cancelled"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("orders (-want +got):\n%s", d)
	}
	if len(orders) != 0 {
		t.Errorf("one order too many: %v", <-orders)
	}
}

// A status that the state machine refuses leaves the row as it is, and planners are not told that the hand-over is over.
func TestRefusedByTheStateMachine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.handedOut(2, nil)
	heard := make(chan *wirev1.RecordedRow, 10)
	sub, err := streams.OnRecorded(r.nc, func(rec *wirev1.Recorded, _ func()) {
		for _, row := range rec.Rows {
			heard <- row
		}
	})
	check.OK(t, err)
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closed next
	check.OK(t, r.nc.Flush())
	r.recorder(nil)
	r.send("mallory", r.say(&runs[0], wirev1.StatusKind_STATUS_KIND_SKIPPED))
	r.send("x", r.say(&runs[1], succeeded))
	r.ended(&runs[1], job.StepSucceeded)
	if row := <-heard; !bytes.Equal(row.RunId, runs[1].RunID[:]) || len(heard) != 0 {
		t.Errorf("planners heard of %x", row.RunId)
	}
	r.untouched(runs[0])
}
