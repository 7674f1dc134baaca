package schedule

import (
	"time"
)

// cronSource is a rule on the walls of a zone.
type cronSource struct {
	rule rule
	loc  *time.Location
}

// reach is further apart, in seconds, than a civil time read as if it were UTC and the instant of its fire can be: offsets since
// 1970 stay within 14 hours, and a gap is at most a day.
const reach = 2 * daySeconds

func (c *cronSource) walk(from int64) walker {
	return &cronWalker{cronSource: c, at: ceilSecond(from)}
}

func (c *cronSource) count(from, to int64, limit int) (n int, last fire) {
	w := c.walk(from)
	for n < limit {
		f, ok := w.next(to)
		if !ok {
			break
		}
		n, last = n+1, f
	}
	return n, last
}

// latest bisects: whether anything fires from an instant on, up to `to`, is true before the last fire and false after it.
func (c *cronSource) latest(from, to int64) (fire, bool) {
	w := cronWalker{cronSource: c, at: ceilSecond(from)}
	last, ok := w.next(to)
	if !ok {
		return fire{}, false
	}
	// Nothing fires at or after high; last is the latest fire known. Probing backwards in doubled steps finds the usual near fire soon.
	high := to/1e6 + 1
	for step := int64(60); ; step = min(step*2, beyond) {
		low := last.at/1e6 + 1
		if low >= high {
			return last, true
		}
		probe := max(high-step, low+(high-low)/2)
		w.at = probe
		if f, ok := w.next(to); ok {
			last = f
		} else {
			high = probe
		}
	}
}

func ceilSecond(micro int64) int64 { return (micro + 1e6 - 1) / 1e6 }

// cronWalker goes from segment to segment of the zone; within one, the wall and the instants differ by a constant.
type cronWalker struct {
	*cronSource
	at  int64   // seconds; everything before has been given out
	seg segment // the last one used; the zero value holds no instant
}

func (w *cronWalker) next(to int64) (fire, bool) {
	last := to / 1e6
	for {
		civil, ok := w.rule.next(w.at - reach)
		if !ok {
			return fire{}, false
		}
		w.at = max(w.at, civil-reach)
		if w.at > last {
			return fire{}, false
		}
		if w.at < w.seg.start || w.at >= w.seg.end {
			w.seg = segmentAt(w.loc, w.at)
		}
		f, ok := w.within()
		if !ok {
			w.at = w.seg.end
			continue
		}
		if f.at > last*1e6 {
			return fire{}, false
		}
		w.at = f.at/1e6 + 1
		return f, true
	}
}

// within gives the first fire of the segment at or after w.at.
func (w *cronWalker) within() (fire, bool) {
	seg := w.seg
	from := w.at + seg.offset
	if !w.rule.elapsed {
		// Second pass of an overlap: up to here the wall has been read before. No two changes of a zone are so near to each other
		// that the pass before the last could matter.
		from = max(from, seg.start+seg.before)
	}
	civil, ok := w.rule.next(from)
	regular := ok && civil-seg.offset < seg.end
	if w.at == seg.start && !w.rule.elapsed && (!regular || civil-seg.offset > seg.start) {
		if lost, ok := w.rule.next(seg.start + seg.before); ok && lost < seg.start+seg.offset {
			return newFire(seg.start, lost, seg.before), true
		}
	}
	if !regular {
		return fire{}, false
	}
	return newFire(civil-seg.offset, civil, seg.offset), true
}

// newFire takes seconds.
func newFire(at, civil, offset int64) fire {
	return fire{at: at * 1e6, civil: civil * 1e6, offset: offset}
}
