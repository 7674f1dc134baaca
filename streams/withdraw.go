package streams

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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

// Withdraw deletes the message of an in-flight run and tells its executor, or all where it is not known, to stop. What it cannot reach is told at its next
// heartbeat.
func (w *Withdrawer) Withdraw(ctx context.Context, t store.Timer, reason string) {
	w.notify.Control(t.Executor, t.RunID, t.Dispatch, reason)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	runs, err := Discover(ctx, w.js)
	if err != nil {
		w.log.Debug("cannot withdraw a message", "run", t.RunID, "error", err)
		return
	}
	lane := Lane{Namespace: t.QueueNamespace, Queue: t.Queue, Priority: t.Priority}
	seq, found, err := FindRun(ctx, w.js, runs, RunSubject(lane, t.RunID, t.Dispatch))
	if err == nil && found {
		err = DeleteRun(ctx, w.js, runs, seq)
	}
	if err != nil {
		w.log.Debug("cannot withdraw a message", "run", t.RunID, "error", err)
	}
}

// TakeBack deletes the message of an in-flight run where no executor has got it yet. The planner's watch finds it gone and lets the run come back.
func (w *Withdrawer) TakeBack(ctx context.Context, t store.Timer) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	runs, err := Discover(ctx, w.js)
	if err != nil {
		w.log.Debug("cannot take a message back", "run", t.RunID, "error", err)
		return
	}
	lane := Lane{Namespace: t.QueueNamespace, Queue: t.Queue, Priority: t.Priority}
	seq, found, err := FindRun(ctx, w.js, runs, RunSubject(lane, t.RunID, t.Dispatch))
	if err != nil || !found {
		w.log.Debug("no message to take back", "run", t.RunID, "error", err)
		return
	}
	delivered, err := Delivered(ctx, w.js, runs, lane)
	if err == nil && delivered < seq {
		err = DeleteRun(ctx, w.js, runs, seq)
	}
	if err != nil {
		w.log.Debug("cannot take a message back", "run", t.RunID, "error", err)
	}
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
