package schedule_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock-io/waterclock/job/schedule"
)

// The oracle knows the policy and nothing of the implementation: it walks real time minute by minute, reads the wall with time.In,
// and matches with predicates that are not made from the spec text. It finds changes of a zone by sampling offsets.

// reading is the wall at one minute of real time.
type reading struct {
	unix   int64 // seconds
	civil  int64 // minutes, as if the wall read UTC
	offset int   // seconds
	clock
}

type clock struct {
	month, day, hour, minute, weekday int
}

func clockAt(civil int64) clock {
	t := time.Unix(civil*60, 0).UTC()
	return clock{int(t.Month()), t.Day(), t.Hour(), t.Minute(), int(t.Weekday())}
}

// readWalls reads every minute of [from, to].
func readWalls(loc *time.Location, from, to int64) []reading {
	out := make([]reading, 0, (to-from)/60+1)
	for u := from; u <= to; u += 60 {
		t := time.Unix(u, 0).In(loc)
		y, mo, d := t.Date()
		h, mi, _ := t.Clock()
		_, off := t.Zone()
		civil := time.Date(y, mo, d, h, mi, 0, 0, time.UTC).Unix() / 60
		out = append(out, reading{u, civil, off, clock{int(mo), d, h, mi, int(t.Weekday())}})
	}
	return out
}

// oracleRule is a spec beside its meaning.
type oracleRule struct {
	text    string
	elapsed bool
	match   func(c clock) bool
}

// fired is what the oracle and the implementation are compared by.
type fired struct {
	Unix  int64
	Civil string
}

// expect derives the fires after the instant `after` from the readings.
func (o oracleRule) expect(walls []reading, after int64) []fired {
	var out []fired
	seen := map[int64]bool{}
	for i, r := range walls {
		fires, civil, offset := false, r.civil, r.offset
		if i > 0 && !o.elapsed {
			for lost := walls[i-1].civil + 1; lost < r.civil && !fires; lost++ {
				if o.match(clockAt(lost)) {
					fires, civil, offset = true, lost, walls[i-1].offset
				}
			}
		}
		if o.match(r.clock) && (o.elapsed || !seen[r.civil]) {
			fires, civil, offset = true, r.civil, r.offset
			seen[r.civil] = true
		}
		if fires && r.unix > after {
			out = append(out, fired{r.unix, civilText(civil, offset)})
		}
	}
	return out
}

func civilText(civil int64, offset int) string {
	text := time.Unix(civil*60, 0).UTC().AppendFormat(nil, "2006-01-02T15:04:05")
	if offset == 0 {
		return string(append(text, 'Z'))
	}
	sign := byte('+')
	if offset < 0 {
		sign, offset = '-', -offset
	}
	digit := func(n int) byte { return byte('0' + n%10) }
	hours, minutes := offset/3600, offset/60%60
	return string(append(text, sign, digit(hours/10), digit(hours), ':', digit(minutes/10), digit(minutes)))
}

func got(c *schedule.Compiled, after, until int64) []fired {
	occ, _ := c.Between(time.Unix(after, 0), time.Unix(until, 0), 1<<20)
	var out []fired
	for _, o := range occ {
		out = append(out, fired{o.At.Unix(), o.Civil})
	}
	return out
}

