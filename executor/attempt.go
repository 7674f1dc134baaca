package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/executor/runlog"
	"github.com/waterclock-io/waterclock/internal/failpoint"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/streams"
)

// attempt is one hand-over of a run while this executor holds it: from its delivery until its outcome is in STATUS and its message is acknowledged.
type attempt struct {
	e      *Executor
	raw    *nats.Msg
	since  time.Time // server clock: when its consumer was made
	msg    *wirev1.RunMessage
	run    uuid.UUID
	offset time.Duration

	started atomicTime  // when it was received, then when the handler was called
	running atomic.Bool // the handler was called

	ctx    context.Context
	cancel context.CancelCauseFunc
	lease  atomicTime  // from when AckWait counts
	beatAt atomicTime  // last sign of life that was sent
	beats  atomic.Bool // one is being sent
	fenced atomic.Bool
	claim  atomic.Int32 // claimNone …

	result    atomic.Pointer[[]byte]
	logOnce   sync.Once
	logged    atomic.Pointer[runlog.Log]
	progressN atomic.Int64
	sentLive  atomic.Bool

	concluded  atomic.Bool
	finishOnce sync.Once
	finished   atomic.Bool
	stoppedAt  atomicTime
}

// States of an attempt's claim.
const (
	claimNone int32 = iota
	claimAsked
	claimHeld
)

// LeakAfter is how long a handler may go on after its context ended before its attempt is ended without it.
const LeakAfter = 10 * time.Second

// receive takes a delivery for a free slot. It is called by the puller and must not block.
func (e *Executor) receive(d streams.Delivery, release func()) {
	e.working.Add(1)
	e.busy.Add(1)
	go func() {
		defer e.working.Done()
		free := sync.OnceFunc(func() {
			e.busy.Add(-1)
			release()
		})
		defer free()
		failpoint.Here(failpoint.ExecutorReceived)
		a := e.open(d)
		switch {
		case a == nil:
		case a.older():
			// It is not worked on here; while it is settled, newer runs have the slot.
			select {
			case e.settling <- struct{}{}:
				free()
				a.settle()
				<-e.settling
			default:
				a.settle()
			}
		default:
			a.execute()
		}
	}()
}

// maxSettling bounds the messages that are settled without a slot.
const maxSettling = 2048

// giveBack returns deliveries that no slot was free for.
func (e *Executor) giveBack(msgs []streams.Delivery) {
	e.working.Add(1)
	go func() {
		defer e.working.Done()
		var reports []report
		for _, d := range msgs {
			a := e.open(d)
			if a == nil {
				continue
			}
			if a.older() {
				a.drop() // another may be at it, as in settle
				continue
			}
			if r, first := a.outcome(&wirev1.Status{Kind: wirev1.StatusKind_STATUS_KIND_RELEASED, Reason: "surplus"}); first {
				reports = append(reports, r)
			}
		}
		// In one message, so that their planner gets them back together and hands them out by their priority.
		failpoint.Here(failpoint.ExecutorGivesBack)
		e.outbox.add(reports...)
	}()
}

// open reads a delivery and begins to hold it. It returns nil where there is nothing to execute, having said why to the recorder.
func (e *Executor) open(d streams.Delivery) *attempt {
	received, m := time.Now(), d.Msg
	meta, err := m.Metadata()
	if err != nil {
		e.log.Warn("delivery without JetStream metadata", "subject", m.Subject, "error", err)
		return nil
	}
	msg := new(wirev1.RunMessage)
	if err := proto.Unmarshal(m.Data, msg); err != nil || len(msg.RunId) != 16 || len(msg.JobId) != 16 {
		e.bury(m, fmt.Errorf("run message cannot be read: %w", errors.Join(err, fmt.Errorf("ids of %d and %d bytes", len(msg.GetRunId()), len(msg.GetJobId())))))
		return nil
	}
	a := &attempt{e: e, raw: m, since: d.Since, msg: msg, run: uuid.UUID(msg.RunId)}
	a.started.store(received)
	a.lease.store(d.Leased)
	a.beatAt.store(received)
	// Database time is that of NATS plus what lay between the planner's clock and NATS's when the message was stored.
	a.offset = time.UnixMicro(msg.PublishedAt).Sub(meta.Timestamp)
	a.ctx, a.cancel = context.WithCancelCause(context.Background())

	key := heldKey{a.run, msg.Dispatch}
	e.mu.Lock()
	_, held := e.attempts[key]
	if !held {
		e.attempts[key] = a
	}
	e.mu.Unlock()
	select {
	case e.holds <- struct{}{}:
	default:
	}
	if held {
		return nil // delivered again to us while we work on it: the work goes on, its lease is kept by its heartbeats
	}
	lost := ""
	switch {
	case meta.NumDelivered > 1:
		lost = "delivered before"
	case meta.Timestamp.After(time.UnixMicro(msg.PublishBy)):
		lost = "published too late"
	case time.Until(a.fenceAt()) < e.cfg.Lease.Beat:
		if a.older() {
			a.drop() // another may be at it, as in settle
			return nil
		}
		lost = "held up on its way"
	}
	if lost != "" {
		failpoint.Here(failpoint.ExecutorLost)
		a.end(&wirev1.Status{Kind: wirev1.StatusKind_STATUS_KIND_LOST, Reason: "lost", Message: lost})
		return nil
	}
	return a
}

