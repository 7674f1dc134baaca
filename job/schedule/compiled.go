package schedule

import (
	"time"
)

// Instants are counted in microseconds of Unix time; nothing fires outside of these.
var (
	minMicro = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	maxMicro = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro() - 1
)

// Compiled is a parsed and checked schedule, for callers that ask more than once. It is immutable and safe for
// concurrent use; its methods answer exactly as those of the Schedule that it was made from.
type Compiled struct {
	source   source
	from, to int64 // inclusive bounds, from Start, End and the allowed instants
}

// source is the unbounded series of a kind of schedule. All bounds are inclusive microseconds within the allowed instants.
type source interface {
	// walk gives the fires from the instant on, in order; the walker is for one goroutine.
	walk(from int64) walker
	// count tells how many fires are in [from, to], at most limit (≥ 1), and gives the last one counted.
	count(from, to int64, limit int) (int, fire)
	// latest gives the last fire in [from, to].
	latest(from, to int64) (fire, bool)
}

// walker gives one fire after the other, each later than the one before; false when none is left up to `to`.
type walker interface {
	next(to int64) (fire, bool)
}

// fire is an occurrence before its text is made.
type fire struct {
	at     int64 // instant, microseconds
	civil  int64 // microseconds as if the civil time were UTC
	offset int64 // seconds east of UTC that belong to civil
}

func (f fire) occurrence() Occurrence {
	// Sub-minute offsets cannot be written in RFC 3339; FixedZone's own format cuts them and so do we.
	zone := time.FixedZone("", int(f.offset))
	text := time.UnixMicro(f.civil - f.offset*1e6).In(zone).Format(time.RFC3339Nano)
	return Occurrence{At: time.UnixMicro(f.at).UTC(), Civil: text}
}

// First is Schedule.First.
func (c *Compiled) First() (Occurrence, bool) {
	return c.firstIn(c.from, c.to)
}

// Next is Schedule.Next.
func (c *Compiled) Next(after time.Time) (Occurrence, bool) {
	return c.firstIn(max(c.from, micros(after)+1), c.to)
}

func (c *Compiled) firstIn(from, to int64) (Occurrence, bool) {
	if from > to {
		return Occurrence{}, false
	}
	f, ok := c.source.walk(from).next(to)
	if !ok {
		return Occurrence{}, false
	}
	return f.occurrence(), true
}

// Between is Schedule.Between.
func (c *Compiled) Between(after, until time.Time, limit int) (occ []Occurrence, more bool) {
	from, to := c.window(after, until)
	if from > to {
		return nil, false
	}
	w := c.source.walk(from)
	for {
		f, ok := w.next(to)
		if !ok {
			return occ, false
		}
		if len(occ) >= limit {
			return occ, true
		}
		occ = append(occ, f.occurrence())
	}
}

// Count is Schedule.Count.
func (c *Compiled) Count(after, until time.Time, limit int) (n int, last Occurrence) {
	from, to := c.window(after, until)
	if from > to || limit < 1 {
		return 0, Occurrence{}
	}
	n, f := c.source.count(from, to, limit)
	if n == 0 {
		return 0, Occurrence{}
	}
	return n, f.occurrence()
}

// Latest is Schedule.Latest.
func (c *Compiled) Latest(after, until time.Time) (Occurrence, bool) {
	from, to := c.window(after, until)
	if from > to {
		return Occurrence{}, false
	}
	f, ok := c.source.latest(from, to)
	if !ok {
		return Occurrence{}, false
	}
	return f.occurrence(), true
}

// window turns (after, until] into inclusive microseconds inside the bounds; empty when the first exceeds the second.
func (c *Compiled) window(after, until time.Time) (from, to int64) {
	return max(c.from, micros(after)+1), min(c.to, micros(until))
}

// micros truncates to microseconds and clamps to just outside of the allowed instants, where UnixMicro could overflow.
func micros(t time.Time) int64 {
	switch y := t.UTC().Year(); {
	case y < 1970:
		return minMicro - 1
	case y > 9999:
		return maxMicro + 1
	}
	return t.UnixMicro()
}
