package planner

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/internal/failpoint"
	"github.com/waterclock-io/waterclock/job"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/streams"
)

// What this planner hears of hand-overs, and does at the word.

// onRecorded notes which hand-overs ended, and which have begun.
func (p *Planner) onRecorded(r *wirev1.Recorded, answer func()) {
	p.do(func() {
		for _, row := range r.Rows {
			if len(row.RunId) != 16 {
				continue
			}
			delete(p.skipping, uuid.UUID(row.RunId))
			p.hear(uuid.UUID(row.RunId), int32(row.Shard), row.Dispatch, job.Step(row.Step), answer) //nolint:gosec // shards are few
		}
	})
}

// withdrawal is the word that a hand-over is not wanted, where the hand-over itself is not known yet.
type withdrawal struct {
	dispatch int64
	at       time.Time
	answer   func()
}

// withdrawFor is how long a planner tries to delete a message.
const withdrawFor = 30 * time.Second

// How long, and how often, a planner looks for a message that it is to take back: longer than it may be on its way, so that it is found or known never to come.
const (
	takeBackFor   = streams.PublishWithin + 2*time.Second
	takeBackEvery = 100 * time.Millisecond
)

// withdrawnFor is longer than any mark may take.
const withdrawnFor = 30 * time.Second

// hear takes the word on one hand-over. Who cancelled it waits for the answer that its message is in the stream, or was, or never will be; who paused its job for the
// answer that no executor gets it from now on.
func (p *Planner) hear(run uuid.UUID, shard int32, dispatch int64, step job.Step, answer func()) {
	fl := p.flights.byRun[run]
	if fl == nil || fl.timer.Dispatch != dispatch {
		if (step == job.StepCancelled || step == job.StepWaiting) && p.owned[shard] != nil {
			p.withdrawn[run] = withdrawal{dispatch, time.Now(), answer}
		}
		return
	}
	switch step {
	case job.StepRunning:
		p.flights.begun(fl)
	case job.StepCancelled:
		p.flights.remove(fl)
		if p.publisher.drop(run, dispatch) {
			answer()
			return
		}
		stored := fl.stored.Load()
		if stored {
			answer()
		}
		go func() {
			p.withdraw(fl.timer)
			if !stored && fl.stored.Load() {
				answer()
			}
		}()
	case job.StepWaiting:
		if p.publisher.drop(run, dispatch) {
			p.report(&fl.timer, &wirev1.Status{Kind: wirev1.StatusKind_STATUS_KIND_RELEASED, Reason: "withdrawn"})
			answer()
			return
		}
		if fl.takers = append(fl.takers, answer); len(fl.takers) == 1 {
			go p.takeBack(fl)
		}
	default:
		p.flights.remove(fl)
	}
}

// withdraw deletes the message of a run that was cancelled: whoever cancelled it may have looked before it was stored.
func (p *Planner) withdraw(t store.Timer) {
	ctx, cancel := context.WithTimeout(p.life, withdrawFor)
	defer cancel()
	runs := func(context.Context) (streams.Runs, error) { return p.road.Load().runs, nil }
	if err := streams.DeleteHandOver(ctx, p.msgs, runs, t); err != nil {
		p.log.Debug("cannot withdraw a message", "run", t.RunID, "error", err)
	}
}

// takeBack lets a run come back that no executor has got yet, and tells who waits for that that none gets it from now on.
func (p *Planner) takeBack(fl *flight) {
	settled := p.keepBack(fl)
	p.do(func() {
		takers := fl.takers
		fl.takers = nil
		for _, answer := range takers {
			if settled {
				answer()
			}
		}
	})
}

// keepBack tells whether it is certain that no executor gets a message any more. It may still be on its way to the stream, so it is looked for until it is there,
// or can no longer come, or the run has ended.
func (p *Planner) keepBack(fl *flight) bool {
	t := fl.timer
	ctx, cancel := context.WithTimeout(p.life, takeBackFor)
	defer cancel()
	for {
		fate, gone, err := p.takeOut(ctx, fl)
		switch fate {
		case streams.TakenOut:
			failpoint.Here(failpoint.PlannerTakenBack)
			p.do(func() {
				p.report(&t, &wirev1.Status{Kind: wirev1.StatusKind_STATUS_KIND_RELEASED, Reason: "withdrawn"})
			})
			return true
		case streams.Doubtful:
			p.do(func() { p.waitForWord(&t) })
			return true
		case streams.Delivered:
			return true
		case streams.Absent:
			if gone {
				return true // done with, or lost; the watch finds out
			}
		}
		select {
		case <-ctx.Done():
			p.log.Debug("cannot take a message back", "run", t.RunID, "error", err)
			return false
		case <-time.After(takeBackEvery):
		}
		if out, ok := ask(p, func() bool { return p.flights.byRun[t.RunID] == fl }); !ok || !out {
			return false
		}
	}
}

// takeOut deletes a message that no executor has got. gone says of one that is absent that it does not come any more.
func (p *Planner) takeOut(ctx context.Context, fl *flight) (fate streams.Fate, gone bool, err error) {
	r := p.road.Load()
	gone = fl.stored.Load() // asked before the look
	if !gone && p.tooLate(r, fl) {
		if err := streams.Settle(ctx, p.js, r.runs); err != nil {
			return streams.Absent, false, err
		}
		gone = true
	}
	fate, err = streams.DeleteUndelivered(ctx, p.msgs, r.runs, fl.timer)
	return fate, gone && err == nil, err
}

// tooLate tells whether a message that is stored from now on would not be run.
func (p *Planner) tooLate(r *road, fl *flight) bool {
	if fl.publishBy.IsZero() { // another planner has published it
		return p.clock.Now().After(streams.StoredBy(&fl.timer))
	}
	return r.serverTime.After(fl.publishBy)
}

// waitForWord makes the watch take a hand-over for lost only a lease from now: an executor that has got its message, though that is gone, begins it by then or not at
// all, and tells of it.
func (p *Planner) waitForWord(t *store.Timer) {
	if fl := p.flights.byRun[t.RunID]; fl != nil && fl.timer.Dispatch == t.Dispatch {
		fl.silentUntil = time.Now().Add(p.cfg.AckWait)
		p.flights.postpone(fl, fl.silentUntil)
	}
}

// forgetWithdrawn drops what no mark came for.
func (p *Planner) forgetWithdrawn() {
	for run, w := range p.withdrawn {
		if time.Since(w.at) > withdrawnFor {
			delete(p.withdrawn, run)
		}
	}
}

// challenge looks up hand-overs that an executor holds and this planner does not know; what SQL does not know either is to be stopped.
func (p *Planner) challenge(executor string, keys []store.TimerKey, dispatches map[uuid.UUID]int64) {
	ctx, cancel := context.WithTimeout(p.life, 10*time.Second)
	defer cancel()
	rows, err := p.cfg.Store.ReadTimers(ctx, keys)
	if err != nil {
		return // asked again at its next heartbeats
	}
	live := map[uuid.UUID]store.Timer{}
	for _, t := range rows {
		live[t.RunID] = t
	}
	for _, k := range keys {
		t, there := live[k.RunID]
		if !there || t.Dispatch > dispatches[k.RunID] {
			p.notify.Control(executor, k.RunID, dispatches[k.RunID], "refused")
		}
	}
}