var oracleRules = []oracleRule{
	{"*/15 * * * *", true, func(c clock) bool { return c.minute%15 == 0 }},
	{"@hourly", true, func(c clock) bool { return c.minute == 0 }},
	{"17 * * * *", true, func(c clock) bool { return c.minute == 17 }},
	{"*/20 0-2 * * *", true, func(c clock) bool { return c.minute%20 == 0 && c.hour <= 2 }},
	{"5 */3 * * ?", true, func(c clock) bool { return c.minute == 5 && c.hour%3 == 0 }},
	{"*,5 3 * * *", true, func(c clock) bool { return c.hour == 3 }},
	{"30 2 * * *", false, func(c clock) bool { return c.hour == 2 && c.minute == 30 }},
	{"@daily", false, func(c clock) bool { return c.hour == 0 && c.minute == 0 }},
	{"15,45 0-3,23 * * *", false, func(c clock) bool { return c.minute%30 == 15 && (c.hour <= 3 || c.hour == 23) }},
	{"5,* 0-2 ? * *", false, func(c clock) bool { return c.hour <= 2 }},
	{"0-59/7 1,2 * * *", false, func(c clock) bool { return c.minute%7 == 0 && (c.hour == 1 || c.hour == 2) }},
	{"@monthly", false, func(c clock) bool { return c.day == 1 && c.hour == 0 && c.minute == 0 }},
	{"30 1 * * 7", false, func(c clock) bool { return c.weekday == 0 && c.hour == 1 && c.minute == 30 }},
	{"59 23 * * sat,SUN", false, func(c clock) bool { return (c.weekday == 0 || c.weekday == 6) && c.hour == 23 && c.minute == 59 }},
	{"0 3 13 * 5", false, func(c clock) bool { return (c.day == 13 || c.weekday == 5) && c.hour == 3 && c.minute == 0 }},
	{"30 0 */2 * 1-7/3", false, func(c clock) bool {
		return (c.day%2 == 1 || c.weekday == 1 || c.weekday == 4 || c.weekday == 0) && c.hour == 0 && c.minute == 30
	}},
	{"10 0-4/2 * mar,apr,oct-nov *,3", false, func(c clock) bool {
		return c.minute == 10 && (c.hour == 0 || c.hour == 2 || c.hour == 4) && (c.month == 3 || c.month == 4 || c.month == 10 || c.month == 11)
	}},
}

// span is what is read about a moment, in seconds: `before` must exceed any overlap by an hour, so that what was read twice is known.
type span struct{ before, after int64 }

var (
	nearChange = span{6 * 3600, 9 * 3600}
	longAround = span{27 * 3600, 27 * 3600} // for dates that a zone skipped, and for ordinary days
)

// checkAround compares every rule from one hour before the moment on.
func checkAround(t *testing.T, zone string, loc *time.Location, rules []oracleRule, moment int64, length span) {
	t.Helper()
	after, until := moment-3600, moment+length.after
	walls := readWalls(loc, moment-length.before, until)
	for _, o := range rules {
		want, have := o.expect(walls, after), got(schedule.CompileIn(o.text, loc), after, until)
		if !slices.Equal(want, have) {
			t.Errorf("%q in %s after %s (-oracle +got):\n%s", o.text, zone, time.Unix(after, 0).UTC(), cmp.Diff(want, have))
		}
	}
}

