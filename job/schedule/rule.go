package schedule

import (
	"math/bits"
	"time"
)

// rule is a parsed cron spec: bit n of a set says that n matches. It knows civil time only: seconds as if the wall read UTC.
type rule struct {
	minute, hour, dom, month, dow uint64
	anyDom, anyDow                bool // the day field is unrestricted
	elapsed                       bool // follows elapsed time; otherwise fixed-time
}

const (
	daySeconds = 24 * 60 * 60
	maxYear    = 9999
)

// possible reports whether some date matches. Only a day of month beside an unrestricted day of week can be missing everywhere.
func (r *rule) possible() bool {
	if r.anyDom || !r.anyDow {
		return true
	}
	const leapYear = 2000
	for m := time.January; m <= time.December; m++ {
		if r.month>>m&1 == 1 && r.days(leapYear, m) != 0 {
			return true
		}
	}
	return false
}

// days gives the matching days of a month as a bit set, bit 1 for the first.
func (r *rule) days(year int, month time.Month) uint64 {
	first := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
	length := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
	all := uint64(1)<<(length+1) - 2
	// Six weeks of the day-of-week set, shifted so that bit 1 is the weekday of the first.
	weeks := r.dow | r.dow<<7 | r.dow<<14 | r.dow<<21 | r.dow<<28 | r.dow<<35
	weekdays := weeks >> first.Weekday() << 1
	switch {
	case r.anyDom && r.anyDow:
		return all
	case r.anyDom:
		return weekdays & all
	case r.anyDow:
		return r.dom & all
	default:
		return (r.dom | weekdays) & all
	}
}

// next gives the first matching civil minute at or after civil second w; false when there is none up to the year 9999.
func (r *rule) next(w int64) (int64, bool) {
	date := time.Unix(w, 0).UTC()
	year, month, day := date.Date()
	if r.month>>month&1 == 1 && r.days(year, month)>>day&1 == 1 && year <= maxYear {
		midnight := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix()
		if minute, ok := r.minuteFrom(int(w-midnight+59) / 60); ok {
			return midnight + int64(minute)*60, true
		}
	}
	first, _ := r.minuteFrom(0)
	for day++; year <= maxYear; day = 1 {
		if r.month>>month&1 == 1 {
			if rest := r.days(year, month) >> day << day; rest != 0 {
				return time.Date(year, month, bits.TrailingZeros64(rest), 0, first, 0, 0, time.UTC).Unix(), true
			}
		}
		if later := r.month >> (month + 1); later != 0 {
			month += time.Month(1 + bits.TrailingZeros64(later))
		} else {
			year, month = year+1, time.Month(bits.TrailingZeros64(r.month))
		}
	}
	return 0, false
}

// minuteFrom gives the first matching minute of a day at or after minute m (0 to 1440).
func (r *rule) minuteFrom(m int) (int, bool) {
	hour := m / 60
	if r.hour>>hour&1 == 1 {
		if rest := r.minute >> (m % 60); rest != 0 {
			return m + bits.TrailingZeros64(rest), true
		}
	}
	later := r.hour >> (hour + 1)
	if later == 0 {
		return 0, false
	}
	hour += 1 + bits.TrailingZeros64(later)
	return hour*60 + bits.TrailingZeros64(r.minute), true
}
