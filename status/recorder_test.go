package status

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/internal/sqltest"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/streams"
)

const (
	started   = wirev1.StatusKind_STATUS_KIND_STARTED
	succeeded = wirev1.StatusKind_STATUS_KIND_SUCCEEDED
	failed    = wirev1.StatusKind_STATUS_KIND_FAILED
	released  = wirev1.StatusKind_STATUS_KIND_RELEASED
	lost      = wirev1.StatusKind_STATUS_KIND_LOST
	told      = wirev1.StatusKind_STATUS_KIND_DISPATCHED
)

func TestRecordedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.handedOut(3, nil)
	r.recorder(nil)
	r.send("x", r.say(&runs[0], started))
	check.Await(t, "it runs", func() bool {
		row := r.row(&runs[0])
		return row != nil && row.Step == job.StepRunning && row.Executor == "x"
	})
	for range 3 {
		r.send("x", r.say(&runs[0], succeeded), r.say(&runs[1], succeeded), r.say(&runs[0], succeeded))
		r.send("x", r.say(&runs[0], failed), r.say(&runs[0], started), r.say(&runs[1], lost))
	}
	r.settled()
	for i := range 2 {
		r.ended(&runs[i], job.StepSucceeded)
		if row := r.row(&runs[i]); row != nil {
			t.Errorf("run %d has ended, and its row is there: %+v", i, row)
		}
	}
	r.untouched(runs[2]) // nobody spoke of it
	r.dead(0)
}

func TestRetriesRunOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	run := r.handedOut(1, func(j *job.Job) {
		j.Spec.Retry = job.RetryPolicy{MaxAttempts: 2, InitialBackoff: time.Microsecond, MaxBackoff: time.Microsecond}
	})[0]
	r.recorder(nil)
	first := r.say(&run, failed)
	first.Retriable, first.Message = true, "first"
	r.send("x", first)
	again := r.due(&run)
	if again.Attempt != 2 || again.Version != 1 || again.LastError != "first" || again.RunID != run.RunID {
		t.Fatalf("the second attempt is %+v", again)
	}
	r.send("x", first) // doubled
	again = sqltest.HandOut(t, r.store, r.marks.Add(1), again)[0]
	if again.Dispatch != 2 {
		t.Fatalf("handed out it is %+v", again)
	}
	second := r.say(&again, failed)
	second.Retriable, second.Message = true, "second"
	r.send("x", first, second, second)
	r.settled()
	rows := r.history(&run)
	if len(rows) != 2 || rows[0].Final || !rows[1].Final || rows[1].Step != job.StepFailed || rows[1].Message != "second" || rows[0].Message != "first" {
		t.Errorf("history is %+v", rows)
	}
	if r.row(&run) != nil || r.row(&again) != nil {
		t.Error("a row is left")
	}
}

func TestSeriesIsFollowedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	run := r.handedOut(1, func(j *job.Job) {
		j.Spec.Schedule = schedule.Schedule{Kind: schedule.Every, Period: time.Minute, Anchor: j.CreatedAt}
	})[0]
	r.recorder(nil)
	for range 3 {
		r.send("planner", r.say(&run, told))
		r.send("x", r.say(&run, succeeded), r.say(&run, told))
	}
	r.settled()
	r.ended(&run, job.StepSucceeded)
	j, err := r.store.Job(t.Context(), "default", run.JobID)
	check.OK(t, err)
	timers, err := r.store.Timers(t.Context(), []*job.Job{j})
	check.OK(t, err)
	if next := timers[j.ID]; len(next) != 1 || !next[0].ScheduledAt.Equal(run.ScheduledAt.Add(time.Minute)) {
		t.Errorf("the next occurrences are %+v", next)
	}
}

// Recorders share the stream: shuffled and doubled, every status takes effect once, whoever gets it.
func TestTwoRecordersShare(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n = 300
	runs := r.handedOut(n, nil)
	var by [2]atomic.Int32
	for i := range by {
		r.recorder(&faulty{r.store, func(_ context.Context, reports []store.Report, do func() ([]store.ReportResult, error)) ([]store.ReportResult, error) {
			by[i].Add(int32(len(reports))) //nolint:gosec // few
			return do()
		}})
	}
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // a seed
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var all []*wirev1.Status
	for i := range runs {
		all = append(all, r.say(&runs[i], started), r.say(&runs[i], succeeded), r.say(&runs[i], succeeded))
	}
	rnd.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	for len(all) > 0 {
		k := min(1+rnd.IntN(5), len(all))
		r.send("x", all[:k]...)
		all = all[k:]
	}
	r.settled()
	for i := range runs {
		r.ended(&runs[i], job.StepSucceeded)
	}
	if by[0].Load() == 0 || by[1].Load() == 0 {
		t.Errorf("one did all: %d and %d", by[0].Load(), by[1].Load())
	}
}

func TestConsumerThatIsDeletedIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.handedOut(2, nil)
	r.recorder(nil)
	r.send("x", r.say(&runs[0], succeeded))
	r.ended(&runs[0], job.StepSucceeded)
	check.OK(t, r.js.DeleteConsumer(t.Context(), streams.StatusStream, streams.RecorderConsumer))
	r.send("x", r.say(&runs[1], succeeded))
	r.ended(&runs[1], job.StepSucceeded)
	if len(r.history(&runs[0])) != 1 {
		t.Error("what was applied is applied again")
	}
}

func TestStartAndStop(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rec, err := New(Config{Store: r.store, Conn: r.nc})
	check.OK(t, err)
	rec.Stop() // never started
	rec.Stop()
	again := r.recorder(nil)
	if err := again.Start(t.Context()); err == nil {
		t.Error("it was started twice")
	}
	again.Stop()
	again.Stop()
	check.OK(t, r.js.DeleteStream(t.Context(), streams.StatusStream))
	rec, err = New(Config{Store: r.store, Conn: r.nc})
	check.OK(t, err)
	defer rec.Stop()
	if err := rec.Start(t.Context()); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("without a stream: %v", err)
	}
}

// A recorder's pull that its consumer lost with its leader is sent again at the election; the client itself would miss its heartbeats after half a minute.
func TestElectionMakesTheRecorderPullAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pulls := make(chan struct{}, 100)
	_, err := r.nc.Subscribe("$JS.API.CONSUMER.MSG.NEXT."+streams.StatusStream+"."+streams.RecorderConsumer, func(*nats.Msg) { pulls <- struct{}{} })
	check.OK(t, err)
	r.recorder(nil)
	check.Receive(t, "the first pull", pulls)
	for range 2 {
		check.OK(t, r.nc.Publish("$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED."+streams.StatusStream+"."+streams.RecorderConsumer, []byte("{}")))
		check.Receive(t, "a new pull", pulls)
	}
	tm := r.handedOut(1, nil)[0]
	r.send("e", r.say(&tm, wirev1.StatusKind_STATUS_KIND_SUCCEEDED))
	check.Await(t, "the outcome is recorded", func() bool { return r.row(&tm) == nil })
}
