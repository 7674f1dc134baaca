package schedule_test

import (
	"testing"
	"time"

	"github.com/waterclock-io/waterclock/job/schedule"
)

func FuzzSpec(f *testing.F) {
	for i, spec := range []string{
		"* * * * *", "0 0 29 2 *", "0 0 30 2 *", "0 0 31 4,6 1", "TZ=", "CRON_TZ=X", "TZ=UTC", "TZ=Local * * * * *", "@every 1ns", "@every -1h", "@hourly", "@",
		"*/0 * * * *", "*/9223372036854775807 * * * *", "0-59/18446744073709551615 * * * *", "1-7/7 7 7 7 7-7/7", "0 0 * * 7/1", ",,,,, , , , ,", "*-5 * * * *",
		"?/2 ?,? ? ? ?", "5,* * * * *", "\x00 * * * *", "0\xa00 * * *", "0 0 1 1 sun-7", "0 0 1 jan-dec/11 *", "* * 31 */5 ?", "30 2 * * *", "0 0 30 12 *",
	} {
		f.Add(spec, uint8(i), int64(1774746000+i*86400))
	}
	f.Fuzz(func(t *testing.T, spec string, zone uint8, unix int64) {
		s := cronIn(spec, propertyZones[int(zone)%len(propertyZones)])
		begin := time.Now()
		if err := s.Validate(); err != nil {
			_ = err.Error()
			if _, ok := s.Next(time.Unix(0, 0)); ok {
				t.Fatalf("%q is refused (%v) and yet fires", spec, err)
			}
			return
		}
		after := time.Unix(unix%253402300800, 0)
		start := after
		for range 3 {
			o, ok := s.Next(after)
			if !ok {
				break
			}
			if !o.At.After(after) {
				t.Fatalf("%q in %s: %v is not after %v", spec, s.Zone, o.At, after)
			}
			if latest, ok := s.Latest(start, o.At); !ok || latest != o {
				t.Fatalf("%q in %s: latest in (%v, %v] is %v", spec, s.Zone, start, o.At, latest)
			}
			after = o.At
		}
		if _, ok := s.Next(after); !ok && after.Year() < 9990 && after.Year() > 0 {
			t.Fatalf("%q in %s: nothing after %v", spec, s.Zone, after)
		}
		// Generous: the work is microseconds, the machine may be busy.
		if took := time.Since(begin); took > 2*time.Second {
			t.Fatalf("%q took %v", spec, took)
		}
	})
}

func BenchmarkNext(b *testing.B) {
	after := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		s    schedule.Schedule
	}{
		{"every", schedule.Schedule{Kind: schedule.Every, Period: time.Second, Anchor: time.Unix(0, 0)}},
		{"minutely", cronIn("* * * * *", "Europe/Berlin")},
		{"daily-through-gap", cronIn("30 2 * * *", "Europe/Berlin")},
		{"leap-day", cronIn("0 0 29 2 *", "America/New_York")},
	} {
		compiled, err := c.s.Compile()
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name+"/compiled", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				compiled.Next(after)
			}
		})
		b.Run(c.name+"/parsed", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.s.Next(after)
			}
		})
	}
}

// BenchmarkLatest asks for the last minute of eight thousand years.
func BenchmarkLatest(b *testing.B) {
	compiled, err := cronIn("* * * 1 *", "Europe/Berlin").Compile()
	if err != nil {
		b.Fatal(err)
	}
	until := time.Date(9999, 12, 1, 0, 0, 0, 0, time.UTC)
	for b.Loop() {
		compiled.Latest(time.Time{}, until)
	}
}
