package checker

import "time"

// Handovers is how far apart the commands of one run were, one after the other. Invariant 3 says that none may overlap; this says how near they came.
type Handovers struct {
	// Pairs of consecutive commands of a run, and the smallest gap between the last line of the former and the first of the next.
	Pairs    int
	Smallest time.Duration
	// Cut are those pairs of which the former was killed (it wrote no end), and SmallestCut their smallest gap: the one that fencing has to keep. A command
	// writes a line every 50 ms, so it may have lived for as long after the last.
	Cut         int
	SmallestCut time.Duration
	// RunID is the run of SmallestCut.
	RunID string
}

// HandoversOf measures a history. A gap is negative where two commands overlapped.
func HandoversOf(h *History) Handovers {
	var out Handovers
	before := map[string]session{}
	for _, s := range sessions(h.Work) {
		a, again := before[s.RunID]
		if !again || s.last.After(a.last) {
			before[s.RunID] = s
		}
		if !again {
			continue
		}
		gap := s.At.Sub(a.last)
		if out.Pairs++; out.Pairs == 1 || gap < out.Smallest {
			out.Smallest = gap
		}
		if a.ended {
			continue
		}
		if out.Cut++; out.Cut == 1 || gap < out.SmallestCut {
			out.SmallestCut, out.RunID = gap, s.RunID
		}
	}
	return out
}
