package checker

import (
	"cmp"
	"slices"
	"time"
)

const (
	// Bound is how long a due run may wait for its first start while a slot is free, in quiet times.
	Bound = 3 * time.Second
	// Recovery is how long after a fault has healed nothing is said of waits: a lease, the watch, the takeover of shards, and the runs that come back first.
	Recovery = 10 * time.Second
	// slotMargin is how long before the first line of a command, and after its last, its slot counts as taken: it is fetched, claimed and started before, and
	// reported, acknowledged and cleaned up behind.
	slotMargin = 500 * time.Millisecond
)

// wait is the longest stretch in which a run that was due could have been started, and was not.
type wait struct {
	JobID, RunID string
	Idle         Window
}

// waitsOf are those of all runs that were started, longest first.
//
// It is meant to raise no false alarm, so every doubt shortens a wait:
//
//   - Only first starts are looked at; a run that never began is the matter of the other invariants.
//   - A run counts as due from the latest of all times at which it may have become so: its own with its jitter, the making of its job, the answer to an update,
//     the beginning of the occurrence before it (whose first event makes the row of this one), and, where its job forbids overlap, the end of every earlier run.
//   - What comes while its job is paused, from the request to the answer of the resume, does not count; nor do disturbed times and Recovery after each.
//   - All commands count as taking slots of the queue, also those of other queues, which its executors may or may not serve, and each for slotMargin longer on
//     both sides. So what is called free was free; a slot that was free beside work of other queues goes unseen.
//   - A moment without a free slot, or a disturbed one, begins the wait anew: free slots must have been there all the time.
//
// What it over-estimates is the time between the hand-over and the first line of the command where that takes longer than slotMargin: starting a process on a
// machine that is overloaded. Bound has room for that.
func waitsOf(h *History) []wait {
	w := &waiting{h: h, first: map[string]time.Time{}, full: map[int][]Window{}}
	sessions := sessions(h.Work)
	for _, s := range sessions {
		if _, again := w.first[s.RunID]; !again {
			w.first[s.RunID] = s.At
		}
		w.busy = append(w.busy, Window{s.At.Add(-slotMargin), s.last.Add(slotMargin)})
	}
	for _, d := range slices.Concat(h.Disturbed, murders(h)) {
		w.disturbed = append(w.disturbed, Window{d.From, d.Till.Add(Recovery)})
	}
	var out []wait
	for i := range h.Jobs {
		out = append(out, w.ofJob(&h.Jobs[i])...)
	}
	slices.SortStableFunc(out, func(a, b wait) int { return cmp.Compare(b.Idle.long(), a.Idle.long()) })
	return out
}

// murders are the times at which the command of a doomed job killed its executor. One that found none to kill says that it came to its end.
func murders(h *History) []Window {
	doomed := map[int]bool{}
	for i := range h.Jobs {
		if h.Jobs[i].Doomed {
			doomed[h.Jobs[i].Number] = true
		}
	}
	var out []Window
	for _, s := range sessions(h.Work) {
		if doomed[s.Number] && !s.ended {
			out = append(out, Window{s.At, s.last})
		}
	}
	return out
}

// waits is invariant 7.
func (c *check) waits() {
	for _, w := range waitsOf(c.h) {
		if w.Idle.long() <= Bound {
			return
		}
		c.add(7, w.JobID, w.RunID, "was due and not started from %s to %s, for %s, while slots were free; the bound is %s",
			stamp(w.Idle.From), stamp(w.Idle.Till), w.Idle.long(), Bound)
	}
}

type waiting struct {
	h         *History
	first     map[string]time.Time // the first start of each run
	busy      []Window             // one for each command
	disturbed []Window
	full      map[int][]Window // by number of slots
}

func (w *waiting) ofJob(j *Job) []wait {
	slots := w.h.Slots[cmp.Or(j.Queue, "default")]
	if slots == 0 {
		return nil
	}
	not := append(slices.Clone(w.disturbed), w.fullOf(slots)...)
	not = merged(append(not, pauses(j)...))
	var out []wait
	for i := range j.Runs {
		r := &j.Runs[i]
		start, began := w.first[r.ID]
		if !began || r.State == "skipped" {
			continue
		}
		from, known := w.startable(j, r, start)
		if !known {
			continue
		}
		var longest Window
		for _, idle := range (Window{from, start}).without(not) {
			if idle.long() > longest.long() {
				longest = idle
			}
		}
		if longest.long() > 0 {
			out = append(out, wait{j.ID, r.ID, longest})
		}
	}
	return out
}

// startable is the latest time at which a run that began at start may have become due; false where nothing can be said.
func (w *waiting) startable(j *Job, r *Run, start time.Time) (time.Time, bool) {
	from := latest(due(j, r), j.CreatedAt)
	for _, ch := range slices.Concat(j.Changes, j.Unsure) {
		if ch.Kind == Update && ch.Requested.Before(start) {
			from = latest(from, ch.Answered)
		}
	}
	var before *Run
	for i := range j.Runs {
		o := &j.Runs[i]
		if !o.Scheduled.Before(r.Scheduled) {
			continue
		}
		if o.Origin == "schedule" && r.Origin == "schedule" && (before == nil || o.Scheduled.After(before.Scheduled)) {
			before = o
		}
		if j.Overlap != "allow" {
			if o.EndedAt.IsZero() {
				return from, false
			}
			from = latest(from, o.EndedAt)
		}
	}
	if before == nil {
		return from, true
	}
	begun, ok := w.first[before.ID]
	if !ok {
		begun = before.EndedAt
	}
	return latest(from, begun), !begun.IsZero()
}

// pauses are when a job was held, or may have been.
func pauses(j *Job) []Window {
	var out []Window
	var since time.Time
	for _, ch := range j.Changes {
		switch {
		case ch.Kind == Pause && since.IsZero():
			since = ch.Requested
		case ch.Kind == Resume && !since.IsZero():
			out = append(out, Window{since, ch.Answered})
			since = time.Time{}
		}
	}
	for _, ch := range j.Unsure {
		if ch.Kind == Pause || ch.Kind == Resume {
			since = ch.Requested
		}
	}
	if !since.IsZero() {
		out = append(out, Window{since, since.AddDate(1, 0, 0)})
	}
	return out
}

// fullOf are the times in which that many commands, or more, took slots.
func (w *waiting) fullOf(slots int) []Window {
	if out, known := w.full[slots]; known {
		return out
	}
	type step struct {
		at time.Time
		by int
	}
	var steps []step
	for _, b := range w.busy {
		steps = append(steps, step{b.From, 1}, step{b.Till, -1})
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
	var out []Window
	n := 0
	for _, s := range steps {
		n += s.by
		switch {
		case s.by > 0 && n == slots:
			out = append(out, Window{From: s.at})
		case s.by < 0 && n == slots-1:
			out[len(out)-1].Till = s.at
		}
	}
	w.full[slots] = merged(out)
	return w.full[slots]
}
