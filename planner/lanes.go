package planner

import (
	"container/heap"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/streams"
)

// entry is a row that is due soon, from when it is read until it is marked or found changed.
type entry struct {
	row   *store.DueRow
	lane  *lane
	index int  // in the heap of what is to come; -1 = not there
	late  bool // part of a backlog: see lateAfter
}

// A backlog, of SQL or of all executors having been away, is worked off beside what falls due meanwhile and not before it: what is over its time for longer than
// lateAfter takes turns with the rest of its namespace, and no more of it waits for an executor in one lane, where nothing overtakes it, than executors begin in a second:
// lateLeast where that is not known, and lateMost however quick they are.
const (
	lateAfter = 10 * time.Second
	lateLeast = 32
	lateMost  = 512
)

// upcoming is a heap of rows by due time, and by priority among those due at one instant.
type upcoming []*entry

func (h upcoming) Len() int { return len(h) }
func (h upcoming) Less(i, j int) bool {
	a, b := h[i].row, h[j].row
	if c := a.DueAt.Compare(b.DueAt); c != 0 {
		return c < 0
	}
	return a.Priority < b.Priority
}
func (h upcoming) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for container/heap.
func (h *upcoming) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop is for container/heap.
func (h *upcoming) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.index = -1
	return e
}

// fifo is a queue of entries that gives memory back as it is emptied.
type fifo struct {
	items []*entry
	head  int
}

func (f *fifo) push(e *entry) { f.items = append(f.items, e) }
func (f *fifo) empty() bool   { return f.head == len(f.items) }
func (f *fifo) len() int      { return len(f.items) - f.head }

func (f *fifo) first() *entry { return f.items[f.head] }

func (f *fifo) pop() *entry {
	e := f.items[f.head]
	f.items[f.head] = nil
	f.head++
	if f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	} else if f.head > 1024 && f.head*2 > len(f.items) {
		f.items = append(f.items[:0], f.items[f.head:]...)
		f.head = 0
	}
	return e
}

func (f *fifo) remove(e *entry) bool {
	i := slices.Index(f.items[f.head:], e)
	if i < 0 {
		return false
	}
	f.items = slices.Delete(f.items, f.head+i, f.head+i+1)
	if f.empty() {
		f.items, f.head = f.items[:0], 0
	}
	return true
}

// lane holds what is ready for one queue at one priority. Namespaces of a shared queue take turns, so that one's flood does not hold up another's run.
type lane struct {
	streams.Lane
	turns []turn
	turn  int
	ready map[turn]*fifo
	count int  // ready, over all namespaces
	all   *int // the same over all lanes
	late  int  // of them, late
	// queued counts hand-overs that no executor has begun yet: marked, or about to be; queuedLate those of them that were late.
	queued     int
	queuedLate int
	// begun counts what left the queued in this second, and begunBefore in the one before.
	begun, begunBefore int
	// passedFrom: rows of this time or later were passed over for want of room; zero = none.
	passedFrom time.Time
	// held are rows whose kind no executor of the queue offers now, by kind.
	held map[string]*fifo
}

// turn is whose rows come next: those of a namespace, its backlog apart.
type turn struct {
	namespace string
	late      bool
}

func newLane(l streams.Lane, all *int) *lane {
	return &lane{Lane: l, all: all, ready: map[turn]*fifo{}, held: map[string]*fifo{}}
}

func (e *entry) turn() turn { return turn{e.row.Namespace, e.late} }

func (l *lane) push(e *entry) {
	f := l.ready[e.turn()]
	if f == nil {
		f = &fifo{}
		l.ready[e.turn()] = f
		l.turns = append(l.turns, e.turn())
	}
	f.push(e)
	l.counted(e, 1)
}

func (l *lane) counted(e *entry, n int) {
	l.count += n
	*l.all += n
	if e.late {
		l.late += n
	}
}

// full tells whether there is no room for one more row: a backlog leaves as much for what falls due meanwhile as it takes itself.
func (l *lane) full(e *entry, limit int) bool {
	if e.late {
		return l.late+l.heldCount() >= limit
	}
	return l.count-l.late+l.heldCount() >= limit
}

// blocked tells whether nothing of the lane may be handed out now.
func (l *lane) blocked(limit int) bool {
	return l.queued >= limit || l.count == 0 || (l.count == l.late && l.queuedLate >= l.lateLimit())
}

// pop returns the next row of whose turn it is, and counts it as queued; nil where there is none that may go. Who has no rows leaves the round.
func (l *lane) pop() *entry {
	for passed := 0; passed < len(l.turns); {
		l.turn %= len(l.turns)
		t := l.turns[l.turn]
		f := l.ready[t]
		if f.empty() {
			delete(l.ready, t)
			l.turns = append(l.turns[:l.turn], l.turns[l.turn+1:]...)
			continue
		}
		l.turn++
		if t.late && l.queuedLate >= l.lateLimit() {
			passed++
			continue
		}
		e := f.pop()
		l.counted(e, -1)
		l.enqueue(t.late)
		return e
	}
	return nil
}

// enqueue counts a hand-over that no executor has begun yet.
func (l *lane) enqueue(late bool) {
	l.queued++
	if late {
		l.queuedLate++
	}
}

