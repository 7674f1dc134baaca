package checker

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock-io/waterclock/job/schedule"
)

func TestWindowsAreMergedAndCutOut(t *testing.T) {
	t.Parallel()
	w := func(from, till float64) Window { return Window{at(from), at(till)} }
	got := merged([]Window{w(5, 6), w(1, 2), w(2, 3), w(9, 8), w(2.5, 2.7)})
	if diff := cmp.Diff([]Window{w(1, 3), w(5, 6)}, got); diff != "" {
		t.Error(diff)
	}
	for _, tt := range []struct {
		in   Window
		want []Window
	}{
		{w(0, 10), []Window{w(0, 1), w(3, 5), w(6, 10)}},
		{w(2, 5.5), []Window{w(3, 5)}},
		{w(1, 3), nil},
		{w(6, 7), []Window{w(6, 7)}},
		{w(7, 6), nil},
	} {
		if diff := cmp.Diff(tt.want, tt.in.without(got)); diff != "" {
			t.Errorf("%v: %s", tt.in, diff)
		}
	}
}

// seriesOf is a job with runs that are due each second and began as told; all ended 100 ms later.
func seriesOf(overlap string, starts ...float64) *History {
	h := &History{Slots: map[string]int{"default": 1}, Jobs: []Job{{
		ID: "j", Found: true, Overlap: overlap, Schedule: schedule.Schedule{Kind: schedule.Every, Period: time.Second, Anchor: at(1), End: at(99)},
	}}}
	for i, start := range starts {
		ran(h, &h.Jobs[0], string(rune('a'+i)), float64(i+1), start)
	}
	return h
}

func TestWaitBeginsWhenTheRunMayHaveBecomeDue(t *testing.T) {
	t.Parallel()
	longest := func(h *History) time.Duration {
		if w := waitsOf(h); len(w) > 0 {
			return w[0].Idle.long().Round(time.Millisecond)
		}
		return 0
	}
	// The slot counts as taken for half a second before a start too.
	h := seriesOf("allow", 1.2, 9)
	if got := longest(h); got != 6500*time.Millisecond {
		t.Errorf("due at 2, begun at 9: %s", got)
	}
	h = seriesOf("allow", 8, 9)
	h.Work = without(h.Work, "a")
	h.Jobs[0].Runs[0].EndedAt = at(8)
	if got := longest(h); got != 500*time.Millisecond {
		t.Errorf("the occurrence before came to its end at 8: %s", got)
	}
	h = seriesOf("", 1, 9)
	h.Jobs[0].Runs[0].EndedAt = at(8.2)
	if got := longest(h); got != 300*time.Millisecond {
		t.Errorf("overlap is forbidden, and the run before ended at 8.2: %s", got)
	}
	h.Jobs[0].Runs[0].EndedAt = time.Time{}
	if got := longest(h); got != 0 {
		t.Errorf("nobody knows when the run before ended: %s", got)
	}
	h = seriesOf("allow", 1, 9)
	h.Jobs[0].CreatedAt = at(8)
	if got := longest(h); got != 500*time.Millisecond {
		t.Errorf("made at 8: %s", got)
	}
	h.Jobs[0].CreatedAt, h.Jobs[0].Unsure = time.Time{}, []Change{{Kind: Pause, Requested: at(3)}}
	if got := longest(h); got >= Bound {
		t.Errorf("perhaps paused at 3: %s", got)
	}
	h.Jobs[0].Queue = "a/unknown"
	if got := longest(h); got != 0 {
		t.Errorf("of a queue that nobody is known to serve: %s", got)
	}
}

func TestHandoversAreMeasured(t *testing.T) {
	t.Parallel()
	h := &History{}
	worked(h, "a", 1, 1, 1, 1, 1, true)
	worked(h, "a", 2, 2, 2, 2.2, 1, false)
	worked(h, "a", 3, 3, 3, 4.5, 1, true)
	worked(h, "b", 1, 1, 4, 1, 1, false)
	worked(h, "b", 1, 2, 5, 1.75, 1, true)
	worked(h, "c", 1, 1, 6, 1, 1, true)
	want := Handovers{Pairs: 3, Smallest: -250 * time.Millisecond, Cut: 2, SmallestCut: -250 * time.Millisecond, RunID: "b"}
	if diff := cmp.Diff(want, HandoversOf(h)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Handovers{}, HandoversOf(&History{})); diff != "" {
		t.Error(diff)
	}
}

func TestMurdersAreTheStartsOfDoomedJobsThatHaveNoEnd(t *testing.T) {
	t.Parallel()
	h := &History{Jobs: []Job{{Number: 1, Doomed: true}, {Number: 2}}}
	for i, number := range []int{1, 1, 2} {
		worked(h, string(rune('a'+i)), 1, 1, i, float64(i), 0, number == 1 && i == 1)
		h.Work[2*i].Number, h.Work[2*i+1].Number = number, number
	}
	if diff := cmp.Diff([]Window{{at(0), at(0)}}, murders(h)); diff != "" {
		t.Error(diff)
	}
}
