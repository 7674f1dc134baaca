package streams

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/internal/failpoint"
	"github.com/waterclock-io/waterclock/job"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
)

// Withdrawer takes back runs that were handed out, after SQL was told.
type Withdrawer struct {
	js     jetstream.JetStream
	notify *Notifier
	clock  Clock
	mu     sync.Mutex
	done   map[handOver]struct{} // taken back so lately that its message could still come, had it not been seen
}

// Clock gives database time without asking for it, and never one that is ahead.
type Clock interface {
	Now() time.Time
}

type handOver struct {
	run      uuid.UUID
	dispatch int64
}

// NewWithdrawer returns a Withdrawer on a connection.
func NewWithdrawer(js jetstream.JetStream, n *Notifier, clock Clock) *Withdrawer {
	return &Withdrawer{js: Reuse(js), notify: n, clock: clock, done: map[handOver]struct{}{}}
}

// Withdraw deletes the message of an in-flight run and tells its executor, or all where it is not known, to stop; its planner is told not to send what it has not
// sent yet. A message that is not there may be on its way: it is looked for once more when its planner says that it is not, or when it is too late to be run. Where
// NATS does not answer it goes on trying until ctx ends, and returns the last error: as long as the message may be there the run may still begin. An executor that
// it cannot reach is told at its next heartbeat.
func (w *Withdrawer) Withdraw(ctx context.Context, t store.Timer, reason string) error {
	var answered <-chan struct{}
	if t.Step == job.StepDispatched {
		var forget func()
		answered, forget = w.notify.Ask(word(t, job.StepCancelled))
		defer forget()
	}
	w.notify.Control(t.Executor, t.RunID, t.Dispatch, reason)
	failpoint.Here(failpoint.WithdrawOrdered)
	remove := func(look lookFor) (there bool, err error) {
		return deleteHandOver(ctx, w.js, func(ctx context.Context) (Runs, error) { return Discover(ctx, w.js) }, t, look)
	}
	look := whatIsOnItsWay
	if w.mayCome(&t) { // asked before the look: what comes after it is no longer run
		there, err := remove(whatIsStored)
		if err == nil && !there {
			look, err = w.await(ctx, &t, answered)
		}
		if err != nil {
			return err
		}
		if there {
			w.settled(&t)
			return nil
		}
	}
	if _, err := remove(look); err != nil {
		return err
	}
	w.settled(&t)
	return nil
}

// await waits until no message of a hand-over comes any more that an executor would run, and tells what to look for then.
func (w *Withdrawer) await(ctx context.Context, t *store.Timer, answered <-chan struct{}) (lookFor, error) {
	tick := time.NewTicker(withdrawPause)
	defer tick.Stop()
	for w.mayCome(t) {
		select {
		case <-answered:
			return whatIsStored, nil
		case <-ctx.Done():
			return 0, fmt.Errorf("the message of run %s may still be on its way: %w", t.RunID, context.Cause(ctx))
		case <-tick.C:
		}
	}
	return whatIsOnItsWay, nil
}

// mayCome tells whether the message of a hand-over, if it is not there, may still be stored and run. One whose work has begun was there.
func (w *Withdrawer) mayCome(t *store.Timer) bool {
	if t.Step != job.StepDispatched || w.clock.Now().After(StoredBy(t)) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, done := w.done[handOver{t.RunID, t.Dispatch}]
	return !done
}

// settled keeps in mind that a hand-over is taken back, so that a repeated call does not wait for it.
func (w *Withdrawer) settled(t *store.Timer) {
	h := handOver{t.RunID, t.Dispatch}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.done[h]; ok {
		return
	}
	w.done[h] = struct{}{}
	time.AfterFunc(settledFor, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.done, h)
	})
}

// TakeBack asks the planner of a run that was handed out, and has not begun as far as SQL knows, to take it back where no executor has got it. It asks again and
// again until the planner says that from now on no executor gets it, or moved that SQL knows more by now; and returns an error where ctx ends before: the run may
// still begin.
func (w *Withdrawer) TakeBack(ctx context.Context, t store.Timer, moved func(context.Context) bool) error {
	for wait := takeBackAsk; ; wait = min(2*wait, takeBackAskMost) {
		answered, forget := w.notify.Ask(word(t, job.StepWaiting))
		again := time.NewTimer(wait)
		select {
		case <-answered:
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
		forget()
		select {
		case <-answered:
			return nil
		default:
		}
		if ctx.Err() != nil {
			return fmt.Errorf("nobody has taken run %s back: %w", t.RunID, context.Cause(ctx))
		}
		if moved(ctx) {
			return nil
		}
	}
}

// How long an answer is waited for before a planner is asked again, first and at most.
const (
	takeBackAsk     = 100 * time.Millisecond
	takeBackAskMost = time.Second
)

// word is what is said of a hand-over.
func word(t store.Timer, step job.Step) *wirev1.Recorded {
	return &wirev1.Recorded{Rows: []*wirev1.RecordedRow{{
		RunId: t.RunID[:], Shard: uint32(t.Shard), Dispatch: t.Dispatch, Step: int32(step), //nolint:gosec // shards are few
	}}}
}

// The rhythm of what is tried again until NATS answers.
const (
	withdrawTry   = time.Second
	withdrawPause = 100 * time.Millisecond
)

// settledFor is longer than a message may be on its way.
const settledFor = 2 * PublishWithin

// lookFor says what a look is to find: what is in the stream, or also what is on its way through the servers, which costs another question.
type lookFor int

const (
	whatIsStored lookFor = iota
	whatIsOnItsWay
)

// DeleteHandOver deletes the message of a hand-over, if it is there. Where NATS does not answer it tries again until ctx ends, and returns the last error.
func DeleteHandOver(ctx context.Context, js jetstream.JetStream, current func(context.Context) (Runs, error), t store.Timer) error {
	_, err := deleteHandOver(ctx, js, current, t, whatIsOnItsWay)
	return err
}

// deleteHandOver also tells whether it was there.
func deleteHandOver(ctx context.Context, js jetstream.JetStream, current func(context.Context) (Runs, error), t store.Timer, look lookFor) (there bool, err error) {
	for {
		there, err := tryDelete(ctx, js, current, t, look)
		if err == nil || errors.Is(err, ErrNoRuns) {
			return there, nil // no stream, no message
		}
		select {
		case <-ctx.Done():
			return false, err
		case <-time.After(withdrawPause):
		}
	}
}

func tryDelete(ctx context.Context, js jetstream.JetStream, current func(context.Context) (Runs, error), t store.Timer, look lookFor) (there bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, withdrawTry)
	defer cancel()
	r, err := current(ctx)
	if err != nil {
		return false, err
	}
	lane := Lane{Namespace: t.QueueNamespace, Queue: t.Queue, Priority: t.Priority}
	seq, found, err := FindRun(ctx, js, r, RunSubject(lane, t.RunID, t.Dispatch))
	if err == nil && !found && look == whatIsOnItsWay {
		if err = Settle(ctx, js, r); err == nil {
			seq, found, err = FindRun(ctx, js, r, RunSubject(lane, t.RunID, t.Dispatch))
		}
	}
	if err != nil || !found {
		return false, err
	}
	return true, DeleteRun(ctx, js, r, seq)
}
