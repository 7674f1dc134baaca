package schedule_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock-io/waterclock/job/schedule"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func cronIn(spec, zone string) schedule.Schedule {
	return schedule.Schedule{Kind: schedule.Cron, Spec: spec, Zone: zone}
}

// TestCron has a case for each sentence of the policy, with instants worked out by hand.
func TestCron(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		s            schedule.Schedule
		after, until string
		want         []string // instant, civil
	}{
		{
			"a gap fires once, at the transition instant", cronIn("0,30 2 * * *", "Europe/Berlin"), "2026-03-29T00:00:00Z", "2026-03-29T12:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-29T02:00:00+01:00"},
		},
		{
			"fires that fall together are one", cronIn("30 2,3 * * *", "Europe/Berlin"), "2026-03-29T00:00:00Z", "2026-03-29T12:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-29T02:30:00+01:00", "2026-03-29T01:30:00Z", "2026-03-29T03:30:00+02:00"},
		},
		{
			"a time that exists names the shared fire", cronIn("0 2,3 * * *", "Europe/Berlin"), "2026-03-29T00:00:00Z", "2026-03-29T12:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-29T03:00:00+02:00"},
		},
		{
			"an overlap fires at the first instant only", cronIn("30 2 * * *", "Europe/Berlin"), "2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-25T02:30:00+02:00"},
		},
		{
			"a star follows elapsed time through an overlap", cronIn("*/30 2 * * *", "Europe/Berlin"), "2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z",
			[]string{
				"2026-10-25T00:00:00Z", "2026-10-25T02:00:00+02:00", "2026-10-25T00:30:00Z", "2026-10-25T02:30:00+02:00",
				"2026-10-25T01:00:00Z", "2026-10-25T02:00:00+01:00", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00+01:00",
			},
		},
		{"a star fires nothing for a gap", cronIn("*/30 2 * * *", "Europe/Berlin"), "2026-03-29T00:00:00Z", "2026-03-29T12:00:00Z", nil},
		{
			"@hourly follows elapsed time", cronIn("@hourly", "America/New_York"), "2026-11-01T04:30:00Z", "2026-11-01T07:30:00Z",
			[]string{
				"2026-11-01T05:00:00Z", "2026-11-01T01:00:00-04:00", "2026-11-01T06:00:00Z", "2026-11-01T01:00:00-05:00",
				"2026-11-01T07:00:00Z", "2026-11-01T02:00:00-05:00",
			},
		},
		{
			"midnight missing", cronIn("@daily", "Africa/Cairo"), "2026-04-23T12:00:00Z", "2026-04-24T12:00:00Z",
			[]string{"2026-04-23T22:00:00Z", "2026-04-24T00:00:00+02:00"},
		},
		{
			"a skipped date is a gap, and its job falls together with midnight", cronIn("0 0,9 * * *", "Pacific/Apia"), "2011-12-30T00:00:00Z", "2011-12-31T05:00:00Z",
			[]string{"2011-12-30T10:00:00Z", "2011-12-31T00:00:00+14:00", "2011-12-30T19:00:00Z", "2011-12-31T09:00:00+14:00"},
		},
		{
			"a rule for the skipped date alone", cronIn("0 9 30 12 *", "Pacific/Apia"), "2011-06-01T00:00:00Z", "2012-06-01T00:00:00Z",
			[]string{"2011-12-30T10:00:00Z", "2011-12-30T09:00:00-10:00"},
		},
		{"a star on the skipped date", cronIn("* 9 30 12 *", "Pacific/Apia"), "2011-06-01T00:00:00Z", "2012-06-01T00:00:00Z", nil},
		{
			"two restricted day fields mean or", cronIn("0 0 13 * 5", "UTC"), "2026-11-01T00:00:00Z", "2026-11-15T00:00:00Z",
			[]string{"2026-11-06T00:00:00Z", "2026-11-06T00:00:00Z", "2026-11-13T00:00:00Z", "2026-11-13T00:00:00Z"},
		},
		{
			"*/1 leaves a day field unrestricted", cronIn("0 0 */1 * 5", "UTC"), "2026-11-01T00:00:00Z", "2026-11-08T00:00:00Z",
			[]string{"2026-11-06T00:00:00Z", "2026-11-06T00:00:00Z"},
		},
		{
			"so does a star among other items", cronIn("0 0 9 * 5,*", "UTC"), "2026-11-01T00:00:00Z", "2026-11-15T00:00:00Z",
			[]string{"2026-11-09T00:00:00Z", "2026-11-09T00:00:00Z"},
		},
		{
			"*/n restricts", cronIn("0 0 */20 * 5", "UTC"), "2026-11-14T00:00:00Z", "2026-11-22T00:00:00Z",
			[]string{"2026-11-20T00:00:00Z", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z", "2026-11-21T00:00:00Z"},
		},
		{
			"Sunday as 7 at the end of a range", cronIn("0 0 * * 6-7", "UTC"), "2026-11-01T00:00:00Z", "2026-11-10T00:00:00Z",
			[]string{"2026-11-07T00:00:00Z", "2026-11-07T00:00:00Z", "2026-11-08T00:00:00Z", "2026-11-08T00:00:00Z"},
		},
		{
			"an open step does not reach Sunday as 7", cronIn("0 0 * * 5/2", "UTC"), "2026-11-01T00:00:00Z", "2026-11-10T00:00:00Z",
			[]string{"2026-11-06T00:00:00Z", "2026-11-06T00:00:00Z"},
		},
		{
			"a leap day is found beside 2100", cronIn("0 0 29 2 *", "Europe/Berlin"), "2096-03-01T00:00:00Z", "2104-12-31T00:00:00Z",
			[]string{"2104-02-28T23:00:00Z", "2104-02-29T00:00:00+01:00"},
		},
		{
			"an offset with seconds", cronIn("0 12 * * *", "Africa/Monrovia"), "1971-06-01T00:00:00Z", "1971-06-02T00:00:00Z",
			[]string{"1971-06-01T12:44:30Z", "1971-06-01T12:00:00-00:44"},
		},
		{
			"start is inclusive, end exclusive",
			schedule.Schedule{
				Kind: schedule.Cron, Spec: "0 * * * *", Zone: "UTC",
				Start: time.Date(2026, 1, 1, 2, 0, 0, 0, time.UTC), End: time.Date(2026, 1, 1, 4, 0, 0, 0, time.UTC),
			},
			"2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z",
			[]string{"2026-01-01T02:00:00Z", "2026-01-01T02:00:00Z", "2026-01-01T03:00:00Z", "2026-01-01T03:00:00Z"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if err := c.s.Validate(); err != nil {
				t.Fatal(err)
			}
			occ, more := c.s.Between(at(t, c.after), at(t, c.until), 100)
			var have []string
			for _, o := range occ {
				have = append(have, o.At.Format(time.RFC3339Nano), o.Civil)
			}
			if diff := cmp.Diff(c.want, have); diff != "" || more {
				t.Errorf("more %v (-want +got):\n%s", more, diff)
			}
		})
	}
}

