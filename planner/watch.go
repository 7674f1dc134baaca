package planner

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock-io/waterclock/internal/failpoint"
	"github.com/waterclock-io/waterclock/job"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/streams"
)

const (
	// A round of looks comes when the first is to be looked at, watchEvery after the one before, and watchIdle after it at the latest: sooner than anything is to be
	// looked at that is handed out meanwhile.
	watchEvery   = 100 * time.Millisecond
	watchIdle    = 2 * time.Second
	watchMost    = 100                    // looks per round
	watchLooks   = 40                     // of them, how many may ask JetStream for a message
	watchAtOnce  = 16                     // of these, how many ask at a time
	measureEvery = 5 * time.Second        // of the lanes
	recountEvery = 20 * time.Second       // of hand-overs that this planner does not know
	lookAgain    = 500 * time.Millisecond // after a look that could not be made
	applyAgain   = 100 * time.Millisecond // after STATUS was found not to be applied so far for the first time
	applyLater   = time.Second            // and after that
)

// watch looks at hand-overs that nobody has spoken of for too long.
func (p *Planner) watch() {
	measure := time.NewTicker(measureEvery)
	defer measure.Stop()
	recount := time.NewTicker(recountEvery)
	defer recount.Stop()
	look := time.NewTimer(watchIdle)
	defer look.Stop()
	lookAt := time.Now().Add(watchIdle)
	var counting atomic.Bool
	for {
		select {
		case <-p.life.Done():
			return
		case <-measure.C:
			p.do(p.measure)
			p.do(p.forgetWithdrawn)
			continue
		case <-recount.C:
			if !counting.Swap(true) {
				go func() {
					defer counting.Store(false)
					p.recount()
				}()
			}
			continue
		case <-p.doubtful:
		case <-look.C:
			lookAt = time.Time{}
		}
		// Put forward by who is in doubt, but not before the round that is to come anyhow.
		r, _ := ask(p, func() (r round) {
			now := time.Now()
			if !lookAt.After(now) {
				r.flights = p.flights.due(now, watchMost, now.Add(p.cfg.AckWait))
			}
			r.next = min(max(p.flights.next(now), watchEvery), watchIdle)
			return r
		})
		if len(r.flights) > 0 {
			p.lookAt(r.flights)
			r.next = watchEvery // what was looked at may be due again soon
		}
		if at := time.Now().Add(r.next); lookAt.IsZero() || at.Before(lookAt) {
			look.Reset(r.next)
			lookAt = at
		}
	}
}

// round is what is to be looked at now, and how long it is until the next round.
type round struct {
	flights []*flight
	next    time.Duration
}

// lookSoon tells the watch that a look was put forward.
func (p *Planner) lookSoon() {
	select {
	case p.doubtful <- struct{}{}:
	default:
	}
}

// suspicion is what is known of one hand-over that is looked at. The flight itself belongs to the core; here are copies.
type suspicion struct {
	fl         *flight
	timer      store.Timer
	lane       streams.Lane
	generation int64
	publishBy  time.Time
	silentFor  time.Duration // so much longer it may go on without a word
	doubts     int
	statusSeq  uint64
	listed     bool
}

func (p *Planner) lookAt(flights []*flight) {
	sus, ok := ask(p, func() []suspicion {
		out := make([]suspicion, len(flights))
		for i, fl := range flights {
			out[i] = suspicion{fl, fl.timer, fl.lane.Lane, fl.generation, fl.publishBy, time.Until(fl.silentUntil), fl.doubts, fl.statusSeq, p.registry.Holds(fl.timer.RunID, fl.timer.Dispatch)}
		}
		return out
	})
	if !ok {
		return
	}
	keys := make([]store.TimerKey, len(sus))
	for i := range sus {
		keys[i] = sus[i].timer.TimerKey
	}
	ctx, cancel := context.WithTimeout(p.life, 10*time.Second)
	defer cancel()
	rows, err := p.cfg.Store.ReadTimers(ctx, keys)
	if err != nil {
		p.log.Debug("watch cannot read rows", "error", err)
		p.do(func() {
			for i := range sus {
				p.flights.postpone(sus[i].fl, time.Now().Add(lookAgain))
			}
		})
		return
	}
	live := make(map[uuid.UUID]store.Timer, len(rows))
	for _, t := range rows {
		live[t.RunID] = t
	}
	var unseen, rest []doubt
	for i := range sus {
		s := &sus[i]
		t, there := live[s.timer.RunID]
		switch {
		case !there || t.Dispatch != s.timer.Dispatch || !t.Step.InFlight():
			p.do(func() { p.flights.remove(s.fl) })
			go p.withdraw(s.timer) // of one that was cancelled and that nobody told us of, a message may be left
		case s.listed:
			if t.Step == job.StepCancelling {
				p.notify.Control(t.Executor, t.RunID, t.Dispatch, "cancelled")
			}
			p.do(func() {
				s.fl.doubts, s.fl.statusSeq = 0, 0
				if t.Step != job.StepDispatched {
					p.flights.begun(s.fl)
				}
			})
		case len(unseen) < watchLooks:
			unseen = append(unseen, doubt{s, t})
		default:
			rest = append(rest, doubt{s, t})
		}
	}
	p.later(rest, watchEvery)
	p.suspect(ctx, unseen)
}

// doubt is a hand-over that no executor claims to hold, with its row.
type doubt struct {
	s *suspicion
	t store.Timer
}

