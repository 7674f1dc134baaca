package checker

import (
	"slices"
	"time"
)

// Window is a time from one moment to another.
type Window struct{ From, Till time.Time }

// long is how long it lasts; negative where it ends before it begins.
func (w Window) long() time.Duration { return w.Till.Sub(w.From) }

// merged puts windows in order and together where they touch; empty ones go.
func merged(ws []Window) []Window {
	in := slices.DeleteFunc(slices.Clone(ws), func(w Window) bool { return w.long() <= 0 })
	slices.SortFunc(in, func(a, b Window) int { return a.From.Compare(b.From) })
	var out []Window
	for _, w := range in {
		if n := len(out); n > 0 && !w.From.After(out[n-1].Till) {
			out[n-1].Till = latest(out[n-1].Till, w.Till)
			continue
		}
		out = append(out, w)
	}
	return out
}

// without is what is left of windows where none of the others lies; both are merged.
func (w Window) without(others []Window) []Window {
	var out []Window
	for _, o := range others {
		if !o.Till.After(w.From) {
			continue
		}
		if !o.From.Before(w.Till) {
			break
		}
		if o.From.After(w.From) {
			out = append(out, Window{w.From, o.From})
		}
		w.From = o.Till
	}
	if w.long() > 0 {
		out = append(out, w)
	}
	return out
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
