// Package schedule says when a job runs: once, every so often, or by cron in a time zone.
//
// It validates what a user wrote and enumerates nominal times, as pure functions of their arguments: it reads no
// clock and knows nothing of stores, runs or catch-up policies. The api calls Validate, the recorder asks for the
// next recurrence, the planner counts what an outage missed, and the CLI and UI show the next fires.
//
// # Changes of the clock
//
// A cron rule whose minute or hour text begins with * (so also @hourly) follows elapsed time: it fires in both passes
// of an overlap and not at all for what a gap leaves out. Every other rule is fixed-time: what falls into a gap fires
// once, at the transition instant, and in an overlap only the first of the two instants fires. A date that a zone
// skipped is a gap. Fires that fall together are one.
//
// # Time
//
// Instants are UTC and truncated to microseconds before they are compared. Nothing fires before 1970-01-01 or after
// 9999-12-31. Zone data is linked in; where the machine has its own zone files the standard library prefers those.
package schedule

import (
	"time"
)

// Kind tells how a schedule repeats.
type Kind string

// The kinds of schedule.
const (
	Once  Kind = "once"
	Every Kind = "every"
	Cron  Kind = "cron"
)

// Schedule says when a job runs. A value; the zero value is invalid. An invalid schedule has no occurrences.
//
// Its methods parse anew each time; who asks often calls Compile once.
type Schedule struct {
	Kind   Kind          `json:"kind"`
	At     time.Time     `json:"at,omitzero"`      // once: the instant
	Period time.Duration `json:"period,omitempty"` // every: 1 s to 366 days, in whole microseconds
	Anchor time.Time     `json:"anchor,omitzero"`  // every: the first fire; all fires are Anchor + n·Period, n ≥ 0
	Spec   string        `json:"spec,omitempty"`   // cron: five fields or a descriptor (@hourly @daily @midnight @weekly @monthly @yearly @annually)
	Zone   string        `json:"zone,omitempty"`   // cron: IANA name in its canonical case; never empty, never "Local"

	Start  time.Time     `json:"start,omitzero"`   // optional bound, inclusive; zero means none
	End    time.Time     `json:"end,omitzero"`     // optional bound, exclusive; zero means none
	Jitter time.Duration `json:"jitter,omitempty"` // optional spread, 0 to 24 h, and below the period for every; see JitterFor
}

// Occurrence is one nominal time of a schedule.
type Occurrence struct {
	// At is the instant, in UTC, truncated to microseconds.
	At time.Time
	// Civil is the nominal time as written on the wall of the schedule's zone, in RFC 3339 with the offset ("Z" for
	// zero): the same instant as At, unless a gap moved the fire. Then it is the first civil time that was missing,
	// with the offset before the gap: Berlin's 02:30 of 2026-03-29 has At 01:00Z and Civil "2026-03-29T02:30:00+01:00".
	// The offset is cut to whole minutes (Africa/Monrovia until 1972 has seconds too).
	Civil string
}

// Validate reports every bad field as fielderr.FieldErrors, also when the schedule could never fire.
func (s Schedule) Validate() error {
	_, err := s.Compile()
	return err
}

// First gives the first occurrence at or after Start (without Start: since 1970); false means there is none.
func (s Schedule) First() (Occurrence, bool) { return s.compiled().First() }

// Next gives the first occurrence strictly after the instant; false means never again.
func (s Schedule) Next(after time.Time) (Occurrence, bool) { return s.compiled().Next(after) }

// Between lists the occurrences in (after, until], at most limit of them; more tells that the limit cut the list.
func (s Schedule) Between(after, until time.Time, limit int) (occ []Occurrence, more bool) {
	return s.compiled().Between(after, until, limit)
}

// Count tells how many occurrences are in (after, until], at most limit, and gives the last one that it counted.
// It takes constant time for once and every, and time proportional to the count for cron.
func (s Schedule) Count(after, until time.Time, limit int) (n int, last Occurrence) {
	return s.compiled().Count(after, until, limit)
}

// Latest gives the last occurrence in (after, until]; false means there is none. Its cost does not depend on how many
// there are.
func (s Schedule) Latest(after, until time.Time) (Occurrence, bool) {
	return s.compiled().Latest(after, until)
}

// compiled is Compile without its search for a first fire: a schedule that has none simply answers so.
func (s Schedule) compiled() *Compiled {
	c, errs := s.build()
	if len(errs) > 0 {
		return &Compiled{source: progression{}, from: 1, to: 0}
	}
	return c
}
