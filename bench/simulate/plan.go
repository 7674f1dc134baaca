package simulate

import (
	"container/heap"
	"maps"
	"math"
	"slices"
	"time"
)

// entry is a row on a planner's board, from its read until it is sent or found changed.
type entry struct {
	seen
	index     int // in the heap it is in; -1 = in none
	departing bool
}

// rowHeap orders by due time.
type rowHeap []*entry

func (h rowHeap) Len() int { return len(h) }
func (h rowHeap) Less(i, j int) bool {
	return h[i].at.compare(h[j].at) < 0
}
func (h rowHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for container/heap.
func (h *rowHeap) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop is for container/heap.
func (h *rowHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	e.index = -1
	*h = old[:len(old)-1]
	return e
}

func (p *planner) tickRead() {
	if !p.alive {
		return
	}
	p.s.queue.after(readEvery, p.tickRead)
	if p.reading {
		p.ticked = true
		return
	}
	p.readAhead()
}

func (p *planner) readAhead() {
	p.reading = true
	now := p.s.queue.now
	p.readOverdue(now+p.s.cfg.MarkAhead+readEvery, func() {
		until := p.s.queue.now + p.s.cfg.Horizon
		from := map[int32]key{}
		for id, o := range p.owned {
			from[id] = o.cursor
		}
		p.readPages(from, until, 0, func(id int32, upTo key) {
			if o := p.owned[id]; o != nil && upTo.compare(o.cursor) > 0 {
				o.cursor = upTo
			}
		}, p.readDone)
	})
}

// nudge reads what is over its time at once.
func (p *planner) nudge() {
	if p.reading {
		p.nudged = true
		return
	}
	p.reading = true
	until := max(p.s.queue.now+p.s.cfg.MarkAhead, p.wokenUntil)
	p.wokenUntil = 0
	p.readOverdue(until, p.readDone)
}

// lead is how long before its time the first row makes a mark begin.
func (p *planner) lead() time.Duration {
	return min(markLead+time.Duration(len(p.upcoming))*markCost, p.s.cfg.MarkAhead)
}

func (p *planner) readDone() {
	p.reading = false
	if p.ticked {
		p.ticked = false
		p.readAhead()
		return
	}
	if p.nudged {
		p.nudged = false
		p.nudge()
	}
}

// readOverdue begins at the beginning. The product's begins a minute back, or at the checkpoint; only rows that are due count, so that is the same.
func (p *planner) readOverdue(until time.Duration, then func()) {
	from := map[int32]key{}
	for id := range p.owned {
		from[id] = key{}
	}
	p.readPages(from, until, 0, func(int32, key) {}, then)
}

// readPages reads shards page by page. A shard that fills its share of a page goes on after the last row that it returned.
func (p *planner) readPages(from map[int32]key, until time.Duration, page int, done func(int32, key), then func()) {
	if len(from) == 0 || page == readPages {
		then()
		return
	}
	limit := max(readPage/len(from), 16)
	var found []seen
	next := map[int32]key{}
	p.s.db.do(statement{
		begin: func() time.Duration {
			for _, id := range slices.Sorted(maps.Keys(from)) {
				got := p.s.shards[id].readDue(from[id], until, limit)
				found = append(found, got...)
				if len(got) == limit {
					next[id] = got[limit-1].at
				}
			}
			return p.s.cfg.Costs.Read + time.Duration(len(found))*p.s.cfg.Costs.ReadRow
		},
		end: p.live(func() {
			p.s.result.RowsRead += len(found)
			p.s.result.Pages++
			p.merge(found)
			for id := range from {
				upTo, full := next[id]
				if !full {
					upTo = key{due: until - 1, number: math.MaxInt}
				}
				done(id, upTo)
			}
			p.readPages(next, until, page+1, done, then)
		}),
	})
}

// merge takes rows that were read, save those that are known.
func (p *planner) merge(found []seen) {
	for _, r := range found {
		if p.owned[r.shard.id] == nil || r.by == p && r.row.dispatch > r.dispatch {
			continue // not its own, or read before it was marked
		}
		if e := p.entries[r.row]; e != nil {
			if e.at == r.at || e.index < 0 {
				continue
			}
			heap.Remove(&p.upcoming, e.index)
		}
		e := &entry{seen: r, index: -1}
		p.entries[r.row] = e
		heap.Push(&p.upcoming, e)
	}
	p.plan()
}

// drop forgets what is not being marked or sent.
func (p *planner) drop(sh *shard) {
	p.upcoming = slices.DeleteFunc(p.upcoming, func(e *entry) bool {
		if e.shard == sh {
			delete(p.entries, e.row)
		}
		return e.shard == sh
	})
	for i, e := range p.upcoming {
		e.index = i
	}
	heap.Init(&p.upcoming)
	p.ready = slices.DeleteFunc(p.ready, func(e *entry) bool {
		if e.shard == sh {
			delete(p.entries, e.row)
		}
		return e.shard == sh
	})
}

// plan moves what is due to the ready list, and marks what is ready.
func (p *planner) plan() {
	now := p.s.queue.now
	if len(p.upcoming) > 0 && p.upcoming[0].at.due <= now+p.lead() {
		for len(p.upcoming) > 0 && p.upcoming[0].at.due <= now+p.s.cfg.MarkAhead {
			p.ready = append(p.ready, heap.Pop(&p.upcoming).(*entry)) //nolint:forcetypeassert // nothing else is in it
		}
	}
	for p.marking < maxMarks && len(p.ready) > 0 && !p.leaving {
		n := min(len(p.ready), p.s.cfg.Batch)
		batch := slices.Clone(p.ready[:n])
		p.ready = p.ready[n:]
		p.mark(batch)
	}
	if len(p.upcoming) == 0 {
		return
	}
	wake := max(p.upcoming[0].at.due-p.lead(), now)
	if p.waking > now && p.waking <= wake {
		return
	}
	p.waking = wake
	p.s.queue.at(wake, p.live(p.plan))
}

// mark is guarded: of two planners with one row the first to commit wins.
func (p *planner) mark(batch []*entry) {
	s := p.s
	p.marking++
	s.db.do(statement{
		begin: func() time.Duration { return s.cfg.Costs.Mark + time.Duration(len(batch))*s.cfg.Costs.MarkRow },
		end: func() {
			var won []*entry
			for _, e := range batch {
				if e.marked || e.row.dispatch != e.dispatch || e.key != e.at {
					s.result.Stale++
					continue
				}
				e.marked, e.markedAt, e.by = true, s.queue.now, p
				e.row.dispatch++
				e.shard.unsent[e.row] = true
				won = append(won, e)
			}
			p.live(func() { p.marked(batch, won) })()
		},
	})
}

func (p *planner) marked(batch, won []*entry) {
	p.marking--
	for _, e := range batch {
		delete(p.entries, e.row)
	}
	for _, e := range won {
		e.departing = true
		e.dispatch++
		p.entries[e.row] = e
		heap.Push(&p.departures, e)
	}
	p.depart()
	p.plan()
}

// depart publishes one hand-over after the other, none before its time.
func (p *planner) depart() {
	s := p.s
	if p.publishing || len(p.departures) == 0 {
		return
	}
	if wait := p.departures[0].at.due - s.queue.now; wait > 0 {
		s.queue.after(wait, p.live(p.depart))
		return
	}
	e := heap.Pop(&p.departures).(*entry) //nolint:forcetypeassert // nothing else is in it
	p.publishing = true
	s.queue.after(s.cfg.Costs.Publish, p.live(func() {
		p.publishing = false
		delete(p.entries, e.row)
		s.published(p, e)
		p.depart()
	}))
}

// published notes that a hand-over is in the stream.
func (s *sim) published(p *planner, e *entry) {
	r := e.row
	if r.dispatch != e.dispatch || r.sent {
		s.result.Twice++
		return
	}
	r.sent, r.lag = true, s.queue.now-r.scheduled
	p.handed++
	delete(r.shard.unsent, r)
}

// inOrder makes a walk over rows repeatable.
func (s *sim) inOrder(rows map[*row]bool) []*row {
	return slices.SortedFunc(maps.Keys(rows), func(a, b *row) int { return a.compare(b.key) })
}
