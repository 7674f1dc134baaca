package harness

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock-io/waterclock/chaos/checker"
)

func TestRecoveryIsMeasuredFromTheFault(t *testing.T) {
	t.Parallel()
	at := func(seconds float64) time.Time {
		return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	job := func(number int, due, asked, given float64) sent {
		return sent{number: number, due: at(due), asked: at(asked), given: at(given)}
	}
	jobs := []sent{
		job(1, 5, 2, 2.1),    // before
		job(2, 11, 8, 8.1),   // fell due in the fault, and began a second after its end
		job(3, 15, 11, 14.5), // asked for in it, answered two and a half seconds after its end
		job(4, 16, 13, 13.1), // after it
	}
	line := func(kind checker.LineKind, run string, number int, dispatch int64, seconds float64) checker.Line {
		return checker.Line{Kind: kind, RunID: run, Number: number, Dispatch: dispatch, At: at(seconds)}
	}
	lines := []checker.Line{
		line(checker.Start, "a", 1, 1, 9), line(checker.Alive, "a", 1, 1, 10), // killed, and begun again
		line(checker.Start, "b", 2, 1, 13), line(checker.End, "b", 2, 1, 13.1),
		line(checker.Start, "a", 1, 2, 14),
		line(checker.Start, "c", 3, 1, 15.2), line(checker.Start, "d", 4, 1, 16.1),
	}
	var rec Recovery
	rec.add(checker.Window{From: at(10), Till: at(12)}, jobs, lines)
	want := Recovery{Starts: []time.Duration{time.Second}, Again: []time.Duration{4 * time.Second}, Submits: []time.Duration{2500 * time.Millisecond}}
	if diff := cmp.Diff(want, rec); diff != "" {
		t.Error(diff)
	}
	rec.Kind = "kill -9 planner"
	var out bytes.Buffer
	if err := PrintRecoveries(&out, []Recovery{rec}); err != nil || !strings.Contains(out.String(), "| kill -9 planner | 1") || !strings.Contains(out.String(), "2.5s") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// A job that has not begun in the time that is looked at counts as late for all of it.
func TestRecoverySeesWhatNeverBegan(t *testing.T) {
	t.Parallel()
	from := time.Unix(1000, 0)
	var rec Recovery
	rec.add(checker.Window{From: from, Till: from.Add(time.Second)}, []sent{{number: 1, due: from.Add(2 * time.Second), asked: from, given: from}}, nil)
	if want := settled - flowAhead - time.Second; rec.Starts[0] != want {
		t.Errorf("late by %s, want %s", rec.Starts[0], want)
	}
}
