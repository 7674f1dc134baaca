package checker

import "slices"

// Poison is a message that was put where nobody can take it.
type Poison struct {
	What string
	// Want is the subject at which it must end once the faults are over; empty: nowhere, as it is counted and passed over.
	Want string
	// Ended are the subjects at which it was found.
	Ended []string
	// Reason is what was found there as the cause.
	Reason string
}

// poison is the part of invariant 9 that says where what nobody can take must end.
func (c *check) poison() {
	for _, p := range c.h.Poison {
		switch {
		case p.Want == "" && len(p.Ended) > 0:
			c.add(9, "", "", "%s was to be counted and passed over, and ended at %s: %s", p.What, p.Ended, p.Reason)
		case p.Want == "":
		case len(p.Ended) == 0:
			c.add(9, "", "", "%s was to end at %s, and is nowhere", p.What, p.Want)
		case slices.ContainsFunc(p.Ended, func(at string) bool { return at != p.Want }): // twice at the right place is no harm
			c.add(9, "", "", "%s was to end at %s, and ended at %s", p.What, p.Want, p.Ended)
		case p.Reason == "":
			c.add(9, "", "", "%s ended at %s without a reason", p.What, p.Want)
		}
	}
}
