package runlog

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"io"
	"slices"
	"time"
)

// The stored form is the four bytes "WCL" and the version 1, then frames, the last of which is the end:
//
//	end     0x00
//	output  0x01 stdout or 0x02 stderr, time, length, that many bytes (at most 64 KiB)
//	cut     0x11 stdout or 0x12 stderr, time, number of bytes that are missing here
//
// Time is the difference in microseconds from the frame before, the first one from the Unix epoch, as a signed varint; lengths and numbers are
// unsigned varints (encoding/binary). Frames stand in order of writing. A log without its end was cut off in storage.
const (
	magic        = "WCL"
	version      = 1
	frameEnd     = 0x00
	frameCut     = 0x10
	maxFrameSize = 64 << 10
)

// Entry is a stretch of stored output, or the place where output is missing.
type Entry struct {
	// Time is when the first byte was written, to the microsecond, in UTC.
	Time time.Time
	// Stream is where it was written.
	Stream Stream
	// Data is the output; where output is missing, one line that says so, for readers that show the log as it is.
	Data []byte
	// Cut is the number of bytes that are missing here, 0 for output.
	Cut int64
}

// Encode writes the stored form of what has been captured so far, usually after Close. Errors are those of w.
func (l *Log) Encode(w io.Writer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	pieces := append(l.streams[0].pieces(Stdout), l.streams[1].pieces(Stderr)...)
	slices.SortStableFunc(pieces, func(a, b piece) int { return cmp.Compare(a.order, b.order) })

	e := encoder{w: bufio.NewWriter(w)}
	// bufio.Writer keeps the first error for Flush.
	_, _ = e.w.WriteString(magic)
	_ = e.w.WriteByte(version)
	for _, p := range pieces {
		if p.cut > 0 {
			e.frame(frameCut|byte(p.stream), p.micros, uint64(p.cut), nil)
		}
		for part := range slices.Chunk(p.bytes, maxFrameSize) {
			e.frame(byte(p.stream), p.micros, uint64(len(part)), part)
		}
	}
	_ = e.w.WriteByte(frameEnd)
	return e.w.Flush()
}

type encoder struct {
	w       *bufio.Writer
	last    int64
	scratch []byte
}

func (e *encoder) frame(kind byte, micros int64, number uint64, b []byte) {
	e.scratch = append(e.scratch[:0], kind)
	e.scratch = binary.AppendVarint(e.scratch, micros-e.last)
	e.scratch = binary.AppendUvarint(e.scratch, number)
	e.last = micros
	_, _ = e.w.Write(e.scratch)
	_, _ = e.w.Write(b)
}
