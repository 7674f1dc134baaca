package schedule_test

import (
	"fmt"
	"strings"
)

// randomField is the text of a cron field beside the values that it was made to mean.
type randomField struct {
	text string
	set  map[int]bool
	star bool // an item is * or */1
}

var randomNames = map[string][]string{
	"month":   {"", "jan", "Feb", "MAR", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"},
	"weekday": {"sun", "Mon", "TUE", "wed", "thu", "fri", "sat"},
}

// makeField draws up to three items. pick gives a number in [low, high].
func makeField(pick func(low, high int) int, kind string, low, high int) randomField {
	f := randomField{set: map[int]bool{}}
	var items []string
	value := func(v int) string {
		if names := randomNames[kind]; names != nil && pick(0, 3) == 0 && v < len(names) {
			return names[v]
		}
		return fmt.Sprintf("%0*d", pick(1, 2), v)
	}
	top := high
	if kind == "weekday" {
		top = 7
	}
	for range pick(1, 3) {
		step := pick(1, high+2)
		from := pick(low, high)
		to := pick(from, top)
		add := func(from, to, step int) {
			for v := from; v <= to; v += step {
				if kind == "weekday" {
					f.set[v%7] = true
				} else {
					f.set[v] = true
				}
			}
		}
		switch pick(0, 5) {
		case 0:
			items = append(items, string("*?"[pick(0, 1)]))
			add(low, high, 1)
			f.star = true
		case 1:
			items = append(items, fmt.Sprintf("*/%d", step))
			add(low, high, step)
			f.star = f.star || step == 1
		case 2:
			items = append(items, value(to))
			add(to, to, 1)
		case 3:
			items = append(items, value(from)+"-"+value(to))
			add(from, to, 1)
		case 4:
			items = append(items, fmt.Sprintf("%s-%s/%d", value(from), value(to), step))
			add(from, to, step)
		case 5:
			items = append(items, fmt.Sprintf("%s/%d", value(from), step))
			add(from, high, step)
		}
	}
	f.text = strings.Join(items, ",")
	return f
}

// randomRule draws a spec with its meaning; it may never fire (30 February).
func randomRule(pick func(low, high int) int) oracleRule {
	minute, hour := makeField(pick, "minute", 0, 59), makeField(pick, "hour", 0, 23)
	day, month, weekday := makeField(pick, "day", 1, 31), makeField(pick, "month", 1, 12), makeField(pick, "weekday", 0, 6)
	starts := func(text string) bool { return text[0] == '*' || text[0] == '?' }
	return oracleRule{
		text:    strings.Join([]string{minute.text, hour.text, day.text, month.text, weekday.text}, " "),
		elapsed: starts(minute.text) || starts(hour.text),
		match: func(c clock) bool {
			if !minute.set[c.minute] || !hour.set[c.hour] || !month.set[c.month] {
				return false
			}
			switch {
			case day.star && weekday.star:
				return true
			case day.star:
				return weekday.set[c.weekday]
			case weekday.star:
				return day.set[c.day]
			}
			return day.set[c.day] || weekday.set[c.weekday]
		},
	}
}
