package runlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// written is one write of a drawn sequence, and when it happened.
type written struct {
	stream Stream
	offset int
	bytes  []byte
	at     time.Time
}

// drawWrites writes a drawn sequence to l, with pauses on the bubble's clock, and returns it with the whole of each stream.
func drawWrites(t *rapid.T, l *Log, most, largest int) (sequence []written, whole [3][]byte) {
	for range rapid.IntRange(0, most).Draw(t, "writes") {
		s := rapid.SampledFrom([]Stream{Stdout, Stderr}).Draw(t, "stream")
		b := rapid.SliceOfN(rapid.SampledFrom([]byte("ab\n\x00\xff")), 0, largest).Draw(t, "bytes")
		if pause := rapid.SampledFrom([]time.Duration{0, 0, time.Millisecond, 12 * time.Millisecond, time.Second}).Draw(t, "pause"); pause > 0 {
			<-time.After(pause)
		}
		to := l.Stdout()
		if s == Stderr {
			to = l.Stderr()
		}
		sequence = append(sequence, written{s, len(whole[s]), bytes.Clone(b), time.Now()})
		whole[s] = append(whole[s], b...)
		if n, err := to.Write(b); n != len(b) || err != nil {
			t.Fatalf("Write of %d bytes: %d, %v", len(b), n, err)
		}
		for i := range b {
			// A writer may use its buffer again.
			b[i] = '!'
		}
	}
	return sequence, whole
}

// check is rapid.Check in a bubble of its own, whose clock costs nothing. A test in a bubble has no deadline that rapid could ask for.
func check(t *testing.T, property func(*rapid.T)) {
	synctest.Test(t, func(t *testing.T) { rapid.Check(struct{ testing.TB }{t}, property) })
}

type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func stored(t fataler, l *Log) []Entry {
	t.Helper()
	var b bytes.Buffer
	if err := l.Encode(&b); err != nil {
		t.Fatal(err)
	}
	var entries []Entry
	for entry, err := range Decode(&b) {
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, entry)
	}
	return entries
}

// timeless joins neighbours of one stream, so that only order and content are left.
func timeless[T any](items []T, of func(T) (Stream, []byte)) []string {
	var joined []string
	last := Stream(0)
	for _, item := range items {
		s, b := of(item)
		if len(b) == 0 {
			continue
		}
		if s != last {
			joined, last = append(joined, s.String()+":"), s
		}
		joined[len(joined)-1] += string(b)
	}
	return joined
}

func TestUnderTheLimitNothingChanges(t *testing.T) {
	t.Parallel()
	check(t, func(t *rapid.T) {
		l := New(0, nil)
		sequence, _ := drawWrites(t, l, 200, 300)
		l.Close()
		entries := stored(t, l)
		want := timeless(sequence, func(w written) (Stream, []byte) { return w.stream, w.bytes })
		got := timeless(entries, func(e Entry) (Stream, []byte) { return e.Stream, e.Data })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		if a, b := l.Truncated(); a != 0 || b != 0 {
			t.Fatalf("Truncated %d, %d", a, b)
		}
		checkTimes(t, sequence, entries)
	})
}

func checkTimes(t *rapid.T, sequence []written, entries []Entry) {
	var offset [3]int
	for _, e := range entries {
		for _, w := range sequence {
			begin := offset[e.Stream]
			if w.stream != e.Stream || begin < w.offset || begin >= w.offset+len(w.bytes) {
				continue
			}
			if late := w.at.Sub(e.Time); late < 0 || late >= 10*time.Millisecond+time.Microsecond {
				t.Fatalf("written at %v, stored as %v", w.at, e.Time)
			}
		}
		offset[e.Stream] += len(e.Data)
	}
}

