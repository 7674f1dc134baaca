package runlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A stored log must be readable for as long as history is kept: this is the form of version 1, byte by byte.
const storedForm = "WCL\x01" +
	"\x01\x80\x80\xbf\xb3\xa7\xc0\xae\x03\x03hey" + // stdout, 2000-01-01T00:00:00Z
	"\x02\xd0\x0f\x02!\n" + // stderr, 1 ms later
	"\x11\x00\x06" + // stdout, 6 bytes missing
	"\x01\x00\x04tail" +
	"\x00"

func TestStoredForm(t *testing.T) {
	t.Parallel()
	// A bubble begins at the start of the year 2000.
	synctest.Test(t, func(t *testing.T) {
		l := New(7, nil)
		fmt.Fprint(l.Stdout(), "hey")
		pause(time.Millisecond)
		fmt.Fprint(l.Stderr(), "!\n")
		fmt.Fprint(l.Stdout(), "lost: tail")
		var b bytes.Buffer
		if err := l.Encode(&b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(storedForm, b.String()); diff != "" {
			t.Error(diff)
		}
		begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		want := []Entry{
			{Time: begin, Stream: Stdout, Data: []byte("hey")},
			{Time: begin.Add(time.Millisecond), Stream: Stderr, Data: []byte("!\n")},
			{Time: begin.Add(time.Millisecond), Stream: Stdout, Data: []byte("\n… 6 bytes cut here …\n"), Cut: 6},
			{Time: begin.Add(time.Millisecond), Stream: Stdout, Data: []byte("tail")},
		}
		if diff := cmp.Diff(want, stored(t, l)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestLargePiecesAreSplit(t *testing.T) {
	t.Parallel()
	l := New(0, nil)
	text := bytes.Repeat([]byte("0123456789abcdef"), 60_000)
	if _, err := l.Stderr().Write(text); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for _, e := range stored(t, l) {
		if len(e.Data) > maxFrameSize {
			t.Errorf("an entry of %d bytes", len(e.Data))
		}
		got = append(got, e.Data...)
	}
	if !bytes.Equal(got, text) {
		t.Errorf("%d bytes came back of %d", len(got), len(text))
	}
}

func decodeAll(r io.Reader) (last error) {
	for _, err := range Decode(r) {
		last = err
	}
	return last
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for length := range len(storedForm) {
		if err := decodeAll(strings.NewReader(storedForm[:length])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the first %d bytes: %v, want io.ErrUnexpectedEOF", length, err)
		}
	}
	for input, want := range map[string]string{
		"PNG\x01":                            `begins with "PNG"`,
		"WCL\x02":                            "version 2",
		"WCL\x01\x03":                        "unknown frame 0x03",
		"WCL\x01\x10":                        "unknown frame 0x10",
		"WCL\x01\x01\x00\x81\x80\x04":        "a frame of 65537 bytes",
		"WCL\x01\x12\x30\x00":                "a cut of 0 bytes",
		"WCL\x01\x01" + veryLong:             "overflow",
		"WCL\x01\x11\x00" + largest + "\x00": "a cut of",
	} {
		if err := decodeAll(strings.NewReader(input)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", input, err, want)
		}
	}
	broken := errors.New("the store is away")
	if err := decodeAll(io.MultiReader(strings.NewReader(storedForm[:9]), failing{broken})); !errors.Is(err, broken) {
		t.Errorf("%v does not hold the reader's error", err)
	}
}

const (
	veryLong = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
	largest  = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
)

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestEncodeReturnsTheWritersError(t *testing.T) {
	t.Parallel()
	full := errors.New("no space left")
	if err := New(0, nil).Encode(failingWriter{full}); !errors.Is(err, full) {
		t.Errorf("%v, want %v", err, full)
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

func FuzzDecode(f *testing.F) {
	f.Add([]byte(storedForm))
	f.Add([]byte("WCL\x01\x12\x00" + largest))
	f.Fuzz(func(t *testing.T, stored []byte) {
		for entry, err := range Decode(bytes.NewReader(stored)) {
			if err == nil && entry.Cut == 0 && len(entry.Data) > len(stored) {
				t.Errorf("%d bytes out of %d", len(entry.Data), len(stored))
			}
		}
	})
}
