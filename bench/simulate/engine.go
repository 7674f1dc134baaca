package simulate

import (
	"container/heap"
	"time"
)

// events is the virtual clock: what is to happen, in order of time, and at one time in the order in which it was asked for.
type events struct {
	now  time.Duration
	seq  int
	heap eventHeap
}

type event struct {
	at  time.Duration
	seq int
	do  func()
}

// at lets something happen at a moment, or now where that is over.
func (q *events) at(at time.Duration, do func()) {
	q.seq++
	heap.Push(&q.heap, event{max(at, q.now), q.seq, do})
}

func (q *events) after(d time.Duration, do func()) { q.at(q.now+d, do) }

func (q *events) run(until time.Duration) {
	for len(q.heap) > 0 && q.heap[0].at <= until {
		e := heap.Pop(&q.heap).(event) //nolint:forcetypeassert // nothing else is in it
		q.now = e.at
		e.do()
	}
	q.now = until
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is for container/heap.
func (h *eventHeap) Push(x any) { *h = append(*h, x.(event)) }

// Pop is for container/heap.
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}

// database works on so many statements at a time; the others wait in the order in which they came.
type database struct {
	sim     *sim
	free    int
	waiting []statement
}

// statement is asked at its begin, which tells how long it takes, and answered at its end. What it reads is that of its begin, what it writes of its end.
type statement struct {
	begin func() time.Duration
	end   func()
}

func (d *database) do(st statement) {
	if d.free == 0 {
		d.waiting = append(d.waiting, st)
		return
	}
	d.free--
	d.sim.queue.after(st.begin(), func() {
		d.free++
		if len(d.waiting) > 0 {
			next := d.waiting[0]
			d.waiting[0] = statement{}
			d.waiting = d.waiting[1:]
			d.do(next)
		}
		st.end()
	})
}

// takes is a statement of a fixed length.
func takes(d time.Duration, end func()) statement {
	return statement{begin: func() time.Duration { return d }, end: end}
}