func TestAboveTheLimitHeadAndTailStay(t *testing.T) {
	t.Parallel()
	check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 2000).Draw(t, "limit")
		l := New(limit, nil)
		_, whole := drawWrites(t, l, 120, 150)
		var head, tail [3][]byte
		var cut [3]int64
		for _, e := range stored(t, l) {
			switch {
			case e.Cut > 0:
				if cut[e.Stream] != 0 {
					t.Fatalf("%v is cut twice", e.Stream)
				}
				cut[e.Stream] = e.Cut
				line := fmt.Sprintf("… %d bytes cut here …\n", e.Cut)
				if h := head[e.Stream]; len(h) > 0 && h[len(h)-1] != '\n' {
					line = "\n" + line
				}
				if string(e.Data) != line {
					t.Fatalf("the place of the cut reads %q, want %q", e.Data, line)
				}
			case cut[e.Stream] == 0:
				head[e.Stream] = append(head[e.Stream], e.Data...)
			default:
				tail[e.Stream] = append(tail[e.Stream], e.Data...)
			}
		}
		stdout, stderr := l.Truncated()
		for s, truncated := range map[Stream]int64{Stdout: stdout, Stderr: stderr} {
			all := whole[s]
			wantHead, wantTail := all, []byte(nil)
			if len(all) > limit {
				wantHead, wantTail = all[:limit/2], all[len(all)-(limit-limit/2):]
			}
			if !bytes.Equal(head[s], wantHead) || !bytes.Equal(tail[s], wantTail) {
				t.Fatalf("%v of %d bytes, limit %d: head %q, tail %q\nwant head %q, tail %q", s, len(all), limit, head[s], tail[s], wantHead, wantTail)
			}
			if missing := int64(max(len(all)-limit, 0)); truncated != missing || cut[s] != missing {
				t.Fatalf("%v: Truncated %d, marked %d, want %d", s, truncated, cut[s], missing)
			}
		}
		checkMemory(t, l, limit)
	})
}

func checkMemory(t fataler, l *Log, limit int) {
	t.Helper()
	for i := range l.streams {
		s := &l.streams[i]
		if held := cap(s.head) + cap(s.tail); held > limit+512 {
			t.Fatalf("%d bytes are held, limit %d", held, limit)
		}
		// append may round up what it allocates.
		if marks, most := cap(s.headMarks)+cap(s.tailMarks), 2*2*max(64, limit/64); marks > most {
			t.Fatalf("room for %d marks, want at most %d", marks, most)
		}
	}
}

// The worst for the overhead: the streams take turns byte by byte.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	l := New(limit, func(Chunk) {})
	for i := range 1 << 20 {
		w := l.Stdout()
		if i%2 == 1 {
			w = l.Stderr()
		}
		if _, err := w.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	checkMemory(t, l, limit)
	l.mu.Lock()
	for i := range l.live.pending {
		if held := cap(l.live.pending[i].bytes); held > 2*ChunkSize {
			t.Errorf("%d bytes wait to go live", held)
		}
	}
	l.mu.Unlock()
	// Also in one piece.
	if _, err := l.Stdout().Write(make([]byte, 32<<20)); err != nil {
		t.Fatal(err)
	}
	checkMemory(t, l, limit)
}

func TestConcurrentWriters(t *testing.T) {
	t.Parallel()
	var live sync.Map
	l := New(0, func(c Chunk) { live.Store([2]int64{int64(c.Stream), c.Offset}, string(c.Data)) })
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			w := l.Stdout()
			if i%2 == 1 {
				w = l.Stderr()
			}
			for n := range 500 {
				fmt.Fprintf(w, "writer %d line %d\n", i, n)
			}
		})
	}
	all.Go(func() {
		for range 20 {
			if err := l.Encode(io.Discard); err != nil {
				t.Error(err)
			}
			l.Truncated()
		}
	})
	all.Wait()
	l.Close()
	l.Close()
	if _, err := l.Stdout().Write([]byte("late")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Write after Close: %v, want os.ErrClosed", err)
	}
	var text strings.Builder
	for _, e := range stored(t, l) {
		text.Write(e.Data)
	}
	// Each write is whole, and those of one writer are in order.
	next := [8]int{}
	for line := range strings.Lines(text.String()) {
		var writer, n int
		if _, err := fmt.Sscanf(line, "writer %d line %d\n", &writer, &n); err != nil || next[writer] != n {
			t.Fatalf("line %q, want line %d of this writer (%v)", line, next[writer], err)
		}
		next[writer]++
	}
	if want := [8]int{500, 500, 500, 500, 500, 500, 500, 500}; next != want {
		t.Errorf("lines per writer %v", next)
	}
}
