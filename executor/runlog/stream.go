package runlog

import (
	"slices"
	"time"
)

// sameMoment is how long writes to one stream that are not interrupted by the other share a time.
const sameMoment = 10_000 // microseconds

// mark says when the bytes from an offset on were written, and in which place among those of the other stream.
type mark struct {
	offset int64
	order  uint64
	micros int64 // since the Unix epoch
}

// stream keeps the head and the tail of one stream.
type stream struct {
	total     int64
	head      []byte
	headLimit int
	tail      []byte // once it has tailLimit bytes, a ring
	tailLimit int
	oldest    int // where the ring begins
	headMarks []mark
	tailMarks []mark
	maxMarks  int
}

func newStream(limit int) stream {
	// A mark has 24 bytes and there are two lists of them: a full one costs less than the bytes it is for.
	return stream{headLimit: limit / 2, tailLimit: limit - limit/2, maxMarks: max(64, limit/64)}
}

func (s *stream) write(p []byte, at time.Time, order uint64) {
	if room := s.headLimit - len(s.head); room > 0 {
		n := min(room, len(p))
		s.headMarks = s.addMark(s.headMarks, 0, at, order)
		s.head = grow(s.head, n, s.headLimit)
		s.head = append(s.head, p[:n]...)
		s.total += int64(n)
		p = p[n:]
	}
	if len(p) == 0 {
		return
	}
	s.tailMarks = s.addMark(s.tailMarks, s.tailOffset(), at, order)
	s.writeTail(p)
	s.total += int64(len(p))
}

func (s *stream) writeTail(p []byte) {
	if len(p) > s.tailLimit {
		p = p[len(p)-s.tailLimit:]
	}
	if room := s.tailLimit - len(s.tail); room > 0 {
		n := min(room, len(p))
		s.tail = grow(s.tail, n, s.tailLimit)
		s.tail = append(s.tail, p[:n]...)
		p = p[n:]
	}
	for len(p) > 0 {
		n := copy(s.tail[s.oldest:], p)
		s.oldest = (s.oldest + n) % s.tailLimit
		p = p[n:]
	}
}

// addMark marks what is written next, unless the last mark covers it. begin is the offset of the first byte that the list is for.
func (s *stream) addMark(marks []mark, begin int64, at time.Time, order uint64) []mark {
	micros := at.UnixMicro()
	if n := len(marks); n > 0 && marks[n-1].order == order && micros-marks[n-1].micros < sameMoment {
		return marks
	}
	if len(marks) >= s.maxMarks {
		marks = thin(marks, begin, s.maxMarks/2)
	}
	return append(marks, mark{offset: s.total, order: order, micros: micros})
}

// thin drops the marks that end before begin; if more than enough are left, also every second one, whose bytes then count to the mark before.
func thin(marks []mark, begin int64, enough int) []mark {
	unneeded := 0
	for unneeded+1 < len(marks) && marks[unneeded+1].offset <= begin {
		unneeded++
	}
	marks = slices.Delete(marks, 0, unneeded)
	if len(marks) <= enough {
		return marks
	}
	kept := marks[:0]
	for i := 0; i < len(marks); i += 2 {
		kept = append(kept, marks[i])
	}
	return kept
}

// grow makes room for n more bytes and never for more than limit in all, which append would.
func grow(b []byte, n, limit int) []byte {
	need := len(b) + n
	if need <= cap(b) {
		return b
	}
	larger := make([]byte, len(b), min(limit, max(need, 2*cap(b), 512)))
	copy(larger, b)
	return larger
}

func (s *stream) tailOffset() int64 { return s.total - int64(len(s.tail)) }

func (s *stream) cut() int64 { return s.tailOffset() - int64(len(s.head)) }

// tailBytes is the tail in order of writing.
func (s *stream) tailBytes() []byte {
	return slices.Concat(s.tail[s.oldest:], s.tail[:s.oldest])
}

// piece is a stretch of one stream that shares a mark; cut is the number of bytes that are missing before it.
type piece struct {
	stream Stream
	order  uint64
	micros int64
	bytes  []byte
	cut    int64
}

// pieces is what is kept, in order of writing.
func (s *stream) pieces(name Stream) []piece {
	pieces := split(nil, name, s.head, 0, s.headMarks)
	firstOfTail := len(pieces)
	pieces = split(pieces, name, s.tailBytes(), s.tailOffset(), s.tailMarks)
	if firstOfTail < len(pieces) {
		pieces[firstOfTail].cut = s.cut()
	}
	return pieces
}

// split cuts b, which begins at offset of its stream, at the marks; the first marks may lie before it.
func split(pieces []piece, name Stream, b []byte, offset int64, marks []mark) []piece {
	end := offset + int64(len(b))
	for i, m := range marks {
		from, to := max(m.offset, offset), end
		if i+1 < len(marks) {
			to = marks[i+1].offset
		}
		if from < to {
			pieces = append(pieces, piece{stream: name, order: m.order, micros: m.micros, bytes: b[from-offset : to-offset]})
		}
	}
	return pieces
}
