package runlog

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"time"
)

// Decode reads the stored form. It yields the entries in order of writing and holds one of them, at most 64 KiB, at a time. After an error, which
// says what is wrong with the log or is that of r, it ends; io.ErrUnexpectedEOF means that the log was cut off in storage.
func Decode(r io.Reader) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		d := decoder{r: bufio.NewReader(r)}
		if err := d.header(); err != nil {
			yield(Entry{}, fmt.Errorf("decode log: %w", unexpected(err)))
			return
		}
		for {
			entry, end, err := d.frame()
			if err != nil {
				yield(Entry{}, fmt.Errorf("decode log: %w", unexpected(err)))
				return
			}
			if end || !yield(entry, nil) {
				return
			}
		}
	}
}

type decoder struct {
	r    *bufio.Reader
	last int64   // microseconds
	open [3]bool // per stream: a line has begun and not ended
}

func (d *decoder) header() error {
	var b [len(magic) + 1]byte
	if _, err := io.ReadFull(d.r, b[:]); err != nil {
		return err
	}
	if string(b[:len(magic)]) != magic {
		return fmt.Errorf("it begins with %q, a log with %q", b[:len(magic)], magic)
	}
	if b[len(magic)] != version {
		return fmt.Errorf("version %d is not known, only %d is", b[len(magic)], version)
	}
	return nil
}

func (d *decoder) frame() (entry Entry, end bool, err error) {
	kind, err := d.r.ReadByte()
	if err != nil {
		return Entry{}, false, err
	}
	stream, cut := Stream(kind&^frameCut), kind&frameCut != 0
	switch {
	case kind == frameEnd:
		return Entry{}, true, nil
	case stream != Stdout && stream != Stderr:
		return Entry{}, false, fmt.Errorf("unknown frame 0x%02x", kind)
	}
	elapsed, err := binary.ReadVarint(d.r)
	if err != nil {
		return Entry{}, false, err
	}
	number, err := binary.ReadUvarint(d.r)
	if err != nil {
		return Entry{}, false, err
	}
	d.last += elapsed
	entry = Entry{Time: time.UnixMicro(d.last).UTC(), Stream: stream}
	if cut {
		if number == 0 || number > math.MaxInt64 {
			return Entry{}, false, fmt.Errorf("a cut of %d bytes", number)
		}
		entry.Cut, entry.Data = int64(number), d.cutLine(stream, number)
		return entry, false, nil
	}
	if number > maxFrameSize {
		return Entry{}, false, fmt.Errorf("a frame of %d bytes, at most %d are allowed", number, maxFrameSize)
	}
	entry.Data = make([]byte, number)
	if _, err := io.ReadFull(d.r, entry.Data); err != nil {
		return Entry{}, false, err
	}
	if number > 0 {
		d.open[stream] = entry.Data[number-1] != '\n'
	}
	return entry, false, nil
}

// cutLine is a line of its own, also where the cut went through one.
func (d *decoder) cutLine(stream Stream, number uint64) []byte {
	line := fmt.Sprintf("… %d bytes cut here …\n", number)
	if d.open[stream] {
		line = "\n" + line
	}
	d.open[stream] = false
	return []byte(line)
}

// unexpected makes the end of the input inside a log an error.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
