package schedule_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock-io/waterclock/job/fielderr"
	"github.com/waterclock-io/waterclock/job/schedule"
)

// refused checks that a schedule is refused for exactly one field, for a reason that holds the given words, and has no occurrences.
func refused(t *testing.T, s schedule.Schedule, field, words string) {
	t.Helper()
	var list fielderr.FieldErrors
	if err := s.Validate(); !errors.As(err, &list) {
		t.Errorf("%+v: got %v, want field errors", s, err)
		return
	}
	if len(list) != 1 || list[0].Field != field || !strings.Contains(list[0].Reason, words) || list[0].Allowed == "" {
		t.Errorf("%+v:\n got %v\nwant one for %s with %q", s, list, field, words)
	}
	if o, ok := s.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)); ok && !strings.HasPrefix(field, "schedule.jitter") {
		t.Errorf("%+v was refused and yet has %v", s, o)
	}
}

func TestRefusedSpecs(t *testing.T) {
	t.Parallel()
	for spec, words := range map[string]string{
		"":                                      "is empty",
		"   ":                                   "is empty",
		"* * * *":                               "has 4 fields",
		"0 * * * * *":                           "seconds",
		"0 0 * * * * 2026":                      "has 7 fields",
		"TZ=UTC 0 0 * * *":                      "names a zone",
		" CRON_TZ=UTC 0 0 * * *":                "names a zone",
		"TZ=":                                   "names a zone",
		"CRON_TZ=UTC":                           "names a zone",
		"tz=UTC @daily":                         "names a zone",
		"@every 5m":                             "kind every",
		"@reboot":                               "not a known descriptor",
		"@Daily":                                "not a known descriptor",
		"@daily 5":                              "not a known descriptor",
		"1,,2 * * * *":                          "minute field: it has an empty item",
		"0 , * * *":                             "hour field: it has an empty item",
		"0 0 1, * *":                            "day-of-month field: it has an empty item",
		"0 0 * ,1 *":                            "month field: it has an empty item",
		"*/0 * * * *":                           "is 0",
		"0 0 1-5/00 * *":                        "is 0",
		"*/ * * * *":                            "step",
		"*/-1 * * * *":                          "step",
		"*/+5 * * * *":                          "step",
		"*/5/5 * * * *":                         "step",
		"*/99999999999999999999 * * * *":        "99999999999999999999",
		"60 * * * *":                            "above maximum",
		"0 24 * * *":                            "hour field",
		"0 0 0 * *":                             "below minimum",
		"0 0 32 * *":                            "above maximum",
		"0 0 * 13 *":                            "month field",
		"0 0 * * 8":                             "day-of-week field",
		"0 0 * * 7/2":                           "write 0/2 or 7",
		"0 0 * * 1-7/0":                         "is 0",
		"0 0 * * x-7":                           "not *, a value or a range",
		"0 0 * * fri-sun":                       "beyond end of range",
		"5-1 * * * *":                           "beyond end of range",
		"1-2-3 * * * *":                         "not *, a value or a range",
		"*-5 * * * *":                           "not *, a value or a range",
		"?x * * * *":                            "not *, a value or a range",
		"+5 * * * *":                            "not *, a value or a range",
		"-5 * * * *":                            "not *, a value or a range",
		"0 0 L * *":                             "not supported",
		"0 0 15W * *":                           "not supported",
		"0 0 * * 5#2":                           "not supported",
		"jan * * * *":                           "minute field",
		"0 0 * mon *":                           "month field",
		"0\t0 * * *":                            "printable ASCII at position 1",
		"0 0 * * *\n":                           "printable ASCII",
		"٣ 0 * * *":                             "printable ASCII",
		"0 0 * * *" + strings.Repeat(" ", 256):  "longer than 256 bytes",
		strings.Repeat("0,", 200) + "0 * * * *": "longer than 256 bytes",
		"0 0 30 2 *":                            "can never fire",
		"0 0 31 2,4,6,9,11 *":                   "can never fire",
		"0 0 30-31 2 ?":                         "can never fire",
		"0 0 31 feb */1":                        "can never fire",
	} {
		refused(t, cronIn(spec, "UTC"), "schedule.cron.spec", words)
	}
}

