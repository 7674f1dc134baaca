package convert

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waterclock-io/waterclock/job/fielderr"
	"github.com/waterclock-io/waterclock/job/schedule"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

const timeAllowed = "a time from 1970-01-01T00:00:00Z to 9999-12-31T23:59:59Z"

// reader takes times and durations out of messages, and collects what is wrong with them.
type reader struct {
	errs *fielderr.FieldErrors
}

// time returns the zero time where the field is unset or bad.
func (r *reader) time(field string, ts *timestamppb.Timestamp) time.Time {
	if ts == nil {
		return time.Time{}
	}
	if !ts.IsValid() || ts.GetSeconds() < 0 {
		r.bad(field, givenTime(ts), "is out of range", timeAllowed)
		return time.Time{}
	}
	return ts.AsTime().Truncate(time.Microsecond)
}

func givenTime(ts *timestamppb.Timestamp) string {
	if ts.IsValid() {
		return ts.AsTime().Format(time.RFC3339Nano)
	}
	return fmt.Sprintf("seconds: %d, nanos: %d", ts.GetSeconds(), ts.GetNanos())
}

// duration returns 0 where the field is unset or bad. Ranges are rules of the .proto.
func (r *reader) duration(field string, d *durationpb.Duration) time.Duration {
	if d == nil {
		return 0
	}
	v := d.AsDuration()
	if !d.IsValid() || v < 0 {
		r.bad(field, fmt.Sprintf("seconds: %d, nanos: %d", d.GetSeconds(), d.GetNanos()), "is not a duration", "a duration of 0 or more")
		return 0
	}
	return v.Truncate(time.Microsecond)
}

func (r *reader) bad(field, given, reason, allowed string) {
	*r.errs = append(*r.errs, &fielderr.FieldError{Field: field, Given: given, Reason: reason, Allowed: allowed})
}

// resolveSchedule turns "now", "in ten minutes" and "every hour from now" into instants.
func (d *Definition) resolveSchedule(s *waterclockv1.Schedule, c Context, r *reader) {
	now, before := c.Now.UTC().Truncate(time.Microsecond), len(*r.errs)
	out := schedule.Schedule{
		Start:  r.time("spec.schedule.start", s.GetStart()),
		End:    r.time("spec.schedule.end", s.GetEnd()),
		Jitter: r.duration("spec.schedule.jitter", s.GetJitter()),
	}
	switch k := s.GetKind().(type) {
	case *waterclockv1.Schedule_Every:
		out.Kind = schedule.Every
		out.Period = r.duration("spec.schedule.every.period", k.Every.GetPeriod())
		out.Anchor = r.time("spec.schedule.every.anchor", k.Every.GetAnchor())
		if k.Every.GetAnchor() == nil {
			out.Anchor = now.Add(out.Period)
			if p := c.Prior; p != nil && p.Kind == schedule.Every && p.Period == out.Period {
				out.Anchor = p.Anchor
			}
		}
	case *waterclockv1.Schedule_Cron:
		out.Kind, out.Spec, out.Zone = schedule.Cron, k.Cron.GetSpec(), orDefault(k.Cron.GetZone(), "UTC")
	default:
		out.Kind = schedule.Once
		out.At = r.time("spec.schedule.once.at", s.GetOnce().GetAt())
		if s.GetOnce().GetAt() == nil {
			out.At = now.Add(r.duration("spec.schedule.once.delay", s.GetOnce().GetDelay()))
		}
	}
	d.Spec.Schedule = out
	if len(*r.errs) > before {
		return
	}
	if err := out.Validate(); err != nil {
		r.scheduleErrors(err)
		return
	}
	d.warnOfPast(c, now)
}

// scheduleErrors puts the paths of the domain ("schedule.cron.zone") under spec.
func (r *reader) scheduleErrors(err error) {
	var many fielderr.FieldErrors
	if !errors.As(err, &many) {
		r.bad("spec.schedule", "", err.Error(), "a schedule that can fire")
		return
	}
	for _, e := range many {
		moved := *e
		switch {
		case e.Field == "schedule" || strings.HasPrefix(e.Field, "schedule."):
			moved.Field = "spec." + e.Field
		case e.Field == "":
			moved.Field = "spec.schedule"
		default:
			moved.Field = "spec.schedule." + e.Field
		}
		*r.errs = append(*r.errs, &moved)
	}
}

func (d *Definition) warnOfPast(c Context, now time.Time) {
	s := d.Spec.Schedule
	same := c.Prior != nil && c.Prior.Start.Equal(s.Start)
	if s.Kind == schedule.Once {
		if s.At.Before(now) && (c.Prior == nil || !c.Prior.At.Equal(s.At)) {
			d.Warnings = append(d.Warnings, fmt.Sprintf("spec.schedule.once.at: %s is in the past; the job runs now", s.At.Format(time.RFC3339Nano)))
		}
		return
	}
	if !s.Start.IsZero() && s.Start.Before(now) && !same {
		d.Warnings = append(d.Warnings, fmt.Sprintf("spec.schedule.start: %s is in the past; occurrences before now are not made up for", s.Start.Format(time.RFC3339Nano)))
	}
	if _, ok := FirstFrom(s, now); !ok {
		d.Warnings = append(d.Warnings, "spec.schedule: it has no occurrence from now on; the job is completed")
	}
}

// FirstFrom returns the first occurrence of a schedule at or after an instant; for a one-time schedule its only one, whenever that is.
func FirstFrom(s schedule.Schedule, from time.Time) (schedule.Occurrence, bool) {
	if s.Kind == schedule.Once {
		return schedule.Occurrence{At: s.At}, true
	}
	return s.Next(from.Truncate(time.Microsecond).Add(-time.Microsecond))
}
