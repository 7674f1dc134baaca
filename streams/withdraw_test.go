package streams

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/job"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
)

// out returns the row of a run of lane A that was handed out at a time.
func out(at time.Time) store.Timer {
	return store.Timer{
		TimerKey: store.TimerKey{RunID: uuid.New()}, QueueNamespace: laneA.Namespace, Queue: laneA.Queue, Priority: laneA.Priority, Step: job.StepDispatched, Dispatch: 1,
		DispatchedAt: at,
	}
}

// put stores the message of a hand-over.
func (r *rig) put(t *store.Timer) {
	r.t.Helper()
	_, err := r.js.Publish(r.t.Context(), RunSubject(laneA, t.RunID, t.Dispatch), []byte("a run"))
	check.OK(r.t, err)
}

// looks tells of each look for a message.
func (r *rig) looks() <-chan struct{} {
	r.t.Helper()
	looks := make(chan struct{}, 1000)
	r.subscribe(r.nc, "$JS.API.STREAM.MSG.GET.>", func(*nats.Msg) { looks <- struct{}{} })
	check.OK(r.t, r.nc.Flush())
	return looks
}

// standing is a clock that is put on by hand.
type standing struct{ at atomic.Int64 }

func (c *standing) Now() time.Time   { return time.UnixMicro(c.at.Load()) }
func (c *standing) set(to time.Time) { c.at.Store(to.UnixMicro()) }
func clockAt(at time.Time) *standing { c := &standing{}; c.set(at); return c }
func (r *rig) stored(t *store.Timer) bool {
	r.t.Helper()
	runs, err := Discover(r.t.Context(), r.js)
	check.OK(r.t, err)
	_, found, err := FindRun(r.t.Context(), r.js, runs, RunSubject(laneA, t.RunID, t.Dispatch))
	check.OK(r.t, err)
	return found
}

// withdraw begins to take a run back.
func (r *rig) withdraw(w *Withdrawer, t store.Timer) <-chan error {
	done := make(chan error, 1)
	go func() { done <- w.Withdraw(r.t.Context(), t, "cancelled") }()
	return done
}

// The fault: a run is cancelled when it is marked and its message is held up on its way to the stream. The cancel is done when the message is taken out or can no
// longer be run, and not when it is not there yet.
func TestWithdrawWaitsForTheMessage(t *testing.T) {
	t.Parallel()
	for name, told := range map[string]bool{"its planner tells": true, "nobody tells": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.ensure()
			now := time.Now()
			clock := clockAt(now)
			w := NewWithdrawer(r.js, NewNotifier(r.nc, quiet), clock)
			tm := out(now)
			asked := make(chan func(), 1)
			sub, err := OnRecorded(r.nc, func(_ *wirev1.Recorded, answer func()) { asked <- answer })
			check.OK(t, err)
			t.Cleanup(func() { _ = sub.Unsubscribe() }) // the connection may be closed
			looks := r.looks()
			clock.set(StoredBy(&tm)) // the last moment
			done := r.withdraw(w, tm)
			check.Receive(t, "a look for the message", looks)
			answer := check.Receive(t, "the question to its planner", asked)
			r.put(&tm)
			select {
			case err := <-done:
				t.Errorf("it was done before anybody could know: %v", err)
			default:
			}
			if told {
				answer()
			} else {
				clock.set(StoredBy(&tm).Add(time.Microsecond))
			}
			check.OK(t, check.Receive(t, "the end", done))
			if r.stored(&tm) {
				t.Error("its message is there")
			}
			// It is known to be done with, so who repeats the call does not wait.
			clock.set(now)
			check.OK(t, w.Withdraw(t.Context(), tm, "cancelled"))
		})
	}
}

func TestWithdrawWithoutWaiting(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ensure()
	now := time.Now()
	w := NewWithdrawer(r.js, NewNotifier(r.nc, quiet), clockAt(now))
	// One whose work has begun was stored: there is nothing to wait for.
	begun := out(now)
	begun.Step = job.StepRunning
	check.OK(t, w.Withdraw(t.Context(), begun, "cancelled"))
	// Of one that was handed out long ago nothing comes any more.
	check.OK(t, w.Withdraw(t.Context(), out(now.Add(-StoredWithin-time.Second)), "cancelled"))
	// One that is there is deleted.
	there := out(now)
	r.put(&there)
	check.OK(t, w.Withdraw(t.Context(), there, "cancelled"))
	if r.stored(&there) {
		t.Error("its message is there")
	}
	// The caller's time ends first. Its planner is told all the same.
	told := make(chan struct{}, 1)
	sub, err := OnRecorded(r.nc, Each(func() { told <- struct{}{} }))
	check.OK(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() }) // the connection may be closed
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Withdraw(ctx, out(now), "cancelled"); err == nil {
		t.Error("taken back, though it may yet come")
	}
	check.Receive(t, "the word to its planner", told)
}

// The message comes after the last look before it would be too late. It is looked for once more.
func TestWithdrawWhatIsStoredAtTheLastMoment(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ensure()
	now := time.Now()
	clock := clockAt(now)
	tm := out(now)
	looks := 0
	js := meddled{r.js, func() {}, func() {
		if looks++; looks == 1 {
			r.put(&tm)
			clock.set(StoredBy(&tm).Add(time.Microsecond))
		}
	}}
	check.OK(t, NewWithdrawer(js, NewNotifier(r.nc, quiet), clock).Withdraw(t.Context(), tm, "cancelled"))
	if looks < 1 || r.stored(&tm) {
		t.Errorf("after %d looks its message is there: %v", looks, r.stored(&tm))
	}
}

// What a pause holds up is asked for until its planner answers, or SQL knows more. Where neither is so, that is told when the caller's time is over.
func TestTakeBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := NewWithdrawer(r.js, NewNotifier(r.nc, quiet), clockAt(time.Now()))
	asked := make(chan func(), 1000)
	sub, err := OnRecorded(r.nc, func(rec *wirev1.Recorded, answer func()) {
		if job.Step(rec.Rows[0].Step) == job.StepWaiting {
			asked <- answer
		}
	})
	check.OK(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() }) // the connection may be closed
	take := func(ctx context.Context, moved func(context.Context) bool) <-chan error {
		done := make(chan error, 1)
		go func() { done <- w.TakeBack(ctx, out(time.Now()), moved) }()
		return done
	}
	never := func(context.Context) bool { return false }

	done := take(t.Context(), never)
	check.Receive(t, "the question", asked)
	answer := check.Receive(t, "the question once more", asked)
	select {
	case err := <-done:
		t.Errorf("done before anybody has answered: %v", err)
	default:
	}
	// A planner answers each question that it has heard.
	stop := make(chan struct{})
	go func() {
		for {
			answer()
			select {
			case answer = <-asked:
			case <-stop:
				return
			}
		}
	}()
	check.OK(t, check.Receive(t, "the end", done))
	close(stop)

	looks := 0
	check.OK(t, check.Receive(t, "the end", take(t.Context(), func(context.Context) bool { looks++; return looks == 2 })))
	if looks != 2 {
		t.Errorf("SQL was asked %d times", looks)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done = take(ctx, never)
	cancel()
	if err := check.Receive(t, "the end", done); err == nil {
		t.Error("taken back, though nobody has said so")
	}
}
