package status

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

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
	await(t, "it runs", func() bool {
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
	if row := r.row(&runs[2]); row == nil || cmp.Diff(runs[2], *row) != "" {
		t.Errorf("a run that nobody spoke of is %+v", row)
	}
	if n := r.dead(); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// What is forged, of another cluster, or out of date changes nothing; the first two are dead letters, with the reason.
func TestForgedAndOutdatedStatuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.handedOut(4, nil)
	r.recorder(nil)
	foreign, err := streams.NewSealer([]byte("another cluster")).Seal(ticketOf(&runs[0]))
	check(t, err)
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
		if row := r.row(&runs[i]); row == nil || cmp.Diff(runs[i], *row) != "" || len(r.history(&runs[i])) != 0 {
			t.Errorf("run %d was changed to %+v", i, row)
		}
	}
	if row := r.row(&runs[3]); row == nil || row.Step != job.StepRunning {
		t.Errorf("the good status beside the forged did not count: %+v", row)
	}
	if n := r.dead(); n != uint64(len(bad)+3) {
		t.Errorf("%d dead letters, want %d", n, len(bad)+3)
	}
	s, err := r.js.Stream(t.Context(), streams.DeadStream)
	check(t, err)
	m, err := s.GetMsg(t.Context(), 1)
	check(t, err)
	if !strings.Contains(m.Header.Get("Waterclock-Reason"), streams.ErrSeal.Error()) || m.Header.Get("Waterclock-Subject") != "status.mallory" {
		t.Errorf("a dead letter says %v", m.Header)
	}
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
	var again store.Timer
	await(t, "the second attempt", func() bool {
		rows, err := r.store.ReadDue(t.Context(), []store.ShardCursor{{Shard: run.Shard}}, time.Now().Add(time.Hour), 10)
		check(t, err)
		if len(rows) == 1 {
			again = rows[0].Timer
		}
		return len(rows) == 1
	})
	if again.Attempt != 2 || again.LastError != "first" || again.RunID != run.RunID {
		t.Fatalf("the second attempt is %+v", again)
	}
	r.send("x", first) // doubled
	results, err := r.store.MarkDispatched(t.Context(), store.Mark{ID: 77, Generation: 1, Items: []store.MarkItem{{Key: again.TimerKey, Version: 1, Dispatch: 1, JobID: again.JobID}}})
	if err != nil || results[0] != store.MarkDone {
		t.Fatal(results, err)
	}
	again.Dispatch = 2
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
	check(t, err)
	timers, err := r.store.Timers(t.Context(), []*job.Job{j})
	check(t, err)
	if next := timers[j.ID]; len(next) != 1 || !next[0].ScheduledAt.Equal(run.ScheduledAt.Add(time.Minute)) {
		t.Errorf("the next occurrences are %+v", next)
	}
}

// A status that cannot be applied is found among those with it, buried with its reason, and holds up nobody.
func TestPoisonedStatusIsBisectedOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n = 200
	runs := r.handedOut(n, nil)
	poison := runs[n/3].RunID
	s := &faulty{r.store, func(_ context.Context, reports []store.Report, do func() ([]store.ReportResult, error)) ([]store.ReportResult, error) {
		if has(reports, poison) {
			return nil, errors.New("numeric overflow")
		}
		return do()
	}}
	for i := 0; i < n; i += 10 {
		var batch []*wirev1.Status
		for k := i; k < i+10; k++ {
			batch = append(batch, r.say(&runs[k], succeeded))
		}
		r.send("x", batch...)
	}
	r.recorder(s)
	r.settled()
	for i := range runs {
		rows := r.history(&runs[i])
		if want := map[bool]int{true: 0, false: 1}[runs[i].RunID == poison]; len(rows) != want {
			t.Errorf("run %d has %d rows of history, want %d", i, len(rows), want)
		}
	}
	if n := r.dead(); n != 1 {
		t.Fatalf("%d dead letters", n)
	}
	st, err := r.js.Stream(t.Context(), streams.DeadStream)
	check(t, err)
	m, err := st.GetLastMsgForSubject(t.Context(), streams.DeadSubject("status", ""))
	check(t, err)
	if !strings.Contains(m.Header.Get("Waterclock-Reason"), "numeric overflow") {
		t.Errorf("it says %v", m.Header)
	}
}

