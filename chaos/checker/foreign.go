package checker

import (
	"slices"
	"time"
)

// ForeignCall is what a client of one namespace was told when it asked for what is of another, or when it asked for a list of its own.
type ForeignCall struct {
	// Namespace is the caller's.
	Namespace string
	// Call is the method that was called, such as CancelRun.
	Call string
	// JobID and RunID are what was asked for; both are empty for a list.
	JobID, RunID string
	Requested    time.Time
	Answered     time.Time
	// Code is that of the answer as Connect writes it, "ok" where it was given; answers that say nothing (unavailable and the like) are not kept.
	Code string
	// Listed are the jobs of which a list spoke.
	Listed []string
}

// changing are the calls that would change a job, with what they would change it by.
var changing = map[string]ChangeKind{
	"CancelRun": Cancel, "PauseJob": Pause, "ResumeJob": Resume, "UpdateJob": Update, "DeleteJob": Delete, "TriggerJob": Trigger,
}

// foreign is invariant 6: what is of another namespace is not found, is in no list, and stays as it is. Whether a namespace slows another is not looked at:
// there are no quotas yet.
func (c *check) foreign() {
	owner := map[string]string{}
	for i := range c.h.Jobs {
		owner[c.h.Jobs[i].ID] = c.h.Jobs[i].Namespace
	}
	for _, call := range c.h.Foreign {
		for _, id := range call.Listed {
			if of, known := owner[id]; known && of != call.Namespace {
				c.add(6, id, "", "%s at %s showed it to namespace %s, and it is of %s", call.Call, stamp(call.Answered), call.Namespace, of)
			}
		}
		if call.JobID != "" && owner[call.JobID] != call.Namespace && call.Code != "not_found" {
			c.add(6, call.JobID, call.RunID, "%s of namespace %s at %s was answered with %s", call.Call, call.Namespace, stamp(call.Answered), call.Code)
		}
	}
}

// unasked is the part of invariants 2 and 6 that looks for ends and skips that nobody asked for: what a foreign call did though it was refused, or what the product
// made up. Triggers have a rule of their own.
func (c *check) unasked(j *Job) {
	asked := map[ChangeKind]bool{}
	named := map[string]bool{}
	for _, list := range [][]Change{j.Changes, j.Unsure} {
		for _, ch := range list {
			asked[ch.Kind] = true
			if ch.Kind == Cancel {
				named[ch.RunID] = true
			}
		}
	}
	for i := range j.Runs {
		r := &j.Runs[i]
		var by []ChangeKind
		switch {
		case r.State == "cancelled" && !asked[Delete] && !named[r.ID]:
			by = []ChangeKind{Cancel, Delete}
		case r.State == "skipped" && r.Reason == "paused" && !asked[Pause]:
			by = []ChangeKind{Pause}
		case r.State == "skipped" && r.Reason == "updated" && !asked[Update]:
			by = []ChangeKind{Update}
		case r.Origin == "trigger" && c.triggeredFromOutside(j, r):
			by = []ChangeKind{Trigger}
		default:
			continue
		}
		if slices.ContainsFunc(by, func(kind ChangeKind) bool { return c.triedFromOutside(j, r, kind) }) {
			c.add(6, j.ID, r.ID, "is %s (%s), as another namespace asked for (%v), and its own did not", r.State, r.Reason, by)
			continue
		}
		c.add(2, j.ID, r.ID, "is %s (%s), and nobody asked for that (%v)", r.State, r.Reason, by)
	}
}

// triggeredFromOutside tells whether a triggered run is one that the owner never asked for and another namespace did.
func (c *check) triggeredFromOutside(j *Job, r *Run) bool {
	for _, list := range [][]Change{j.Changes, j.Unsure} {
		for _, ch := range list {
			if ch.Kind == Trigger && (ch.RunID == r.ID || ch.RunID == "") {
				return false
			}
		}
	}
	return c.triedFromOutside(j, r, Trigger)
}

// triedFromOutside tells whether another namespace asked for such a change before the run ended.
func (c *check) triedFromOutside(j *Job, r *Run, kind ChangeKind) bool {
	for _, call := range c.h.Foreign {
		if call.JobID == j.ID && call.Namespace != j.Namespace && changing[call.Call] == kind && (r.EndedAt.IsZero() || call.Requested.Before(r.EndedAt)) {
			return true
		}
	}
	return false
}