func TestOnce(t *testing.T) {
	t.Parallel()
	s := schedule.Schedule{Kind: schedule.Once, At: at(t, "2026-04-24T01:00:00.1234567+03:00")}
	want := schedule.Occurrence{At: at(t, "2026-04-23T22:00:00.123456Z"), Civil: "2026-04-23T22:00:00.123456Z"}
	first, ok := s.First()
	if !ok || !cmp.Equal(first, want) {
		t.Errorf("First: %v %v, want %v", first, ok, want)
	}
	if next, ok := s.Next(want.At.Add(-time.Microsecond)); !ok || next != want {
		t.Errorf("Next just before: %v %v", next, ok)
	}
	if next, ok := s.Next(want.At); ok {
		t.Errorf("Next after the only time: %v", next)
	}
	if n, last := s.Count(time.Time{}, at(t, "9999-12-31T00:00:00Z"), 10); n != 1 || last != want {
		t.Errorf("Count: %d %v", n, last)
	}
}

func TestEvery(t *testing.T) {
	t.Parallel()
	s := schedule.Schedule{Kind: schedule.Every, Period: time.Second, Anchor: at(t, "1970-01-01T00:00:00.5Z")}
	end := at(t, "9999-12-31T23:59:59.999999Z")
	if first, ok := s.First(); !ok || first.Civil != "1970-01-01T00:00:00.5Z" {
		t.Errorf("First: %v %v", first, ok)
	}
	// 8,030 years of seconds: only arithmetic can answer this.
	const total = 253402300800
	n, last := s.Count(time.Time{}, end, 1<<62)
	if n != total || last.Civil != "9999-12-31T23:59:59.5Z" {
		t.Errorf("Count: %d %v, want %d", n, last, total)
	}
	if latest, ok := s.Latest(time.Time{}, end); !ok || latest != last {
		t.Errorf("Latest: %v %v", latest, ok)
	}
	if _, ok := s.Latest(last.At, end); ok {
		t.Error("Latest: something after the last")
	}
	if _, ok := s.Next(last.At); ok {
		t.Error("Next: something after year 9999")
	}
	s.Start = at(t, "2026-01-01T00:00:00Z")
	if first, ok := s.First(); !ok || first.Civil != "2026-01-01T00:00:00.5Z" {
		t.Errorf("First with a start between two fires keeps the anchor's grid: %v %v", first, ok)
	}
}

