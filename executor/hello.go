package executor

import (
	"maps"
	"os"
	"slices"
	"time"

	"github.com/google/uuid"

	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
)

// What this executor says of itself to planners, and what it is told.

// obey stops a hand-over that it is told to.
func (e *Executor) obey(c *wirev1.Control) {
	run, err := uuid.FromBytes(c.RunId)
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for k, a := range e.attempts {
		if k.run == run && k.dispatch <= c.Dispatch {
			cause := ErrCancelled
			if c.Reason == ControlRefused {
				cause = ErrLeaseLost
			}
			a.cancel(cause)
		}
	}
}

// ControlRefused is the reason of an order about a hand-over that SQL does not know (any more): its outcome is wanted by nobody.
const ControlRefused = "refused"

// sayHello keeps this executor in the registry.
func (e *Executor) sayHello() {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-e.life.Done():
			return
		case <-tick.C:
			e.beat()
		}
	}
}

func (e *Executor) beat() {
	h := &wirev1.Heartbeat{
		Executor: e.id, Pid: int32(os.Getpid()), Slots: int32(e.cfg.Slots), Busy: e.busy.Load(), Kinds: e.kinds(), //nolint:gosec // small
		Labels: e.cfg.Labels, Version: e.cfg.Version,
	}
	h.Host, _ = os.Hostname() // then it is empty
	for _, q := range e.cfg.Queues {
		h.Queues = append(h.Queues, q.Namespace+"/"+q.Name)
	}
	e.mu.Lock()
	h.Draining = e.draining
	for k, a := range e.attempts {
		h.Held = append(h.Held, &wirev1.Held{RunId: k.run[:], Dispatch: k.dispatch, Shard: a.msg.Shard, DueAt: a.msg.DueAt})
	}
	e.mu.Unlock()
	e.notify.Heartbeat(h)
}

func (e *Executor) kinds() []string { return slices.Sorted(maps.Keys(e.cfg.Handlers)) }
