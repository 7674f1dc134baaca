package checker

import (
	"slices"
	"testing"
)

// A run that was cancelled ahead stays in history at a time of the old schedule; a skip of the new one that spans that time is not of it.
func TestRunCancelledAheadOfAnUpdateIsBesideSkips(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		from, through float64
		want          int
	}{{2.5, 3.5, 0}, {3, 3, 1}} {
		h := clean()
		m := &h.Jobs[moved]
		m.Changes = append([]Change{{Kind: Cancel, RunID: "m-old", Requested: at(2.1), Answered: at(2.2)}}, m.Changes...)
		m.Runs = append(m.Runs, Run{
			ID: "m-old", Origin: "schedule", State: "cancelled", Scheduled: at(3), EndedAt: at(2.2),
			Attempts: []Attempt{{RunID: "m-old", Attempt: 1, State: "cancelled"}},
		}, Run{ID: "m-skip", Origin: "schedule", State: "skipped", Reason: "missed", Scheduled: at(tt.from), Through: at(tt.through), Count: 2})
		m.Runs = slices.DeleteFunc(m.Runs, func(r Run) bool { return r.ID == "m-3" })
		h.Work = without(h.Work, "m-3")
		n := 0
		for _, v := range Check(h) {
			if v.Invariant == 1 {
				n++
			}
		}
		if n != tt.want {
			t.Errorf("skipped from %v to %v: %d violations of the first, want %d: %v", tt.from, tt.through, n, tt.want, Check(h))
		}
	}
}