// TestFarYears has the years at which counters end.
func TestFarYears(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ spec, zone, after, want string }{
		{"@yearly", "UTC", "2037-06-01T00:00:00Z", "2038-01-01T00:00:00Z"},
		{"0 4 19 1 *", "Europe/Berlin", "2038-01-19T02:00:00Z", "2038-01-19T03:00:00Z"},
		{"@yearly", "Europe/Berlin", "2262-06-01T00:00:00Z", "2262-12-31T23:00:00Z"},
		{"30 2 * * *", "Europe/Berlin", "9999-03-27T12:00:00Z", "9999-03-28T01:00:00Z"},
		{"59 23 31 12 *", "UTC", "9999-01-01T00:00:00Z", "9999-12-31T23:59:00Z"},
		{"@yearly", "UTC", "9999-01-01T00:00:00Z", ""},
		{"@daily", "Pacific/Kiritimati", "9999-12-31T09:59:00Z", ""},
		{"* * * * *", "UTC", "0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z"},
	} {
		have := ""
		if o, ok := cronIn(c.spec, c.zone).Next(at(t, c.after)); ok {
			have = o.At.Format(time.RFC3339)
		}
		if have != c.want {
			t.Errorf("%q in %s after %s: %q, want %q", c.spec, c.zone, c.after, have, c.want)
		}
	}
}

func TestJitter(t *testing.T) {
	t.Parallel()
	s := schedule.Schedule{Jitter: 10 * time.Second}
	when := at(t, "2026-04-24T01:00:00Z")
	const golden = 4235891 * time.Microsecond
	// Golden: planners of different versions must agree.
	if got := s.JitterFor([16]byte{1, 2, 3}, when); got != golden {
		t.Errorf("JitterFor is %v, it must stay %v", got, golden)
	}
	var sum time.Duration
	const n = 10_000
	for i := range n {
		j := s.JitterFor([16]byte{1}, when.Add(time.Duration(i)*time.Minute))
		if j < 0 || j >= s.Jitter {
			t.Fatalf("%v is outside of [0, %v)", j, s.Jitter)
		}
		sum += j
	}
	if mean := sum / n; mean < 4800*time.Millisecond || mean > 5200*time.Millisecond {
		t.Errorf("the mean of %d is %v, want about 5s", n, mean)
	}
	if s.JitterFor([16]byte{1}, when) == s.JitterFor([16]byte{2}, when) {
		t.Error("two jobs have the same jitter")
	}
	if got := (schedule.Schedule{}).JitterFor([16]byte{1}, when); got != 0 {
		t.Errorf("without jitter: %v", got)
	}
}

// TestLatestToTheSecond asks at every second between two fires, so that no probe of the bisection may be one off.
func TestLatestToTheSecond(t *testing.T) {
	t.Parallel()
	c, err := cronIn("0 * * * *", "Europe/Berlin").Compile()
	if err != nil {
		t.Fatal(err)
	}
	fire := at(t, "2026-10-25T00:00:00Z")
	for k := range 3 * 3600 {
		until := fire.Add(time.Duration(k) * time.Second)
		latest, ok := c.Latest(fire.AddDate(0, 0, -1), until)
		if want := until.Truncate(time.Hour); !ok || !latest.At.Equal(want) {
			t.Fatalf("until %v: %v %v, want %v", until, latest, ok, want)
		}
	}
}
