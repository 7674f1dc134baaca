package planner

import (
	"time"

	"github.com/google/uuid"

	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/streams"
)

// registry is the executors that are alive, and the hand-overs of theirs that this planner does not know.
type registry struct {
	*streams.Registry
	// strangers are hand-overs that an executor holds and this planner does not know: seen twice, they are looked up.
	strangers map[uuid.UUID]int64
}

func newRegistry() *registry {
	return &registry{streams.NewRegistry(), map[uuid.UUID]int64{}}
}

func (p *Planner) onHeartbeat(h *wirev1.Heartbeat) { p.do(func() { p.meet(h) }) }

// meet takes an executor's word to the registry, frees rows that waited for its kinds, and looks up hand-overs that nobody here knows of.
func (p *Planner) meet(h *wirev1.Heartbeat) {
	if p.registry.Heard(h) {
		p.log.Info("executor appeared", "executor", h.Executor, "slots", h.Slots, "kinds", h.Kinds, "queues", h.Queues)
	}
	p.letGo()
	var unknown []store.TimerKey
	dispatches := map[uuid.UUID]int64{}
	for _, held := range h.Held {
		if len(held.RunId) != 16 || p.owned[int32(held.Shard)] == nil || !p.owned[int32(held.Shard)].inFlight { //nolint:gosec // shards are few
			continue
		}
		run := uuid.UUID(held.RunId)
		if fl := p.flights.byRun[run]; fl != nil && fl.timer.Dispatch == held.Dispatch {
			delete(p.registry.strangers, run)
			continue
		}
		if p.registry.strangers[run] != held.Dispatch {
			p.registry.strangers[run] = held.Dispatch
			continue
		}
		delete(p.registry.strangers, run)
		dispatches[run] = held.Dispatch
		unknown = append(unknown, store.TimerKey{Shard: int32(held.Shard), DueAt: time.UnixMicro(held.DueAt).UTC(), RunID: run}) //nolint:gosec // shards are few
	}
	if len(unknown) > 0 {
		go p.challenge(h.Executor, unknown, dispatches)
	}
	if len(p.registry.strangers) > 100_000 {
		clear(p.registry.strangers)
	}
}

// letGo moves rows that waited for a kind to where it is offered now.
func (p *Planner) letGo() {
	for _, l := range p.board.lanes {
		for kind, f := range l.held {
			if f.empty() || !p.registry.Offers(l.Namespace, l.Queue, kind) {
				continue
			}
			for !f.empty() {
				l.push(f.pop())
			}
			delete(l.held, kind)
		}
	}
}
