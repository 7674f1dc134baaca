package planner

import (
	"container/heap"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/internal/failpoint"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/streams"
)

// mark hands a batch to SQL and takes the answer to the core. It runs beside the core.
func (p *Planner) mark(batch []*entry) {
	r := p.road.Load()
	m := store.Mark{ID: markID(), Generation: r.runs.Generation, Items: make([]store.MarkItem, len(batch))}
	for i, e := range batch {
		m.Items[i] = store.MarkItem{
			Key: e.row.TimerKey, Version: e.row.Version, Dispatch: e.row.Dispatch, JobID: e.row.JobID, ScheduledAt: e.row.ScheduledAt,
			Forbid: e.row.Recurring && e.row.Attempt == 1 && e.row.Spec.Forbids(),
		}
	}
	begun := time.Now()
	// Fixed before the mark: however long this process sleeps from here on, what it sends later is refused, because by then the watch of another may have
	// handed the run out again.
	limits := make([]time.Time, len(batch))
	now := p.clock.Now()
	for i, e := range batch {
		limits[i] = r.serverTime.Add(streams.PublishWithin + max(e.row.DueAt.Sub(now), 0))
	}
	ctx, cancel := context.WithTimeout(p.life, 10*time.Second)
	failpoint.Here(failpoint.PlannerMarking)
	results, err := p.cfg.Store.MarkDispatched(ctx, m)
	failpoint.Here(failpoint.PlannerMarked)
	cancel()
	if errors.Is(err, store.ErrUnknownOutcome) {
		results, err = p.settleMark(m)
	}
	p.cfg.Metrics.marks.Observe(time.Since(begun).Seconds())
	if err != nil && p.life.Err() == nil {
		p.log.Warn("cannot mark; the rows are read again", "rows", len(batch), "error", err)
	}
	p.do(func() { p.marked(batch, limits, m.Generation, results, err) })
}

// settleMark finds out what a mark did whose answer was lost: nothing may be published that was not marked, and what was marked must be.
func (p *Planner) settleMark(m store.Mark) ([]store.MarkResult, error) {
	for {
		ctx, cancel := context.WithTimeout(p.life, 5*time.Second)
		there, err := p.cfg.Store.Marked(ctx, m)
		cancel()
		if err == nil {
			results := make([]store.MarkResult, len(there))
			for i, yes := range there {
				if yes {
					results[i] = store.MarkDone
				}
			}
			return results, nil
		}
		select {
		case <-p.life.Done():
			return nil, err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func markID() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:])                              // never fails
	return int64(binary.LittleEndian.Uint64(b[:]) >> 1) //nolint:gosec // 63 bits
}

// marked takes the answer to a mark: what is marked is published at its time, what overlaps is skipped, the rest is forgotten.
func (p *Planner) marked(batch []*entry, limits []time.Time, generation int64, results []store.MarkResult, err error) {
	p.marking--
	again := err != nil
	check := time.Now().Add(p.cfg.AckWait + streams.PublishWithin)
	for i, e := range batch {
		p.board.forget(e.row.RunID)
		if err != nil || results[i] == store.MarkStale {
			e.lane.dequeue(e.late)
			p.readAgain(e.row.TimerKey)
			continue
		}
		if results[i] == store.MarkOverlaps {
			e.lane.dequeue(e.late)
			if waitsForItsTurn(e.row, p.clock.Now()) {
				p.readAgain(e.row.TimerKey)
				again = true
			} else {
				p.skip(e, decision{verdict: verdictSkip, reason: "overlap"})
			}
			continue
		}
		p.cfg.Metrics.dispatched.Inc()
		t := e.row.Timer
		t.Dispatch++
		if w, ok := p.withdrawn[t.RunID]; ok && w.dispatch >= t.Dispatch {
			// Cancelled, or paused, while its mark was under way.
			delete(p.withdrawn, t.RunID)
			w.answer()
			e.lane.dequeue(e.late)
			p.report(&t, &wirev1.Status{Kind: wirev1.StatusKind_STATUS_KIND_RELEASED, Reason: "withdrawn"})
			continue
		}
		fl := &flight{timer: t, lane: e.lane, late: e.late, generation: generation, check: check, publishBy: limits[i]}
		p.flights.add(fl)
		p.publisher.add(&departure{row: e.row, dispatch: t.Dispatch, lane: e.lane.Lane, generation: generation, publishBy: limits[i], stored: &fl.stored})
		if t.Recurring {
			p.report(&t, &wirev1.Status{Kind: wirev1.StatusKind_STATUS_KIND_DISPATCHED})
		}
	}
	if again {
		p.nudgeLater()
	}
}

// departure is a marked row on its way to its publish.
type departure struct {
	row        *store.DueRow
	dispatch   int64
	lane       streams.Lane
	generation int64
	publishBy  time.Time // server time
	stored     *atomic.Bool
}

type departures []*departure

func (h departures) Len() int { return len(h) }
func (h departures) Less(i, j int) bool {
	if c := h[i].row.DueAt.Compare(h[j].row.DueAt); c != 0 {
		return c < 0
	}
	return h[i].row.Priority < h[j].row.Priority
}
func (h departures) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is for container/heap.
func (h *departures) Push(x any) { *h = append(*h, x.(*departure)) }

// Pop is for container/heap.
func (h *departures) Pop() any {
	old := *h
	d := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return d
}

// publisher sends marked rows at their time, the most urgent first among those due together. It has a goroutine of its own, so that nothing the core does
// makes a run late.
type publisher struct {
	p    *Planner
	mu   sync.Mutex
	heap departures
	kick chan struct{}
}

func newPublisher(p *Planner) *publisher { return &publisher{p: p, kick: make(chan struct{}, 1)} }

