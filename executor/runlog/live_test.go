package runlog

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// collector keeps what went live, and when.
type collector struct {
	begin  time.Time
	chunks []Chunk
	sent   []time.Time
}

func newCollector() *collector { return &collector{begin: time.Now()} }

func (c *collector) live(chunk Chunk) {
	c.chunks = append(c.chunks, chunk)
	c.sent = append(c.sent, time.Now())
}

// lines is one line per chunk: when it was sent, what it says.
func (c *collector) lines() []string {
	var lines []string
	for i, chunk := range c.chunks {
		lines = append(lines, fmt.Sprintf("%v %v %v+%d %q", c.sent[i].Sub(c.begin), chunk.Time.Sub(c.begin), chunk.Stream, chunk.Offset, chunk.Data))
	}
	return lines
}

func pause(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestLiveLingersForWholeLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCollector()
		l := New(0, c.live)
		fmt.Fprint(l.Stdout(), "one\n")
		pause(50 * time.Millisecond)
		fmt.Fprint(l.Stderr(), "problem\n")
		fmt.Fprint(l.Stdout(), "two\nthr")
		pause(100 * time.Millisecond)
		fmt.Fprint(l.Stdout(), "ee\n")
		pause(time.Second)
		fmt.Fprint(l.Stdout(), "prompt> ")
		pause(time.Second)
		fmt.Fprint(l.Stdout(), "last\nwords")
		l.Close()
		pause(time.Second)
		want := []string{
			`100ms 0s stdout+0 "one\ntwo\n"`,
			`100ms 50ms stderr+0 "problem\n"`,
			`200ms 100ms stdout+8 "three\n"`,
			`1.25s 1.15s stdout+14 "prompt> "`,
			`2.15s 2.15s stdout+22 "last\nwords"`,
		}
		if diff := cmp.Diff(want, c.lines()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestLiveDoesNotDrownInAFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCollector()
		l := New(0, c.live)
		line := bytes.Repeat([]byte("x"), 99)
		line = append(line, '\n')
		const seconds, perMilli = 5, 50
		for range seconds * 1000 {
			for range perMilli {
				if _, err := l.Stdout().Write(line); err != nil {
					t.Fatal(err)
				}
			}
			pause(time.Millisecond)
		}
		total := int64(seconds * 1000 * perMilli * len(line))
		flooded := len(c.chunks)
		pause(time.Second)
		var live, passed int64
		for _, chunk := range c.chunks {
			live, passed = live+int64(len(chunk.Data)), passed+chunk.Cut
		}
		if live > LiveRate*(seconds+2) || live < LiveRate*(seconds-1) {
			t.Errorf("%d of %d bytes went live in %d seconds, want about %d per second", live, total, seconds, LiveRate)
		}
		// The end of the flood is told although nothing follows.
		if live+passed != total {
			t.Errorf("%d live + %d passed over, want %d", live, passed, total)
		}
		for i := 1; i < flooded; i++ {
			if gap := c.sent[i].Sub(c.sent[i-1]); gap > 300*time.Millisecond {
				t.Errorf("the live stream was silent for %v", gap)
			}
		}
		l.Close()
	})
}

// For any writes, the chunks of a stream follow each other without a hole that is not told, hold what was written, and are small.
func TestLiveAccountsForEveryByte(t *testing.T) {
	t.Parallel()
	check(t, func(t *rapid.T) {
		c := newCollector()
		l := New(100, c.live)
		_, whole := drawWrites(t, l, 100, 200)
		for range rapid.IntRange(0, 20).Draw(t, "large writes") {
			large := bytes.Repeat([]byte("0123456789\n"), rapid.IntRange(1, 3000).Draw(t, "size"))
			whole[Stderr] = append(whole[Stderr], large...)
			if _, err := l.Stderr().Write(large); err != nil {
				t.Fatal(err)
			}
		}
		l.Close()
		var end [3]int64
		for _, chunk := range c.chunks {
			if end[chunk.Stream]+chunk.Cut != chunk.Offset {
				t.Fatalf("%v: chunk at %d after %d, %d passed over", chunk.Stream, chunk.Offset, end[chunk.Stream], chunk.Cut)
			}
			end[chunk.Stream] = chunk.Offset + int64(len(chunk.Data))
			if !bytes.Equal(chunk.Data, whole[chunk.Stream][chunk.Offset:end[chunk.Stream]]) || len(chunk.Data) > ChunkSize {
				t.Fatalf("chunk %q of %v at %d is not what was written", chunk.Data, chunk.Stream, chunk.Offset)
			}
		}
		if end[Stdout] != int64(len(whole[Stdout])) || end[Stderr] != int64(len(whole[Stderr])) {
			t.Fatalf("the chunks end at %v, written were %d and %d", end, len(whole[Stdout]), len(whole[Stderr]))
		}
		checkRate(t, c)
	})
}

// checkRate looks at every second that begins with a chunk: what was saved up and what came in.
func checkRate(t *rapid.T, c *collector) {
	for i := range c.chunks {
		sum := 0
		for j := i; j < len(c.chunks) && c.sent[j].Sub(c.sent[i]) <= time.Second; j++ {
			sum += len(c.chunks[j].Data)
		}
		if sum > 2*LiveRate {
			t.Fatalf("%d bytes went live within a second", sum)
		}
	}
}
