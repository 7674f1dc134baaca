package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/waterclock-io/waterclock/internal/failpoint"
	"github.com/waterclock-io/waterclock/store"
)

// The most that one commit takes in: enough to share its cost, and so little that the first call in it does not wait long for the last.
const (
	maxGroupCalls = 256
	maxGroupRows  = 4000
)

// write is a call that waits for the writer.
type write struct {
	ctx   context.Context
	rows  int // about how many rows it touches
	apply func(c *conn) error
	// taken is set once: by the writer when it begins, or by the caller when it gives up.
	taken atomic.Bool
	done  chan struct{}
	err   error
	panic any
}

// writer is the one goroutine that writes. All calls that wait share a transaction, each under a savepoint, and one commit; a lone call waits for nothing.
type writer struct {
	conn    *conn
	queue   chan *write
	stop    chan struct{} // closed when no more calls come
	stopped chan struct{}
}

func startWriter(c *conn, queueSize int) *writer {
	w := &writer{conn: c, queue: make(chan *write, queueSize), stop: make(chan struct{}), stopped: make(chan struct{})}
	go w.run()
	return w
}

// do applies a function in a transaction and returns when that is committed. A context that ends while the call waits for its turn takes it away
// undone; once it has begun, the result is what the commit says. A full queue makes callers wait.
func (w *writer) do(ctx context.Context, rows int, apply func(c *conn) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	call := &write{ctx: ctx, rows: rows, apply: apply, done: make(chan struct{})}
	select {
	case w.queue <- call:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-call.done:
	case <-ctx.Done():
		if call.taken.CompareAndSwap(false, true) {
			return context.Cause(ctx)
		}
		<-call.done
	}
	if call.panic != nil {
		panic(call.panic)
	}
	return call.err
}

func (w *writer) run() {
	defer close(w.stopped)
	group := make([]*write, 0, maxGroupCalls)
	for {
		var first *write
		select {
		case first = <-w.queue:
		default:
			select {
			case first = <-w.queue:
			case <-w.stop:
				return
			}
		}
		group = w.gather(append(group[:0], first))
		w.commit(group)
		for i, call := range group {
			close(call.done)
			group[i] = nil
		}
	}
}

// gather adds what waits already.
func (w *writer) gather(group []*write) []*write {
	rows := group[0].rows
	for len(group) < maxGroupCalls && rows < maxGroupRows {
		select {
		case call := <-w.queue:
			rows += call.rows
			group = append(group, call)
		default:
			return group
		}
	}
	return group
}

// commit applies a group and gives each of its calls its error.
func (w *writer) commit(group []*write) {
	if _, err := w.conn.exec("BEGIN IMMEDIATE"); err != nil {
		failAll(group, classify(err))
		return
	}
	if err := failpoint.Err(failpoint.StoreRetry); err != nil {
		w.rollback()
		failAll(group, fmt.Errorf("%w: %w", store.ErrUnavailable, err))
		return
	}
	applied := 0
	for _, call := range group {
		if !call.taken.CompareAndSwap(false, true) {
			continue // its caller has left
		}
		if call.ctx.Err() != nil {
			call.err = context.Cause(call.ctx) // its caller is about to
			continue
		}
		var lost error
		if len(group) == 1 {
			w.apply(call) // alone it is taken back with the transaction: a savepoint would copy each page that it writes
		} else {
			lost = w.applyUnderSavepoint(call)
		}
		if lost != nil {
			w.rollback()
			failAll(group, classify(fmt.Errorf("transaction was given up: %w", errors.Join(call.err, lost))))
			return
		}
		if call.err == nil && call.panic == nil {
			applied++
		}
	}
	if applied == 0 {
		w.rollback()
		return
	}
	if _, err := w.conn.exec("COMMIT"); err != nil {
		w.rollback()
		failAll(group, classifyCommit(err))
		return
	}
	if err := failpoint.Err(failpoint.StoreCommit); err != nil {
		failAll(group, fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err))
	}
}

// applyUnderSavepoint applies one call of several so that it can be taken back alone. It fails where SQLite has given up the whole transaction, as it
// does when the disk is full.
func (w *writer) applyUnderSavepoint(call *write) error {
	if _, err := w.conn.exec("SAVEPOINT one"); err != nil {
		return err
	}
	w.apply(call)
	if call.err != nil || call.panic != nil {
		if _, err := w.conn.exec("ROLLBACK TO one"); err != nil {
			return err
		}
	}
	_, err := w.conn.exec("RELEASE one")
	return err
}

// apply keeps a panic in a decision for its caller: it is not the others' affair.
func (w *writer) apply(call *write) {
	defer func() { call.panic = recover() }()
	call.err = classify(call.apply(w.conn))
}

// rollback ends the transaction if there is one still.
func (w *writer) rollback() {
	_, _ = w.conn.exec("ROLLBACK") // fails only where there is none
}

// failAll gives every call of a group that has no answer of its own the same one.
func failAll(group []*write, err error) {
	for _, call := range group {
		if call.err == nil {
			call.err = err
		}
	}
}

// close ends the writer after the calls that wait. No call may come any more.
func (w *writer) close() error {
	close(w.stop)
	<-w.stopped
	return w.conn.close()
}
