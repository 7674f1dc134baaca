package schedule

import (
	"fmt"
	"testing"
	"time"
)

// checkSegments walks a zone from 1970 to 2110 and holds what within() relies on: segments touch, each knows the offset before it
// wherever it is asked from, offsets stay within reach, and changes are further apart than reach.
func checkSegments(loc *time.Location) error {
	end := time.Date(2110, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	seg, changed := segmentAt(loc, 0), -beyond
	for seg.end < end {
		next := segmentAt(loc, seg.end)
		if next.end <= seg.end {
			return fmt.Errorf("the segment at %d ends at %d", seg.end, next.end)
		}
		if next.offset < -15*3600 || next.offset > 15*3600 {
			return fmt.Errorf("offset %d at %d", next.offset, next.start)
		}
		if next.offset != seg.offset {
			if next.start != seg.end || next.before != seg.offset {
				return fmt.Errorf("segment %+v is followed by %+v", seg, next)
			}
			last := min(next.end, end) - 1
			for _, inside := range []int64{next.start, next.start + 60, (next.start + last) / 2, last} {
				// A segment may be cut at the turn of a year, but then nothing changes there.
				again := segmentAt(loc, inside)
				cut := again.start > next.start && again.before == next.offset
				if again.offset != next.offset || !cut && (again.start != next.start || again.before != seg.offset) {
					return fmt.Errorf("segment %+v is %+v when asked at %d", next, again, inside)
				}
			}
			if next.start-changed < reach {
				return fmt.Errorf("changes at %d and %d", changed, next.start)
			}
			changed = next.start
		}
		seg = next
	}
	return nil
}

// TestParserPanicIsAnError: a bare field makes robfig panic when it begins as a zone does and has no space.
func TestParserPanicIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := cronFields[0].parse("TZ=UTC"); err == nil {
		t.Error("no error")
	}
}

func TestDescriptorsAreReadAsFields(t *testing.T) {
	t.Parallel()
	for name := range descriptors {
		r, reason := parseSpec(name)
		if reason != "" {
			t.Fatal(name, reason)
		}
		if r.elapsed != (name == "@hourly") {
			t.Errorf("%s: elapsed is %v", name, r.elapsed)
		}
	}
}
