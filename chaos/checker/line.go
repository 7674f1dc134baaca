package checker

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// LineKind is what a command says of itself.
type LineKind string

// The kinds of line. A command that is killed writes no end; that it lives shows how long it was there.
const (
	Start LineKind = "start"
	Alive LineKind = "alive"
	End   LineKind = "end"
)

// Line is one line of the file that all commands append to, each line with one write.
type Line struct {
	Kind     LineKind
	RunID    string
	Attempt  int32
	Dispatch int64
	Group    int // process group
	At       time.Time
	Number   int // of the job
}

// String is the line as it is written, without the newline.
func (l Line) String() string {
	return fmt.Sprintf("%s %s %d %d %d %d %d", l.Kind, l.RunID, l.Attempt, l.Dispatch, l.Group, l.At.UnixMicro(), l.Number)
}

// torn finds where a line begins that is not the first on its line: the one before was cut short by a kill in the middle of its append, as the kernel does
// where that crosses a page of the file.
var torn = regexp.MustCompile(`\S((?:start|alive|end) [0-9a-f-]{36} )`)

// ParseLines reads the whole file. What a kill cut short is passed over: the command did not live to say it. Any other line that is not one is an error, which
// names it.
func ParseLines(text string) ([]Line, error) {
	var out []Line
	n := 0
	for raw := range strings.Lines(text) {
		n++
		if at := torn.FindStringSubmatchIndex(raw); at != nil {
			raw = raw[at[2]:]
		}
		l, err := parseLine(strings.Fields(raw))
		if err != nil {
			return nil, fmt.Errorf("line %d, %q: %w", n, raw, err)
		}
		out = append(out, l)
	}
	return out, nil
}

func parseLine(f []string) (Line, error) {
	if len(f) != 7 {
		return Line{}, fmt.Errorf("has %d fields; allowed: 7", len(f))
	}
	l := Line{Kind: LineKind(f[0]), RunID: f[1]}
	if l.Kind != Start && l.Kind != Alive && l.Kind != End {
		return Line{}, fmt.Errorf("kind is %q; allowed: start, alive, end", f[0])
	}
	var n [5]int64
	for i, text := range f[2:] {
		var err error
		if n[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return Line{}, fmt.Errorf("field %d: %w", i+3, err)
		}
	}
	l.Attempt, l.Dispatch, l.Group, l.At, l.Number = int32(n[0]), n[1], int(n[2]), time.UnixMicro(n[3]).UTC(), int(n[4]) //nolint:gosec // written by ourselves
	return l, nil
}

// session is one process that worked on a run, from its start to its last sign of life.
type session struct {
	Line
	last  time.Time
	ended bool
}

// sessions are in the order of their starts.
func sessions(lines []Line) []session {
	type key struct {
		run      string
		dispatch int64
		group    int
	}
	at := map[key]int{}
	var out []session
	for _, l := range lines {
		k := key{l.RunID, l.Dispatch, l.Group}
		i, known := at[k]
		if l.Kind == Start || !known {
			// Without its start line it is a session all the same: the file is append-only, so this does not happen.
			at[k] = len(out)
			out = append(out, session{Line: l, last: l.At, ended: l.Kind == End})
			continue
		}
		if l.At.After(out[i].last) {
			out[i].last = l.At
		}
		out[i].ended = out[i].ended || l.Kind == End
	}
	slices.SortStableFunc(out, func(a, b session) int { return cmp.Compare(a.At.UnixMicro(), b.At.UnixMicro()) })
	return out
}
