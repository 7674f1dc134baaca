package schedule

import (
	"fmt"
	"time"

	"github.com/waterclock-io/waterclock/job/fielderr"
)

// The limits of periods and jitter.
const (
	MinPeriod = time.Second
	MaxPeriod = 366 * 24 * time.Hour
	MaxJitter = 24 * time.Hour
)

const instantAllowed = "an instant from 1970-01-01T00:00:00Z to 9999-12-31T23:59:59.999999Z"

// Compile checks the schedule as Validate does and gives the form that answers without parsing again. The error is a
// fielderr.FieldErrors.
func (s Schedule) Compile() (*Compiled, error) {
	c, errs := s.build()
	if len(errs) == 0 {
		if _, ok := c.First(); !ok {
			errs = append(errs, s.neverFires())
		}
	}
	if err := errs.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// neverFires is for a schedule that is well-formed but has no occurrence between its bounds.
func (s Schedule) neverFires() *fielderr.FieldError {
	e := &fielderr.FieldError{Field: "schedule.end", Given: instantText(s.End), Reason: "leaves no time to fire", Allowed: "a time after the first occurrence"}
	if s.End.IsZero() {
		e.Field, e.Given, e.Allowed = "schedule.start", instantText(s.Start), "a time at or before the last occurrence"
	}
	return e
}

// build checks all fields, each by itself and against its neighbours.
func (s Schedule) build() (*Compiled, fielderr.FieldErrors) {
	b := builder{c: &Compiled{from: minMicro, to: maxMicro}}
	switch s.Kind {
	case Once:
		b.once(s)
	case Every:
		b.every(s)
	case Cron:
		b.cron(s)
	default:
		b.bad("schedule.kind", string(s.Kind), "is not a kind of schedule", `"once", "every" or "cron"`)
	}
	b.foreign(s)
	b.bounds(s)
	b.jitter(s)
	return b.c, b.errs
}

type builder struct {
	c    *Compiled
	errs fielderr.FieldErrors
}

func (b *builder) bad(field, given, reason, allowed string) {
	b.errs = append(b.errs, &fielderr.FieldError{Field: field, Given: given, Reason: reason, Allowed: allowed})
}

func (b *builder) once(s Schedule) {
	b.instant("schedule.once.at", s.At)
	b.c.source = progression{first: micros(s.At), step: single()}
}

func (b *builder) every(s Schedule) {
	const allowed = "1s to 8784h (366 days), in whole microseconds"
	switch p := s.Period; {
	case p < MinPeriod:
		b.bad("schedule.every.period", p.String(), "is under one second", allowed)
	case p > MaxPeriod:
		b.bad("schedule.every.period", p.String(), "is over 366 days", allowed)
	case p%time.Microsecond != 0:
		b.bad("schedule.every.period", p.String(), "is finer than a microsecond", allowed)
	}
	b.instant("schedule.every.anchor", s.Anchor)
	b.c.source = progression{first: micros(s.Anchor), step: s.Period.Microseconds()}
}

func (b *builder) cron(s Schedule) {
	r, reason := parseSpec(s.Spec)
	if reason != "" {
		b.bad("schedule.cron.spec", s.Spec, reason, specAllowed)
	}
	loc, reason := loadZone(s.Zone)
	if reason != "" {
		b.bad("schedule.cron.zone", s.Zone, reason, zoneAllowed)
	}
	b.c.source = &cronSource{rule: r, loc: loc}
}

// foreign refuses fields of another kind: ignored, they would hide a mistake.
func (b *builder) foreign(s Schedule) {
	check := func(kind Kind, field, given string, set bool) {
		if set && s.Kind != kind {
			b.bad(field, given, fmt.Sprintf("does not belong to a schedule of kind %q", s.Kind), "nothing here")
		}
	}
	check(Once, "schedule.once.at", instantText(s.At), !s.At.IsZero())
	check(Every, "schedule.every.period", s.Period.String(), s.Period != 0)
	check(Every, "schedule.every.anchor", instantText(s.Anchor), !s.Anchor.IsZero())
	check(Cron, "schedule.cron.spec", s.Spec, s.Spec != "")
	check(Cron, "schedule.cron.zone", s.Zone, s.Zone != "")
}

func (b *builder) bounds(s Schedule) {
	if !s.Start.IsZero() && b.instant("schedule.start", s.Start) {
		b.c.from = micros(s.Start)
	}
	if !s.End.IsZero() && b.instant("schedule.end", s.End) {
		b.c.to = micros(s.End) - 1
		if !s.Start.IsZero() && b.c.to < b.c.from {
			b.bad("schedule.end", instantText(s.End), "is not after the start", "a time after "+instantText(s.Start))
		}
	}
}

func (b *builder) jitter(s Schedule) {
	switch j := s.Jitter; {
	case j < 0:
		b.bad("schedule.jitter", j.String(), "is negative", "0 to 24h")
	case j > MaxJitter:
		b.bad("schedule.jitter", j.String(), "is over a day", "0 to 24h")
	case s.Kind == Every && j > 0 && j >= s.Period:
		b.bad("schedule.jitter", j.String(), "is not shorter than the period", "less than "+s.Period.String())
	}
}

// instant reports whether a time can be an occurrence or a bound.
func (b *builder) instant(field string, t time.Time) bool {
	switch m := micros(t); {
	case t.IsZero():
		b.bad(field, "", "is missing", instantAllowed)
	case m < minMicro || m > maxMicro:
		b.bad(field, instantText(t), "is out of range", instantAllowed)
	default:
		return true
	}
	return false
}

func instantText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