// bury moves a message that cannot be read to the dead letters.
func (e *Executor) bury(m *nats.Msg, why error) {
	h := nats.Header{}
	h.Set("Waterclock-Reason", why.Error())
	h.Set("Waterclock-Subject", m.Subject)
	if _, err := e.window.PublishWait(e.life, streams.DeadSubject("run", ""), h, m.Data); err != nil {
		e.log.Warn("cannot move a message to the dead letters", "subject", m.Subject, "error", err)
		return
	}
	e.log.Warn("message moved to the dead letters", "subject", m.Subject, "error", why)
	_ = m.Ack() // delivered again, it is buried again
}

// older tells whether the message was stored before this connection began, or before its consumer was made.
func (a *attempt) older() bool {
	meta, err := a.raw.Metadata()
	if err != nil {
		return true
	}
	_, older := a.e.clock.older(meta.Timestamp, a.msg.Server, a.since)
	return older
}

// settle sees to a message that a server may have delivered before, and forgotten in a crash or with its consumer: who got it first may have begun, so it is not worked on. It is
// claimed, which stops whoever still works on it, and given back for a hand-over of its own.
func (a *attempt) settle() {
	meta, err := a.raw.Metadata()
	if err != nil {
		a.drop()
		return
	}
	if wait, _ := a.e.clock.older(meta.Timestamp, a.msg.Server, a.since); wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-a.ctx.Done():
			a.drop()
			return
		}
	}
	if a.claimNow() {
		failpoint.Here(failpoint.ExecutorSettled)
		a.end(&wirev1.Status{Kind: wirev1.StatusKind_STATUS_KIND_RELEASED, Reason: "uncertain"})
	} else {
		a.drop()
	}
}

func (a *attempt) execute() {
	e, msg := a.e, a.msg
	handler, ok := e.cfg.Handlers[msg.Kind]
	if !ok {
		// Each bounce waits longer, so that a run that only other executors of the queue can take does not spin.
		delay := time.Duration(min(5<<min(msg.Dispatch-int64(msg.Attempt), 8), 1000)) * time.Millisecond
		a.end(&wirev1.Status{Kind: wirev1.StatusKind_STATUS_KIND_RELEASED, Reason: "unknown_kind", Delay: delay.Microseconds()})
		return
	}
	limit, cause := time.Duration(msg.AttemptTimeout)*time.Microsecond, ErrTimeout
	if left := time.Duration(msg.DeadlineLeft) * time.Microsecond; left > 0 && left < limit {
		limit, cause = left, ErrDeadline
	}
	if !time.Now().Before(a.fenceAt()) {
		a.drop() // this process slept since it was received: another may be at it
		return
	}
	run := &Run{
		JobID: uuid.UUID(msg.JobId), ID: a.run, Namespace: msg.Namespace, Name: msg.Name, Kind: msg.Kind, Queue: msg.Queue, Priority: msg.Priority,
		Payload: msg.Payload, Labels: msg.Labels, Attempt: msg.Attempt, MaxAttempts: msg.MaxAttempts, Dispatch: msg.Dispatch,
		ScheduledAt: time.UnixMicro(msg.ScheduledAt).UTC(), Civil: msg.Civil, a: a,
	}
	started := time.Now()
	a.started.store(started)
	a.running.Store(true)
	e.cfg.Metrics.startLag.WithLabelValues(msg.Queue, msg.Priority).Observe(a.dbTime(started).Sub(time.UnixMicro(msg.DueAt)).Seconds())
	ctx, stop := context.WithDeadlineCause(context.WithValue(a.ctx, runKey{}, run), started.Add(limit), cause)
	watch := context.AfterFunc(ctx, func() { a.stoppedAt.store(time.Now()) })
	failpoint.Here(failpoint.ExecutorStarting)
	err := call(ctx, handler, run)
	failpoint.Here(failpoint.ExecutorWorked)
	watch()
	why := context.Cause(ctx)
	stop()
	a.conclude(err, why)
}

// call runs a handler and turns a panic into an error.
func call(ctx context.Context, h Handler, run *Run) (err error) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(run.Stderr(), "panic: %v\n%s", p, debug.Stack()) // the log takes all
			err = WithCode(fmt.Errorf("handler panicked: %v", p), "panic", 0)
		}
	}()
	return h(ctx, run)
}

