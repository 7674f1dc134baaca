package streams

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
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
	log    *slog.Logger
}

// NewWithdrawer returns a Withdrawer on a connection.
func NewWithdrawer(js jetstream.JetStream, n *Notifier, log *slog.Logger) *Withdrawer {
	return &Withdrawer{js, n, log}
}

// Withdraw deletes the message of an in-flight run and tells its executor, or all where it is not known, to stop; its planner is told not to send what it has not
// sent yet. Where NATS does not answer it goes on trying until ctx ends, and returns the last error: as long as the message is there the run may still begin. An
// executor that it cannot reach is told at its next heartbeat.
func (w *Withdrawer) Withdraw(ctx context.Context, t store.Timer, reason string) error {
	if t.Step == job.StepDispatched {
		w.tell(t, job.StepCancelled)
	}
	w.notify.Control(t.Executor, t.RunID, t.Dispatch, reason)
	failpoint.Here(failpoint.WithdrawOrdered)
	return DeleteHandOver(ctx, w.js, func(ctx context.Context) (Runs, error) { return Discover(ctx, w.js) }, t)
}

// TakeBack asks the planner of an in-flight run to take it back where no executor has got it yet.
func (w *Withdrawer) TakeBack(_ context.Context, t store.Timer) { w.tell(t, job.StepWaiting) }

func (w *Withdrawer) tell(t store.Timer, step job.Step) {
	w.notify.Recorded(&wirev1.Recorded{Rows: []*wirev1.RecordedRow{{
		RunId: t.RunID[:], Shard: uint32(t.Shard), Dispatch: t.Dispatch, Step: int32(step), //nolint:gosec // shards are few
	}}})
}

// The rhythm of what is tried again until NATS answers.
const (
	withdrawTry   = time.Second
	withdrawPause = 100 * time.Millisecond
)

// DeleteHandOver deletes the message of a hand-over, if it is there. Where NATS does not answer it tries again until ctx ends, and returns the last error.
func DeleteHandOver(ctx context.Context, js jetstream.JetStream, current func(context.Context) (Runs, error), t store.Timer) error {
	for {
		err := deleteHandOver(ctx, js, current, t)
		if err == nil || errors.Is(err, ErrNoRuns) {
			return nil // no stream, no message
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(withdrawPause):
		}
	}
}

func deleteHandOver(ctx context.Context, js jetstream.JetStream, current func(context.Context) (Runs, error), t store.Timer) error {
	ctx, cancel := context.WithTimeout(ctx, withdrawTry)
	defer cancel()
	r, err := current(ctx)
	if err != nil {
		return err
	}
	lane := Lane{Namespace: t.QueueNamespace, Queue: t.Queue, Priority: t.Priority}
	seq, found, err := FindRun(ctx, js, r, RunSubject(lane, t.RunID, t.Dispatch))
	if err == nil && !found {
		// It may be on its way through the servers.
		if err = Settle(ctx, js, r); err == nil {
			seq, found, err = FindRun(ctx, js, r, RunSubject(lane, t.RunID, t.Dispatch))
		}
	}
	if err != nil || !found {
		return err
	}
	return DeleteRun(ctx, js, r, seq)
}

// DeleteUndelivered does the same where no executor has got it yet, and tells whether it did, and whether the message was there.
func DeleteUndelivered(ctx context.Context, js jetstream.JetStream, r Runs, t store.Timer) (done, there bool, err error) {
	lane := Lane{Namespace: t.QueueNamespace, Queue: t.Queue, Priority: t.Priority}
	seq, found, err := FindRun(ctx, js, r, RunSubject(lane, t.RunID, t.Dispatch))
	if err != nil || !found {
		return false, false, err
	}
	upTo, err := deliveredUpTo(ctx, js, r, lane)
	if err != nil || upTo >= seq {
		return false, true, err
	}
	return true, true, DeleteRun(ctx, js, r, seq)
}

// Watchers tells those who watch runs of what was recorded of them. Feed it with Start.
type Watchers struct {
	mu   sync.Mutex
	runs map[uuid.UUID]map[chan struct{}]struct{}
}

// NewWatchers returns Watchers that hear nothing yet.
func NewWatchers() *Watchers { return &Watchers{runs: map[uuid.UUID]map[chan struct{}]struct{}{}} }

// Start listens until the subscription is ended.
func (w *Watchers) Start(nc *nats.Conn) (*nats.Subscription, error) {
	return OnRecorded(nc, func(r *wirev1.Recorded) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.runs) == 0 {
			return
		}
		for _, row := range r.Rows {
			if len(row.RunId) != 16 {
				continue
			}
			for c := range w.runs[uuid.UUID(row.RunId)] {
				select {
				case c <- struct{}{}:
				default: // it has not looked since the last time; one look sees both
				}
			}
		}
	})
}

// Watch signals after each recorded change of a run until stop is called. It may miss some.
func (w *Watchers) Watch(run uuid.UUID) (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs[run] == nil {
		w.runs[run] = map[chan struct{}]struct{}{}
	}
	w.runs[run][c] = struct{}{}
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.runs[run], c)
		if len(w.runs[run]) == 0 {
			delete(w.runs, run)
		}
	}
}