// While SQL is away nothing is lost, refused or buried; when it is back all is applied. Commits whose answer is lost are applied once.
func TestStoreThatIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n = 100
	runs := r.handedOut(n, nil)
	var away atomic.Bool
	var refusals, lostAnswers atomic.Int32
	away.Store(true)
	tried := make(chan struct{}, 1000)
	s := &faulty{r.store, func(_ context.Context, _ []store.Report, do func() ([]store.ReportResult, error)) ([]store.ReportResult, error) {
		if away.Load() {
			refusals.Add(1)
			tried <- struct{}{}
			return nil, fmt.Errorf("connect: %w", store.ErrUnavailable)
		}
		if lostAnswers.Add(1)%2 == 1 {
			if _, err := do(); err != nil {
				return nil, err
			}
			return nil, store.ErrUnknownOutcome
		}
		return do()
	}}
	r.recorder(s)
	for i := range runs {
		r.send("x", r.say(&runs[i], succeeded))
	}
	for range 4 {
		<-tried
	}
	if _, _, applied, err := streams.StatusFill(t.Context(), r.js); err != nil || applied != 0 {
		t.Errorf("applied up to %d while SQL is away (%v)", applied, err)
	}
	away.Store(false)
	r.settled()
	for i := range runs {
		r.ended(&runs[i], job.StepSucceeded)
	}
	if n := r.dead(); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// A recorder that dies between commit and ack leaves its messages to the next, which finds them applied.
func TestCrashBetweenCommitAndAck(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.handedOut(20, func(j *job.Job) {
		j.Spec.Schedule = schedule.Schedule{Kind: schedule.Every, Period: time.Hour, Anchor: j.CreatedAt}
	})
	committed := make(chan struct{})
	var once sync.Once
	s := &faulty{r.store, func(ctx context.Context, _ []store.Report, do func() ([]store.ReportResult, error)) ([]store.ReportResult, error) {
		if _, err := do(); err != nil {
			return nil, err
		}
		once.Do(func() { close(committed) })
		<-ctx.Done() // the answer never comes back to this process
		return nil, ctx.Err()
	}}
	for i := range runs {
		r.send("x", r.say(&runs[i], failed))
	}
	first := r.recorder(s)
	<-committed
	first.Stop()
	if _, _, applied, err := streams.StatusFill(t.Context(), r.js); err != nil || applied != 0 {
		t.Fatalf("acknowledged up to %d (%v)", applied, err)
	}
	r.recorder(nil)
	r.settled()
	for i := range runs {
		r.ended(&runs[i], job.StepFailed)
		timers, err := r.store.Timers(t.Context(), []*job.Job{{ID: runs[i].JobID, Shard: runs[i].Shard, Namespace: "default", Spec: job.Spec{Schedule: schedule.Schedule{Kind: schedule.Every}}}})
		if err != nil || len(timers[runs[i].JobID]) != 1 {
			t.Errorf("run %d is followed by %v, %v", i, timers, err)
		}
	}
	if n := r.dead(); n != 0 {
		t.Errorf("%d dead letters", n)
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

// Who starts what nobody wants any more is told so, on its own subject.
func TestRefusedStartIsAnswered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.handedOut(3, nil)
	orders := make(chan *wirev1.Control, 10)
	subs, err := streams.OnControl(r.nc, "x", func(c *wirev1.Control) { orders <- c })
	check(t, err)
	defer func() {
		for _, s := range subs {
			_ = s.Unsubscribe()
		}
	}()
	check(t, r.nc.Flush())
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
		check(t, err)
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
	sub, err := streams.OnRecorded(r.nc, func(rec *wirev1.Recorded) {
		for _, row := range rec.Rows {
			heard <- row
		}
	})
	check(t, err)
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closed next
	check(t, r.nc.Flush())
	r.recorder(nil)
	r.send("mallory", r.say(&runs[0], wirev1.StatusKind_STATUS_KIND_SKIPPED))
	r.send("x", r.say(&runs[1], succeeded))
	r.ended(&runs[1], job.StepSucceeded)
	if row := <-heard; !bytes.Equal(row.RunId, runs[1].RunID[:]) || len(heard) != 0 {
		t.Errorf("planners heard of %x", row.RunId)
	}
	if row := r.row(&runs[0]); row == nil || cmp.Diff(runs[0], *row) != "" {
		t.Errorf("the row is %+v", row)
	}
}

func TestConsumerThatIsDeletedIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.handedOut(2, nil)
	r.recorder(nil)
	r.send("x", r.say(&runs[0], succeeded))
	r.ended(&runs[0], job.StepSucceeded)
	check(t, r.js.DeleteConsumer(t.Context(), streams.StatusStream, streams.RecorderConsumer))
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
	check(t, err)
	rec.Stop() // never started
	rec.Stop()
	again := r.recorder(nil)
	if err := again.Start(t.Context()); err == nil {
		t.Error("it was started twice")
	}
	again.Stop()
	again.Stop()
	check(t, r.js.DeleteStream(t.Context(), streams.StatusStream))
	rec, err = New(Config{Store: r.store, Conn: r.nc})
	check(t, err)
	defer rec.Stop()
	if err := rec.Start(t.Context()); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("without a stream: %v", err)
	}
}