// began is for a hand-over that an executor has begun, or that is no more.
func (l *lane) began(late bool) {
	l.begun++
	l.dequeue(late)
}

// dequeue is for one that was not handed out after all: it says nothing of how quick executors are.
func (l *lane) dequeue(late bool) {
	l.queued--
	if late {
		l.queuedLate--
	}
}

// lateLimit is how much of a backlog may wait for executors.
func (l *lane) lateLimit() int {
	return min(max(lateLeast, l.begun, l.begunBefore), lateMost)
}

func (l *lane) hold(e *entry) {
	f := l.held[e.row.Kind]
	if f == nil {
		f = &fifo{}
		l.held[e.row.Kind] = f
	}
	f.push(e)
}

// remove takes out a row that is ready or held; false where it is neither.
func (l *lane) remove(e *entry) bool {
	if f := l.ready[e.turn()]; f != nil && f.remove(e) {
		l.counted(e, -1)
		return true
	}
	f := l.held[e.row.Kind]
	return f != nil && f.remove(e)
}

func (l *lane) heldCount() int {
	n := 0
	for _, f := range l.held {
		n += f.len()
	}
	return n
}

// board is every lane, most urgent first, with what is to come.
type board struct {
	entries  map[uuid.UUID]*entry
	upcoming upcoming
	lanes    map[streams.Lane]*lane
	order    [job.Low + 1][]*lane
	turn     int
	waiting  int // ready, in all lanes
}

func newBoard() *board {
	return &board{entries: map[uuid.UUID]*entry{}, lanes: map[streams.Lane]*lane{}}
}

func (b *board) lane(l streams.Lane) *lane {
	ln := b.lanes[l]
	if ln == nil {
		ln = newLane(l, &b.waiting)
		b.lanes[l] = ln
		if l.Priority >= job.Critical && l.Priority <= job.Low {
			b.order[l.Priority] = append(b.order[l.Priority], ln)
		}
	}
	return ln
}

// add takes a row that was read or woken. A row that is known already is replaced where the new one is of a later version.
func (b *board) add(r *store.DueRow) {
	if old, ok := b.entries[r.RunID]; ok {
		if r.Version > old.row.Version || r.Dispatch > old.row.Dispatch || !r.DueAt.Equal(old.row.DueAt) {
			b.replace(old, r)
		}
		return
	}
	e := &entry{row: r, lane: b.lane(laneOf(&r.Timer)), index: -1}
	b.entries[r.RunID] = e
	heap.Push(&b.upcoming, e)
}

// replace lets a changed row take its place among what is to come. One that is being marked stays as it was: its mark will be refused, and the next read
// brings the new one.
func (b *board) replace(old *entry, r *store.DueRow) {
	if old.index >= 0 {
		heap.Remove(&b.upcoming, old.index)
	} else if !old.lane.remove(old) {
		return
	}
	delete(b.entries, r.RunID)
	b.add(r)
}

func laneOf(t *store.Timer) streams.Lane {
	return streams.Lane{Namespace: t.QueueNamespace, Queue: t.Queue, Priority: t.Priority}
}

func (b *board) forget(run uuid.UUID) { delete(b.entries, run) }

// next returns the due time of the first row that is to come.
func (b *board) next() (time.Time, bool) {
	if len(b.upcoming) == 0 {
		return time.Time{}, false
	}
	return b.upcoming[0].row.DueAt, true
}

// popDue takes the first row that is to come out of the heap if it is due by a time.
func (b *board) popDue(by time.Time) *entry {
	if len(b.upcoming) == 0 || b.upcoming[0].row.DueAt.After(by) {
		return nil
	}
	return heap.Pop(&b.upcoming).(*entry)
}

// take removes up to n ready rows, the most urgent first, of lanes that have fewer than limit hand-overs waiting. Queues of one priority take turns.
func (b *board) take(n, limit int) []*entry {
	var out []*entry
	for _, p := range job.Priorities {
		lanes := b.order[p]
		blocked := 0
		for len(out) < n && len(lanes) > 0 && blocked < len(lanes) {
			b.turn++
			l := lanes[b.turn%len(lanes)]
			if l.blocked(limit) {
				blocked++
				continue
			}
			blocked = 0
			// A handful per turn: as fair, and cheaper than one.
			for range 16 {
				if len(out) == n || l.blocked(limit) {
					break
				}
				out = append(out, l.pop())
			}
		}
	}
	return out
}

// second begins to count anew what executors begin.
func (b *board) second() {
	for _, l := range b.lanes {
		l.begun, l.begunBefore = 0, l.begun
	}
}

// passedFrom is the earliest time of a row that was passed over; zero = none was.
func (b *board) passedFrom() (first time.Time) {
	for _, l := range b.lanes {
		if !l.passedFrom.IsZero() && (first.IsZero() || l.passedFrom.Before(first)) {
			first = l.passedFrom
		}
	}
	return first
}

// drop forgets everything of a shard.
func (b *board) drop(shard int32) {
	for id, e := range b.entries {
		if e.row.Shard != shard {
			continue
		}
		if e.index >= 0 {
			heap.Remove(&b.upcoming, e.index)
			delete(b.entries, id)
		}
	}
	// What is ready or held is refused by its mark if the new owner was quicker, and does no harm if not.
}