// changes finds the instants of a year at which the offset changes, to the minute, by sampling twice a day and halving.
func changes(loc *time.Location, year int) []int64 {
	offset := func(u int64) int {
		_, o := time.Unix(u, 0).In(loc).Zone()
		return o
	}
	var out []int64
	begin, end := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(year+1, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for u := begin; u < end; u += 12 * 3600 {
		low, high := u, u+12*3600
		if offset(low) == offset(high) {
			continue
		}
		for high-low > 60 {
			if mid := low + (high-low)/120*60; offset(mid) == offset(low) {
				low = mid
			} else {
				high = mid
			}
		}
		out = append(out, high)
	}
	return out
}

func TestOracleEveryZone(t *testing.T) {
	t.Parallel()
	for _, zone := range zones(t) {
		t.Run(strings.ReplaceAll(zone, "/", "."), func(t *testing.T) {
			t.Parallel()
			loc := locations(t, zone)["go"]
			hash := fnv.New64a()
			hash.Write([]byte(zone))
			rnd := rand.New(rand.NewPCG(hash.Sum64(), 1))
			rules := oracleRules
			for range 4 {
				rules = append(rules[:len(rules):len(rules)], randomRule(func(low, high int) int { return low + rnd.IntN(high-low+1) }))
			}
			// Both years that matter now, one of the past, one of the future; a leap year for the rules past the zone files' tables.
			years := []int{2026, 2027, 1973 + rnd.IntN(53), 2040 + 4*rnd.IntN(15)}
			if testing.Short() {
				years = years[:1]
			}
			for _, year := range years {
				for _, moment := range changes(loc, year) {
					checkAround(t, zone, loc, rules, moment, nearChange)
				}
			}
			ordinary := time.Date(2026, 1, 1, rnd.IntN(2*365*24), 0, 0, 0, time.UTC).Unix()
			checkAround(t, zone, loc, rules, ordinary, longAround)
			if !testing.Short() {
				checkAround(t, zone, loc, rules, time.Date(years[3], 12, 31, 0, 0, 0, 0, time.UTC).Unix(), nearChange)
			}
		})
	}
}

// TestOracleOddYears looks at the zones and years in which something rare happened.
func TestOracleOddYears(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		zone string
		year int
		why  string
	}{
		{"Pacific/Apia", 2011, "30 December skipped"},
		{"Pacific/Fakaofo", 2011, "30 December skipped"},
		{"Pacific/Kwajalein", 1993, "21 August skipped"},
		{"Pacific/Kiritimati", 1994, "31 December skipped"},
		{"Pacific/Enderbury", 1994, "31 December skipped"},
		{"Africa/El_Aaiun", 2018, "Ramadan and a change of standard time"},
		{"Africa/Casablanca", 2012, "four changes in a year"},
		{"Africa/Cairo", 2010, "four changes in a year"},
		{"Australia/Lord_Howe", 2025, "half an hour"},
		{"Antarctica/Troll", 2025, "two hours"},
		{"Antarctica/Casey", 2010, "three hours"},
		{"America/Sao_Paulo", 2018, "gap at midnight"},
		{"America/Havana", 2012, "gap at midnight, overlap at one"},
		{"Asia/Beirut", 2023, "gap at midnight"},
		{"Asia/Gaza", 2011, "many changes"},
		{"Asia/Tehran", 2022, "gap at midnight"},
		{"America/Scoresbysund", 2024, "change of zone and daylight at once"},
		{"America/St_Johns", 2007, "one minute past midnight"},
		{"Asia/Kathmandu", 1985, "a gap of a quarter of an hour"},
		{"Asia/Pyongyang", 2015, "half an hour back"},
		{"Asia/Pyongyang", 2018, "half an hour forward at midnight"},
		{"America/Caracas", 2007, "half an hour back"},
		{"Europe/Dublin", 2025, "negative daylight saving"},
		{"Europe/Moscow", 2011, "to permanent summer"},
		{"Europe/Moscow", 2014, "back without a gap"},
		{"Asia/Dhaka", 2009, "gap at 23:00"},
		{"America/Metlakatla", 2015, "many changes"},
		{"America/Ciudad_Juarez", 2022, "two changes, then the rule of another zone in the same year"},
	} {
		t.Run(fmt.Sprintf("%s %d", strings.ReplaceAll(c.zone, "/", "."), c.year), func(t *testing.T) {
			t.Parallel()
			for data, loc := range locations(t, c.zone) {
				found := changes(loc, c.year)
				if len(found) == 0 {
					t.Errorf("no change found in %d (%s) in the %s data: the case tests nothing", c.year, c.why, data)
				}
				for _, moment := range found {
					checkAround(t, c.zone+" ("+data+")", loc, oracleRules, moment, longAround)
				}
			}
		})
	}
}

// TestOracleWholeYears walks every minute of two years in three zones of different sorts.
func TestOracleWholeYears(t *testing.T) {
	t.Parallel()
	wholes := []string{"Europe/Berlin", "Australia/Lord_Howe", "Africa/El_Aaiun"}
	if testing.Short() {
		wholes = wholes[:1]
	}
	const month = 30 * 24 * 3600
	for _, zone := range wholes {
		t.Run(strings.ReplaceAll(zone, "/", "."), func(t *testing.T) {
			t.Parallel()
			loc, err := time.LoadLocation(zone)
			if err != nil {
				t.Fatal(err)
			}
			end := time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
			for moment := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Unix(); moment < end; moment += month {
				checkAround(t, zone, loc, oracleRules, moment, span{longAround.before, month})
			}
		})
	}
}