// conclude says how the attempt ended: by what the handler returned, and by why it was stopped where it was.
func (a *attempt) conclude(err, why error) {
	if a.concluded.Swap(true) {
		return // it went on after it was given up
	}
	s := &wirev1.Status{Reason: "ok"}
	switch {
	case errors.Is(why, ErrLeaseLost):
		a.drop() // another may be at it; nothing is said
		return
	case err == nil:
		s.Kind = wirev1.StatusKind_STATUS_KIND_SUCCEEDED
		if !a.keepResult(s) {
			break
		}
	case errors.Is(why, ErrCancelled):
		s.Kind, s.Reason = wirev1.StatusKind_STATUS_KIND_CANCELLED, "cancelled"
	case errors.Is(why, ErrDraining):
		s.Kind, s.Reason = wirev1.StatusKind_STATUS_KIND_RELEASED, "drained"
	case errors.Is(why, ErrDeadline):
		s.Kind, s.Reason, s.Message = wirev1.StatusKind_STATUS_KIND_FAILED, "deadline", ErrDeadline.Error()
	case errors.Is(why, ErrTimeout):
		s.Kind, s.Reason, s.Message, s.Retriable = wirev1.StatusKind_STATUS_KIND_FAILED, "timeout", ErrTimeout.Error(), true
	default:
		describe(s, err)
		a.keepResult(s)
	}
	a.keepLog(s)
	failpoint.Here(failpoint.ExecutorLogged)
	a.end(s)
}

// describe fills in what a handler's error says.
func describe(s *wirev1.Status, err error) {
	s.Kind, s.Reason, s.Message, s.Retriable = wirev1.StatusKind_STATUS_KIND_FAILED, "error", cut(err.Error(), maxMessage), true
	var o *outcome
	if !errors.As(err, &o) {
		return
	}
	if o.snooze {
		s.Kind, s.Reason = wirev1.StatusKind_STATUS_KIND_SNOOZED, "snoozed"
	}
	if o.fatal {
		s.Retriable, s.Reason = false, "fatal"
	}
	if o.reason != "" {
		s.Reason = o.reason
	}
	s.Code, s.Delay = o.code, o.delay.Microseconds()
}

// maxMessage bounds what an error may leave in history.
const maxMessage = 4 << 10

func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return string(bytes.ToValidUTF8([]byte(s[:limit]), nil)) + "…"
}

// end reports an outcome; the message is acknowledged when STATUS has it. Only the first call counts.
func (a *attempt) end(s *wirev1.Status) {
	if r, first := a.outcome(s); first {
		a.e.outbox.add(r)
	}
}

// outcome makes the report of how an attempt ended; false where one was made before.
func (a *attempt) outcome(s *wirev1.Status) (r report, first bool) {
	a.finishOnce.Do(func() {
		first = true
		a.finished.Store(true)
		now := time.Now()
		s.Ticket = a.msg.Ticket
		s.EndedAt = a.dbTime(now).UnixMicro()
		if a.running.Load() {
			s.StartedAt = a.dbTime(a.started.load()).UnixMicro() // what did not begin says nothing
		}
		a.e.cfg.Metrics.attempts.WithLabelValues(a.msg.Queue, a.msg.Kind, s.Reason).Inc()
		if s.Kind == wirev1.StatusKind_STATUS_KIND_SUCCEEDED || s.Kind == wirev1.StatusKind_STATUS_KIND_FAILED {
			a.e.cfg.Metrics.runTime.WithLabelValues(a.msg.Queue, a.msg.Kind).Observe(now.Sub(a.started.load()).Seconds())
		}
		r = report{s, func() {
			// Past the fence the message may be another's: an acknowledgement would act on its delivery.
			if !a.fenced.Load() && time.Now().Before(a.fenceAt()) {
				_ = a.raw.Ack() // delivered again, it is answered with lost, which SQL refuses
				failpoint.Here(failpoint.ExecutorAcked)
			}
			a.forget()
		}}
	})
	return r, first
}

// drop lets go of an attempt without a word.
func (a *attempt) drop() {
	a.finishOnce.Do(func() {
		a.finished.Store(true)
		a.forget()
	})
}

func (a *attempt) forget() {
	a.cancel(context.Canceled)
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	key := heldKey{a.run, a.msg.Dispatch}
	if a.e.attempts[key] == a {
		delete(a.e.attempts, key)
	}
}

// dbTime puts a moment of this process into database time.
func (a *attempt) dbTime(at time.Time) time.Time {
	return a.e.clock.serverTime(at).Add(a.offset).Round(0)
}

func (a *attempt) fenceAt() time.Time {
	return a.lease.load().Add(a.e.cfg.Lease.AckWait - a.e.cfg.Lease.Margin)
}
