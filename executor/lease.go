package executor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/internal/failpoint"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/streams"
)

const (
	leaseTick = 100 * time.Millisecond
	// startedAfter is how long an attempt goes on before it says so: a shorter one reports only its end, in one message.
	startedAfter = 500 * time.Millisecond
	claimTimeout = 3 * time.Second
)

var workInProgress = []byte("+WPI")

// keepLeases looks after everything that is held: signs of life, claims, the fence, and handlers that do not stop.
func (e *Executor) keepLeases() {
	tick := time.NewTimer(leaseTick)
	defer tick.Stop()
	for {
		held := e.held()
		if len(held) == 0 {
			tick.Stop()
			select {
			case <-e.life.Done():
				return
			case <-e.holds:
			}
		}
		tick.Reset(leaseTick)
		select {
		case <-e.life.Done():
			return
		case <-tick.C:
		}
		for _, a := range e.held() {
			a.look(time.Now())
		}
	}
}

func (e *Executor) held() []*attempt {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]*attempt, 0, len(e.attempts))
	for _, a := range e.attempts {
		all = append(all, a)
	}
	return all
}

func (a *attempt) look(now time.Time) {
	if !now.Before(a.fenceAt()) {
		if !a.fenced.Swap(true) && !a.finished.Load() {
			a.e.log.Warn("lease could not be confirmed in time: stopping the work", "run", a.run, "dispatch", a.msg.Dispatch, "fence", a.fenceAt())
			a.cancel(ErrLeaseLost)
		}
		return
	}
	if now.Sub(a.beatAt.load()) >= a.e.cfg.Lease.Beat {
		a.beatAt.store(now)
		if !a.beats.Swap(true) {
			// A link that is clogged blocks who writes to it; the fence must not wait for that.
			go func() {
				defer a.beats.Store(false)
				a.signOfLife(now)
			}()
		}
	}
	if a.finished.Load() {
		return
	}
	// What is not running yet waits for whoever may have claimed it before; see mayStart.
	if a.running.Load() && now.Sub(a.started.load()) >= startedAfter && a.claim.CompareAndSwap(claimNone, claimAsked) {
		go a.askClaim()
	}
	if at := a.stoppedAt.v.Load(); at != 0 && now.Sub(a.stoppedAt.load()) >= LeakAfter && !a.concluded.Load() {
		a.e.log.Error("handler goes on after it was stopped: its slot is lost until it returns", "run", a.run, "kind", a.msg.Kind)
		go a.conclude(errors.New("the handler did not stop"), a.stopCause())
	}
}

// stopCause is why the handler's context ended; it ended, so where nothing else cancelled it its time was over.
func (a *attempt) stopCause() error {
	if c := context.Cause(a.ctx); c != nil {
		return c
	}
	if a.msg.DeadlineLeft > 0 && a.msg.DeadlineLeft < a.msg.AttemptTimeout {
		return ErrDeadline
	}
	return ErrTimeout
}

// signOfLife asks JetStream to count AckWait anew, and moves the fence when the answer comes.
func (a *attempt) signOfLife(now time.Time) {
	err := a.e.window.Request(a.e.life, a.raw.Reply, nil, workInProgress, func(_ *nats.Msg, err error) {
		switch {
		case err == nil:
			if now.After(a.lease.load()) && !a.fenced.Load() {
				a.lease.store(now)
			}
		case errors.Is(err, nats.ErrNoResponders):
			a.e.streamGone()
		default:
			a.e.log.Debug("sign of life not confirmed", "run", a.run, "error", err)
		}
	})
	if err != nil {
		a.e.log.Debug("sign of life not sent", "run", a.run, "error", err)
	}
}

// askClaim says that this executor works on the run, and stops if another said so first.
func (a *attempt) askClaim() {
	if !a.claimNow() {
		a.e.log.Warn("another executor works on this run: stopping", "run", a.run, "dispatch", a.msg.Dispatch)
		a.cancel(ErrLeaseLost)
	}
}

// claimNow publishes started and waits for the answer. The message id is that of the hand-over, so STATUS takes it from one executor only. While NATS does
// not answer it asks again until the lease ends.
func (a *attempt) claimNow() bool {
	a.claim.Store(claimAsked)
	status := &wirev1.Status{Ticket: a.msg.Ticket, Kind: wirev1.StatusKind_STATUS_KIND_STARTED, StartedAt: a.dbTime(a.started.load()).UnixMicro()}
	data, err := proto.Marshal(&wirev1.StatusBatch{Executor: a.e.id, Statuses: []*wirev1.Status{status}})
	if err != nil {
		a.e.log.Error("cannot encode started", "error", err)
		return false
	}
	header := nats.Header{}
	header.Set(jetstream.MsgIDHeader, a.run.String()+"/"+strconv.FormatInt(a.msg.Dispatch, 10))
	failpoint.Here(failpoint.ExecutorClaiming)
	for {
		ctx, cancel := context.WithTimeout(a.ctx, claimTimeout)
		ack, err := a.e.window.PublishWait(ctx, streams.StatusSubject(a.e.id), header, data)
		cancel()
		switch {
		case err == nil && !ack.Duplicate:
			failpoint.Here(failpoint.ExecutorClaimed)
			a.claim.Store(claimHeld)
			return true
		case err == nil:
			own, err := a.ownClaim(ack.Seq)
			if err == nil {
				if own {
					a.claim.Store(claimHeld)
				}
				return own
			}
			a.e.log.Warn("cannot tell whose claim it is", "run", a.run, "error", err)
		}
		select {
		case <-a.ctx.Done():
			return a.finished.Load()
		case <-time.After(outboxRetry):
		}
	}
}

// ownClaim tells whether the claim that STATUS has is this executor's own, whose answer was lost.
func (a *attempt) ownClaim(seq uint64) (bool, error) {
	ctx, cancel := context.WithTimeout(a.ctx, claimTimeout)
	defer cancel()
	s, err := a.e.js.Stream(ctx, streams.StatusStream)
	if err != nil {
		return false, fmt.Errorf("look up %s: %w", streams.StatusStream, err)
	}
	m, err := s.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read claim: %w", err)
	}
	return m.Subject == streams.StatusSubject(a.e.id), nil
}

// claimAll claims what is worked on, after a reconnect: the server may have forgotten that it delivered it.
func (e *Executor) claimAll() {
	for _, a := range e.held() {
		if a.running.Load() && !a.finished.Load() && a.claim.CompareAndSwap(claimNone, claimAsked) {
			go a.askClaim()
		}
	}
}