func TestAcceptedSpecs(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{
		"* * * * *", "? ? ? ? ?", "  0 0  * * *  ", "0 0 29 2 *", "0 0 30 2 1", "0 0 * feb 0-7", "00-059/05 * * * *", "0/15 * * * *", "*/60 * * * *",
		"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually", "0 0 * * 7-7", "0 0 * * 07", "0 0 * * fri-7/2", "0 0 31 1,2 *",
	} {
		if err := cronIn(spec, "UTC").Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestRefusedZones(t *testing.T) {
	t.Parallel()
	for zone, words := range map[string]string{
		"": "is missing", "Local": "something else on each machine", "local": "something else", "Mars/Olympus": "is not known",
		"europe/berlin": `did you mean "Europe/Berlin"`, "utc": `did you mean "UTC"`, "/etc/passwd": "is not known", "../zoneinfo/UTC": "is not known",
		"Europe/../UTC": "is not known", "posix/UTC": "is not known", "right/UTC": "is not known", "localtime": "is not known", "Factory": "is not known",
		"Europe": "is not known", "Europe/Berlin\n": "is not known", "+01:00": "is not known", "UTC\x00": "is not known",
	} {
		refused(t, cronIn("@daily", zone), "schedule.cron.zone", words)
	}
}

func TestRefusedOthers(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	early, late := time.Date(1969, 12, 31, 23, 59, 59, 999999999, time.UTC), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	once := schedule.Schedule{Kind: schedule.Once, At: day}
	every := schedule.Schedule{Kind: schedule.Every, Period: time.Minute, Anchor: day}
	daily := cronIn("@daily", "UTC")
	with := func(s schedule.Schedule, change func(*schedule.Schedule)) schedule.Schedule {
		change(&s)
		return s
	}
	for _, c := range []struct {
		s            schedule.Schedule
		field, words string
	}{
		{schedule.Schedule{}, "schedule.kind", "not a kind"},
		{schedule.Schedule{Kind: "CRON"}, "schedule.kind", "not a kind"},
		{schedule.Schedule{Kind: schedule.Once}, "schedule.once.at", "missing"},
		{with(once, func(s *schedule.Schedule) { s.At = early }), "schedule.once.at", "out of range"},
		{with(once, func(s *schedule.Schedule) { s.At = late }), "schedule.once.at", "out of range"},
		{with(once, func(s *schedule.Schedule) { s.Zone = "UTC" }), "schedule.cron.zone", "does not belong"},
		{with(once, func(s *schedule.Schedule) { s.Spec = "@daily" }), "schedule.cron.spec", "does not belong"},
		{with(once, func(s *schedule.Schedule) { s.End = day }), "schedule.end", "no time to fire"},
		{with(once, func(s *schedule.Schedule) { s.Start = day.Add(1000) }), "schedule.start", "no time to fire"},
		{with(every, func(s *schedule.Schedule) { s.Period = time.Second - 1 }), "schedule.every.period", "under one second"},
		{with(every, func(s *schedule.Schedule) { s.Period = 0 }), "schedule.every.period", "under one second"},
		{with(every, func(s *schedule.Schedule) { s.Period = -time.Hour }), "schedule.every.period", "under one second"},
		{with(every, func(s *schedule.Schedule) { s.Period = 366*24*time.Hour + 1 }), "schedule.every.period", "over 366 days"},
		{with(every, func(s *schedule.Schedule) { s.Period = time.Second + 1 }), "schedule.every.period", "finer"},
		{with(every, func(s *schedule.Schedule) { s.Anchor = time.Time{} }), "schedule.every.anchor", "missing"},
		{with(every, func(s *schedule.Schedule) { s.Anchor = late }), "schedule.every.anchor", "out of range"},
		{with(every, func(s *schedule.Schedule) { s.End = day }), "schedule.end", "no time to fire"},
		{with(every, func(s *schedule.Schedule) { s.At = day }), "schedule.once.at", "does not belong"},
		{with(daily, func(s *schedule.Schedule) { s.Period = time.Hour }), "schedule.every.period", "does not belong"},
		{with(daily, func(s *schedule.Schedule) { s.Anchor = day }), "schedule.every.anchor", "does not belong"},
		{with(daily, func(s *schedule.Schedule) { s.Start = early }), "schedule.start", "out of range"},
		{with(daily, func(s *schedule.Schedule) { s.End = late }), "schedule.end", "out of range"},
		{with(daily, func(s *schedule.Schedule) { s.Start, s.End = day, day }), "schedule.end", "not after the start"},
		{with(daily, func(s *schedule.Schedule) { s.Start, s.End = day.Add(1000), day.Add(time.Hour) }), "schedule.end", "no time to fire"},
		{with(daily, func(s *schedule.Schedule) { s.Jitter = -1 }), "schedule.jitter", "negative"},
		{with(daily, func(s *schedule.Schedule) { s.Jitter = 24*time.Hour + 1 }), "schedule.jitter", "over a day"},
		{with(every, func(s *schedule.Schedule) { s.Jitter = time.Minute }), "schedule.jitter", "not shorter"},
	} {
		refused(t, c.s, c.field, c.words)
	}
	for _, s := range []schedule.Schedule{
		with(daily, func(s *schedule.Schedule) { s.Start, s.End, s.Jitter = day, day.Add(1000), 24*time.Hour }),
		with(every, func(s *schedule.Schedule) { s.Period, s.Jitter = time.Second, time.Second-1 }),
		with(every, func(s *schedule.Schedule) { s.Period = 366 * 24 * time.Hour }),
		with(once, func(s *schedule.Schedule) { s.At = time.Unix(0, 0) }),
		with(once, func(s *schedule.Schedule) { s.At = late.Add(-1) }),
	} {
		if err := s.Validate(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

func TestErrorsNameEveryField(t *testing.T) {
	t.Parallel()
	s := schedule.Schedule{Kind: schedule.Cron, Spec: "0 0 30 2 *", Zone: "Mars/Olympus", Jitter: -time.Second}
	want := `schedule.cron.spec: "0 0 30 2 *" can never fire: none of its months has such a day; allowed: five fields (minute hour day-of-month month ` +
		`day-of-week) of numbers, names, ranges, steps and lists, or one of @hourly @daily @midnight @weekly @monthly @yearly @annually; and ` +
		`schedule.cron.zone: "Mars/Olympus" is not known; allowed: an IANA time zone name such as Europe/Berlin, or UTC; and ` +
		`schedule.jitter: "-1s" is negative; allowed: 0 to 24h`
	if diff := cmp.Diff(want, s.Validate().Error()); diff != "" {
		t.Error(diff)
	}
}