// suspect looks for the messages of hand-overs that no executor claims to hold, and lets come back what is gone.
func (p *Planner) suspect(ctx context.Context, unseen []doubt) {
	if len(unseen) == 0 {
		return
	}
	r := p.road.Load()
	if time.Since(r.heardAt) > roadFresh {
		p.later(unseen, lookAgain) // RUNS has no leader, or is out of reach: nobody would answer
		return
	}
	if p.cfg.Limits.Replicas > 1 {
		if err := streams.Settle(ctx, p.js, r.runs); err != nil {
			p.log.Debug("watch cannot find out what is stored", "error", err)
			p.later(unseen, lookAgain)
			return
		}
	}
	var mu sync.Mutex
	var gone []doubt
	var looks errgroup.Group
	looks.SetLimit(watchAtOnce)
	for _, d := range unseen {
		looks.Go(func() error {
			if p.isGone(ctx, r, d.s, &d.t) {
				mu.Lock()
				defer mu.Unlock()
				gone = append(gone, d)
			}
			return nil
		})
	}
	_ = looks.Wait() // nothing is returned
	if len(gone) == 0 {
		return
	}
	_, last, applied, err := streams.StatusFill(ctx, p.js) // after the messages were found gone: what the road knows may be older
	if err != nil {
		p.log.Debug("watch cannot look at STATUS", "error", err)
		p.later(gone, lookAgain)
		return
	}
	for _, d := range gone {
		note, wait := d.s.statusSeq, applyLater
		if note == 0 || note > last+1 { // not noted, or of a STATUS that was lost
			note, wait = last+1, applyAgain
		}
		if applied+1 >= note {
			p.giveUp(d.s, d.t)
			continue
		}
		// What was said of it may be in STATUS and not yet in SQL.
		p.do(func() {
			d.s.fl.statusSeq = note
			p.flights.postpone(d.s.fl, time.Now().Add(wait))
		})
	}
}

// later puts looks off for a time.
func (p *Planner) later(doubts []doubt, wait time.Duration) {
	if len(doubts) == 0 {
		return
	}
	p.do(func() {
		for _, d := range doubts {
			p.flights.postpone(d.s.fl, time.Now().Add(wait))
		}
	})
}

// isGone tells whether the message of a hand-over is not there and can no longer be stored.
func (p *Planner) isGone(ctx context.Context, r *road, s *suspicion, t *store.Timer) bool {
	if s.silentFor > 0 {
		p.later([]doubt{{s, *t}}, s.silentFor)
		return false
	}
	if s.generation != r.runs.Generation && s.doubts == 0 {
		// Executors that hold what an older stream handed out fence themselves within a lease.
		p.do(func() { s.fl.doubts++ })
		return false
	}
	if s.generation == r.runs.Generation {
		seq, found, err := streams.FindRun(ctx, p.msgs, r.runs, streams.RunSubject(s.lane, t.RunID, t.Dispatch))
		if err != nil {
			p.log.Debug("watch cannot look for a message", "run", t.RunID, "error", err)
			p.later([]doubt{{s, *t}}, lookAgain)
			return false
		}
		if found {
			p.present(ctx, s, r, seq)
			return false
		}
	}
	// What counts is the time at which the server was heard, before the message was looked for; what has passed since may have passed on the way.
	if !s.publishBy.IsZero() && !r.serverTime.After(s.publishBy) {
		p.later([]doubt{{s, *t}}, max(r.until(s.publishBy), watchEvery))
		return false
	}
	return true
}

// giveUp lets a run come back of which nothing is left. Where SQL has heard of its end since the row was read, it refuses.
func (p *Planner) giveUp(s *suspicion, t store.Timer) {
	p.log.Info("a hand-over is lost; the run comes back", "run", t.RunID, "dispatch", t.Dispatch, "step", t.Step)
	p.cfg.Metrics.lost.Inc()
	p.lose(s, t, "its message is gone and no executor holds it")
}

// present looks at a message that is still in the stream: it waits for a slot, or JetStream delivers it again when its lease is over. Only one that JetStream
// has passed over while it delivers younger ones is taken out.
func (p *Planner) present(ctx context.Context, s *suspicion, r *road, seq uint64) {
	waiting, err := streams.Waiting(ctx, p.msgs, r.runs, s.lane, seq)
	if err != nil {
		p.log.Debug("watch cannot look at a consumer", "lane", s.lane.String(), "error", err)
		return
	}
	if waiting || s.doubts < 2 {
		p.do(func() {
			s.fl.statusSeq = 0
			if waiting {
				s.fl.doubts = 0
			} else {
				s.fl.doubts++
			}
		})
		return
	}
	p.log.Error("a message was passed over by its consumer; it is deleted and its run handed out again", "run", s.timer.RunID, "sequence", seq, "lane", s.lane.String())
	p.cfg.Metrics.stuck.Inc()
	if err := streams.DeleteRun(ctx, p.msgs, r.runs, seq); err != nil {
		p.log.Warn("cannot delete a message", "sequence", seq, "error", err)
	}
}

func (p *Planner) lose(s *suspicion, t store.Timer, why string) {
	failpoint.Here(failpoint.PlannerLost)
	p.do(func() {
		p.report(&t, &wirev1.Status{Kind: wirev1.StatusKind_STATUS_KIND_LOST, Reason: "lost", Message: why})
		p.flights.postpone(s.fl, time.Now().Add(decideAgain))
	})
}
