package planner

import (
	"container/heap"
	"math"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/store"
)

// flight is a hand-over that was marked and has not ended, as far as this planner knows.
type flight struct {
	timer       store.Timer
	lane        *lane
	late        bool // as its entry was
	generation  int64
	publishBy   time.Time   // server time; zero until published, and where another planner published it
	stored      atomic.Bool // its publish was confirmed; only of what this planner published
	started     bool
	check       time.Time // by this machine's clock
	silentUntil time.Time // until then it is not lost, even if nothing speaks for it; by this machine's clock
	doubts      int       // looks in a row at which nothing spoke for it
	statusSeq   uint64    // one more than how far STATUS was when its message was first found missing; 0 = it was not
	takers      []func()  // the answers to who waits for it to be taken back
	index       int
}

// flights is every hand-over of the owned shards, and a heap of when to look at them.
type flights struct {
	byRun map[uuid.UUID]*flight
	order flightHeap
}

func newFlights() *flights { return &flights{byRun: map[uuid.UUID]*flight{}} }

func (f *flights) add(fl *flight) {
	if old, ok := f.byRun[fl.timer.RunID]; ok {
		f.remove(old)
	}
	f.byRun[fl.timer.RunID] = fl
	heap.Push(&f.order, fl)
}

func (f *flights) remove(fl *flight) {
	if f.byRun[fl.timer.RunID] == fl {
		delete(f.byRun, fl.timer.RunID)
	}
	if fl.index >= 0 {
		heap.Remove(&f.order, fl.index)
	}
	f.begun(fl)
}

// begun notes that an executor works on it: it does not count against its lane's limit any more.
func (f *flights) begun(fl *flight) {
	if !fl.started {
		fl.lane.began(fl.late)
		fl.started = true
	}
}

func (f *flights) postpone(fl *flight, to time.Time) {
	fl.check = to
	if fl.index >= 0 {
		heap.Fix(&f.order, fl.index)
	}
}

// due returns up to n flights whose time to be looked at has come, and puts them off until later.
func (f *flights) due(now time.Time, n int, later time.Time) []*flight {
	var out []*flight
	for len(out) < n && len(f.order) > 0 && !f.order[0].check.After(now) {
		fl := f.order[0]
		f.postpone(fl, later)
		out = append(out, fl)
	}
	return out
}

// next returns how long it is until the first is due to be looked at.
func (f *flights) next(now time.Time) time.Duration {
	if len(f.order) == 0 {
		return math.MaxInt64
	}
	return f.order[0].check.Sub(now)
}

func (f *flights) dropShard(shard int32) {
	for _, fl := range f.byRun {
		if fl.timer.Shard == shard {
			f.remove(fl)
		}
	}
}

type flightHeap []*flight

func (h flightHeap) Len() int           { return len(h) }
func (h flightHeap) Less(i, j int) bool { return h[i].check.Before(h[j].check) }
func (h flightHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for container/heap.
func (h *flightHeap) Push(x any) {
	fl := x.(*flight)
	fl.index = len(*h)
	*h = append(*h, fl)
}

// Pop is for container/heap.
func (h *flightHeap) Pop() any {
	old := *h
	fl := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	fl.index = -1
	return fl
}
