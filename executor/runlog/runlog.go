// Package runlog captures what a run writes to standard output and standard error: bounded in memory whatever is written, live in small
// chunks while it happens, and as one stored form at the end.
//
// Of each stream at most the limit is kept, the first and the last half of it; what lay between is counted and marked by one line. Bytes
// that are kept are kept exactly. The order between the streams and the times are exact to a line or ten milliseconds for usual output; a
// run that makes very many alternating small writes keeps them more coarsely, which keeps the overhead below the limit too.
//
// The package does not interpret or escape output, and does not know runs, NATS or the blob store. An executor makes one Log per attempt, gives its
// writers to the work, publishes the live chunks and stores what Encode writes; readers of the stored log use Decode.
package runlog

import (
	"io"
	"os"
	"sync"
	"time"
)

// DefaultLimit is the number of bytes that are kept of each stream when no limit is given.
const DefaultLimit = 1 << 20

// Stream is one of a run's two streams.
type Stream byte

// The streams, with the numbers that the stored form has for them.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

func (s Stream) String() string {
	switch s {
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	default:
		return "unknown stream"
	}
}

// Log captures one run's output. Its methods may be called by several goroutines at once.
type Log struct {
	mu      sync.Mutex
	streams [2]stream // Stdout, Stderr
	order   uint64    // counts the changes from one stream to the other
	last    Stream
	live    *live
	closed  bool
}

// New makes a Log that keeps at most limit bytes of each stream; limit below 1 means DefaultLimit. live, if not nil, gets the output while
// it is written, one call at a time; it must be quick, for the run's writes wait for it, and must not call the Log.
func New(limit int, live func(Chunk)) *Log {
	if limit < 1 {
		limit = DefaultLimit
	}
	l := &Log{}
	for i := range l.streams {
		l.streams[i] = newStream(limit)
	}
	if live != nil {
		l.live = newLive(live)
	}
	return l
}

// Stdout is where standard output is written. Writes fail only after Close.
func (l *Log) Stdout() io.Writer { return writer{l, Stdout} }

// Stderr is where standard error is written. Writes fail only after Close.
func (l *Log) Stderr() io.Writer { return writer{l, Stderr} }

type writer struct {
	log    *Log
	stream Stream
}

func (w writer) Write(p []byte) (int, error) { return w.log.write(w.stream, p) }

func (l *Log) write(s Stream, p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, os.ErrClosed
	}
	if len(p) == 0 {
		return 0, nil
	}
	at := time.Now()
	if s != l.last {
		l.order++
		l.last = s
	}
	target := &l.streams[s-1]
	if l.live != nil {
		l.live.write(s, target.total, p, at, l.linger)
	}
	target.write(p, at, l.order)
	return len(p), nil
}

// linger is called by the timer of live.
func (l *Log) linger() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.live.lingered(l.linger)
	}
}

// Close hands out what the live stream still holds back; no call of live comes after it. Writes fail from then on. What was captured stays.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	if l.live != nil {
		l.live.close()
	}
}

// Truncated is the number of bytes of each stream that were written but are not kept.
func (l *Log) Truncated() (stdout, stderr int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.streams[0].cut(), l.streams[1].cut()
}
