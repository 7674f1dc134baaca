package runlog

import (
	"bytes"
	"time"
)

const (
	// Linger is how long a chunk waits for more; a line that does not end waits once more.
	Linger = 100 * time.Millisecond
	// ChunkSize is the largest number of bytes in a live chunk.
	ChunkSize = 8 << 10
	// LiveRate is how many bytes per second of both streams together go live, and how many may go at once after a quiet second.
	LiveRate = 64 << 10
)

// Chunk is a piece of output as it goes live.
type Chunk struct {
	Stream Stream
	// Time is when its first byte was written.
	Time time.Time
	// Offset is where Data begins in its stream.
	Offset int64
	// Data belongs to the receiver. It is empty in a chunk that only tells of bytes passed over.
	Data []byte
	// Cut is the number of bytes right before Offset that did not go live because the stream was too fast. The stored log may have them.
	Cut int64
}

// live hands out chunks. The Log's lock guards it.
type live struct {
	send    func(Chunk)
	pending [2]pending
	timer   *time.Timer
	armed   bool
	tokens  int64 // bytes that may go live
	filled  time.Time
}

// pending is what one stream has not handed out yet.
type pending struct {
	bytes  []byte
	offset int64 // of the first byte after passed
	at     time.Time
	passed int64
}

func newLive(send func(Chunk)) *live {
	return &live{send: send, tokens: LiveRate, filled: time.Now()}
}

func (l *live) write(s Stream, offset int64, p []byte, at time.Time, linger func()) {
	q := &l.pending[s-1]
	for len(p) > 0 {
		if len(q.bytes) == 0 {
			q.offset, q.at = offset, at
		}
		n := min(ChunkSize-len(q.bytes), len(p))
		q.bytes = append(q.bytes, p[:n]...)
		p, offset = p[n:], offset+int64(n)
		if len(q.bytes) == ChunkSize {
			l.handOut(s, wholeLines(q.bytes), at)
		}
	}
	if q.waiting() && !l.armed {
		l.arm(linger)
	}
}

func (q *pending) waiting() bool { return len(q.bytes) > 0 || q.passed > 0 }

func (l *live) arm(linger func()) {
	l.armed = true
	if l.timer == nil {
		l.timer = time.AfterFunc(Linger, linger)
		return
	}
	l.timer.Reset(Linger)
}

// lingered hands out whole lines, or what there is if no line ends in it. The rest waits for another Linger.
func (l *live) lingered(linger func()) {
	l.armed = false
	at := time.Now()
	for i := range l.pending {
		q := &l.pending[i]
		if len(q.bytes) > 0 {
			l.handOut(Stream(i+1), wholeLines(q.bytes), at)
		} else if q.passed > 0 {
			l.tell(Stream(i+1), at)
		}
	}
	for i := range l.pending {
		if l.pending[i].waiting() {
			l.arm(linger)
			return
		}
	}
}

func (l *live) close() {
	if l.timer != nil {
		l.timer.Stop()
	}
	at := time.Now()
	for i := range l.pending {
		q := &l.pending[i]
		if len(q.bytes) > 0 {
			l.handOut(Stream(i+1), len(q.bytes), at)
		}
		if q.passed > 0 {
			l.tell(Stream(i+1), at)
		}
	}
}

// wholeLines is the length of b up to its last line end, or all of it without one.
func wholeLines(b []byte) int {
	if end := bytes.LastIndexByte(b, '\n'); end >= 0 {
		return end + 1
	}
	return len(b)
}

// handOut sends the first n pending bytes, or passes over them when the rate is used up.
func (l *live) handOut(s Stream, n int, at time.Time) {
	q := &l.pending[s-1]
	if l.take(int64(n), at) {
		l.send(Chunk{Stream: s, Time: q.at, Offset: q.offset, Data: bytes.Clone(q.bytes[:n]), Cut: q.passed})
		q.passed = 0
	} else {
		q.passed += int64(n)
	}
	q.offset += int64(n)
	q.at = at
	q.bytes = append(q.bytes[:0], q.bytes[n:]...)
}

// tell sends the number of bytes passed over by itself, when nothing follows that could carry it.
func (l *live) tell(s Stream, at time.Time) {
	q := &l.pending[s-1]
	l.send(Chunk{Stream: s, Time: at, Offset: q.offset, Cut: q.passed})
	q.passed = 0
}

func (l *live) take(n int64, at time.Time) bool {
	// More than a second's worth is never saved up; the bound also keeps the product small.
	if quiet := min(max(at.Sub(l.filled), 0), time.Second); quiet > 0 {
		l.tokens = min(LiveRate, l.tokens+LiveRate*int64(quiet)/int64(time.Second))
		l.filled = at
	}
	if n > l.tokens {
		return false
	}
	l.tokens -= n
	return true
}
