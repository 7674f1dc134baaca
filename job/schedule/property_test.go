package schedule_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waterclock-io/waterclock/job/schedule"
)

var propertyZones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll", "Africa/Casablanca", "Pacific/Apia", "America/Sao_Paulo",
	"Asia/Tehran", "Africa/Monrovia", "Europe/Dublin", "Asia/Kathmandu",
}

func drawSchedule(t *rapid.T) schedule.Schedule {
	instant := func(label string) time.Time {
		return time.UnixMicro(rapid.Int64Range(0, 253402300799999999).Draw(t, label))
	}
	var s schedule.Schedule
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		s = schedule.Schedule{Kind: schedule.Once, At: instant("at")}
	case 1, 2:
		period := time.Duration(rapid.Int64Range(1e6, 366*86400*1e6).Draw(t, "period")) * time.Microsecond
		s = schedule.Schedule{Kind: schedule.Every, Period: period, Anchor: instant("anchor")}
	default:
		rule := randomRule(func(low, high int) int { return rapid.IntRange(low, high).Draw(t, "pick") })
		s = cronIn(rule.text, rapid.SampledFrom(propertyZones).Draw(t, "zone"))
	}
	if rapid.IntRange(0, 3).Draw(t, "bounded") == 0 {
		s.Start = instant("start")
	}
	if rapid.IntRange(0, 3).Draw(t, "ended") == 0 {
		s.End = instant("end")
	}
	if s.Validate() != nil {
		t.SkipNow() // rapid draws another
	}
	return s
}

// drawAfter prefers the years with zone changes in the tables, and the neighbourhood of an occurrence.
func drawAfter(t *rapid.T, s schedule.Schedule) time.Time {
	switch rapid.IntRange(0, 3).Draw(t, "where") {
	case 0:
		return time.Unix(rapid.Int64Range(-100000000000, 300000000000).Draw(t, "far"), 0)
	case 1:
		first, _ := s.First()
		return first.At.Add(time.Duration(rapid.Int64Range(-1e15, 1e15).Draw(t, "near")))
	}
	return time.Unix(rapid.Int64Range(0, 4102444800).Draw(t, "unix"), rapid.Int64Range(0, 1e9-1).Draw(t, "nanos"))
}

func TestNextIncreases(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchedule(t)
		after := drawAfter(t, s)
		for range 20 {
			o, ok := s.Next(after)
			if !ok {
				return
			}
			if !o.At.After(after) {
				t.Fatalf("%+v: %v is not after %v", s, o.At, after)
			}
			if !s.Start.IsZero() && o.At.Before(s.Start.Truncate(time.Microsecond)) || !s.End.IsZero() && !o.At.Before(s.End) {
				t.Fatalf("%+v: %v is out of bounds", s, o.At)
			}
			if again, ok := s.Next(o.At.Add(-time.Microsecond)); !ok || again != o {
				t.Fatalf("%+v: Next just before %v gives %v", s, o, again)
			}
			if first, _ := s.First(); o.At.Before(first.At) {
				t.Fatalf("%+v: %v is before the first, %v", s, o, first)
			}
			after = o.At
		}
	})
}

func TestBetweenCountLatestAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchedule(t)
		compiled, err := s.Compile()
		if err != nil {
			t.Fatal(err)
		}
		after := drawAfter(t, s)
		until := after.Add(time.Duration(rapid.Int64Range(-1e9, 400*86400*1e9).Draw(t, "length")))
		if span := rapid.IntRange(0, 1).Draw(t, "short"); span == 1 {
			until = after.Add(time.Duration(rapid.Int64Range(-1e9, 86400*1e9).Draw(t, "hours")))
		}
		limit := rapid.IntRange(0, 60).Draw(t, "limit")

		var want []schedule.Occurrence
		more := false
		for o, ok := s.Next(after); ok && !o.At.After(until); o, ok = compiled.Next(o.At) {
			if len(want) == limit {
				more = true
				break
			}
			want = append(want, o)
		}
		occ, gotMore := s.Between(after, until, limit)
		if diff := cmp.Diff(want, occ); diff != "" || more != gotMore {
			t.Fatalf("%+v (%v, %v]: more %v %v, -next +between:\n%s", s, after, until, more, gotMore, diff)
		}
		n, last := s.Count(after, until, limit)
		var wantLast schedule.Occurrence
		if len(want) > 0 {
			wantLast = want[len(want)-1]
		}
		if n != len(want) || last != wantLast {
			t.Fatalf("%+v (%v, %v]: Count %d %v, want %d %v", s, after, until, n, last, len(want), wantLast)
		}

		latest, ok := s.Latest(after, until)
		if first, any := s.Next(after); ok != (any && !first.At.After(until)) {
			t.Fatalf("%+v (%v, %v]: Latest %v %v, first %v", s, after, until, latest, ok, first)
		}
		if !ok {
			return
		}
		if !latest.At.After(after) || latest.At.After(until) {
			t.Fatalf("%+v: Latest %v is not in (%v, %v]", s, latest, after, until)
		}
		if next, ok := s.Next(latest.At); ok && !next.At.After(until) {
			t.Fatalf("%+v: Latest %v, but %v follows before %v", s, latest, next, until)
		}
		if again, _ := s.Next(latest.At.Add(-time.Microsecond)); again != latest {
			t.Fatalf("%+v: Latest %v is not what Next gives, %v", s, latest, again)
		}
	})
}

// TestCivilIsTheInstant: where a fire was not moved by a gap, its civil text reads back as the instant.
func TestCivilIsTheInstant(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchedule(t)
		o, ok := s.Next(drawAfter(t, s))
		if !ok || s.Zone == "Africa/Monrovia" {
			return
		}
		civil, err := time.Parse(time.RFC3339Nano, o.Civil)
		if err != nil {
			t.Fatal(err)
		}
		if civil.Equal(o.At) {
			return
		}
		loc, err := time.LoadLocation(s.Zone)
		if err != nil {
			t.Fatal(err)
		}
		_, before := o.At.Add(-time.Second).In(loc).Zone()
		_, now := o.At.In(loc).Zone()
		if late := civil.Sub(o.At); late < 0 || late >= time.Duration(now-before)*time.Second {
			t.Fatalf("%+v: %v is neither the instant nor in a gap there", s, o)
		}
	})
}