func (u *publisher) add(d *departure) {
	u.mu.Lock()
	heap.Push(&u.heap, d)
	first := u.heap[0] == d
	u.mu.Unlock()
	if first {
		select {
		case u.kick <- struct{}{}:
		default:
		}
	}
}

// drop takes out what was not sent yet; false where it was.
func (u *publisher) drop(run uuid.UUID, dispatch int64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, d := range u.heap {
		if d.row.RunID == run && d.dispatch <= dispatch {
			heap.Remove(&u.heap, i)
			return true
		}
	}
	return false
}

func (u *publisher) empty() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.heap) == 0
}

func (u *publisher) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-u.p.life.Done():
			return
		case <-u.kick:
		case <-timer.C:
		}
		timer.Reset(u.depart())
	}
}

// depart publishes what is due and returns how long until the next is.
func (u *publisher) depart() time.Duration {
	for {
		now := u.p.clock.Now()
		u.mu.Lock()
		if len(u.heap) == 0 {
			u.mu.Unlock()
			return time.Hour
		}
		if wait := u.heap[0].row.DueAt.Sub(now); wait > 0 {
			u.mu.Unlock()
			return wait
		}
		d := heap.Pop(&u.heap).(*departure)
		u.mu.Unlock()
		u.p.publish(d, now)
	}
}

// publish sends one hand-over. Its answer is not waited for: if it goes missing, the watch finds out.
func (p *Planner) publish(d *departure, now time.Time) {
	r := p.road.Load()
	t := d.row.Timer
	t.Dispatch = d.dispatch
	if r.runs.Generation != d.generation || r.until(d.publishBy) <= 0 {
		p.comeBack(&t, 0, errLate)
		return
	}
	ticket, err := p.seal(&t)
	if err != nil {
		p.log.Error("cannot seal a ticket", "run", t.RunID, "error", err)
		return
	}
	s := &d.row.Spec
	m := &wirev1.RunMessage{
		Ticket: ticket, JobId: t.JobID[:], RunId: t.RunID[:], Dispatch: t.Dispatch, Attempt: t.Attempt, MaxAttempts: s.Retry.Attempts(),
		Namespace: t.Namespace, Kind: t.Kind, Payload: d.row.Payload, ScheduledAt: t.ScheduledAt.UnixMicro(),
		PublishBy: d.publishBy.UnixMicro(), AttemptTimeout: s.Timeout().Microseconds(), Queue: t.Queue, Priority: t.Priority.String(),
		Labels: s.Labels, Name: d.row.Name, Civil: t.Civil, Shard: uint32(t.Shard), DueAt: t.DueAt.UnixMicro(), //nolint:gosec // shards are few
		PublishedAt: now.UnixMicro(), Server: r.server,
	}
	if s.TotalDeadline > 0 {
		base := t.ScheduledAt
		if base.Before(d.row.JobCreatedAt) {
			base = d.row.JobCreatedAt
		}
		m.DeadlineLeft = max(base.Add(s.TotalDeadline).Sub(now).Microseconds(), 1)
	}
	data, err := proto.Marshal(m)
	if err != nil {
		p.log.Error("cannot encode a run message", "run", t.RunID, "error", err)
		return
	}
	subject := streams.RunSubject(d.lane, t.RunID, t.Dispatch)
	failpoint.Here(failpoint.PlannerPublishing)
	err = p.window.Publish(p.life, subject, nil, data, func(_ streams.Ack, err error) {
		failpoint.Here(failpoint.PlannerAnswered)
		switch {
		case err == nil, errors.Is(err, streams.ErrThere):
			d.stored.Store(true)
		case errors.Is(err, streams.ErrWindowClosed):
		case errors.Is(err, streams.ErrFull):
			p.comeBack(&t, time.Second, err)
		case errors.Is(err, nats.ErrNoResponders):
			p.comeBack(&t, 0, err)
		default:
			p.log.Debug("hand-over not confirmed; the watch sees to it", "run", t.RunID, "error", err)
			p.do(func() { p.unconfirmed(&t, d.publishBy) })
		}
	})
	failpoint.Here(failpoint.PlannerPublished)
	if err != nil && p.life.Err() == nil {
		p.comeBack(&t, 0, err)
	}
}

// unconfirmed makes the watch look for a message as soon as it can no longer be stored.
func (p *Planner) unconfirmed(t *store.Timer, publishBy time.Time) {
	if fl := p.flights.byRun[t.RunID]; fl != nil && fl.timer.Dispatch == t.Dispatch {
		p.flights.postpone(fl, time.Now().Add(p.road.Load().until(publishBy)))
		p.lookSoon()
	}
}

var errLate = errors.New("marked too long ago, or for a stream that is no more")

// comeBack returns a run whose message certainly is in no stream.
func (p *Planner) comeBack(t *store.Timer, delay time.Duration, why error) {
	p.log.Debug("hand-over was refused; the run comes back", "run", t.RunID, "error", why)
	row := *t
	p.do(func() {
		p.report(&row, &wirev1.Status{Kind: wirev1.StatusKind_STATUS_KIND_RELEASED, Reason: "not_published", Delay: delay.Microseconds()})
	})
}

func (p *Planner) seal(t *store.Timer) ([]byte, error) {
	return p.sealer.Seal(&wirev1.Ticket{
		JobId: t.JobID[:], RunId: t.RunID[:], Shard: uint32(t.Shard), DueAt: t.DueAt.UnixMicro(), Dispatch: t.Dispatch, //nolint:gosec // shards are few
		Namespace: t.Namespace, QueueNamespace: t.QueueNamespace, Queue: t.Queue, Attempt: t.Attempt, Recurring: t.Recurring,
		ScheduledAt: t.ScheduledAt.UnixMicro(), Version: t.Version,
	})
}
