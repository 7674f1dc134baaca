package schedule

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/robfig/cron/v3"
)

// maxSpec is the longest cron text, in bytes.
const maxSpec = 256

const specAllowed = "five fields (minute hour day-of-month month day-of-week) of numbers, names, ranges, steps and lists, " +
	"or one of @hourly @daily @midnight @weekly @monthly @yearly @annually"

// descriptors are read as the five fields that they stand for, so that one policy covers both.
var descriptors = map[string]string{
	"@hourly":   "0 * * * *",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@weekly":   "0 0 * * 0",
	"@monthly":  "0 0 1 * *",
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
}

// cronField is one of the five fields, with robfig's parser for it alone, so that an error can name the field.
type cronField struct {
	name   string
	parser cron.Parser
	bits   func(*cron.SpecSchedule) uint64
}

const dayOfWeek = 4

var cronFields = [5]cronField{
	{"minute", cron.NewParser(cron.Minute), func(s *cron.SpecSchedule) uint64 { return s.Minute }},
	{"hour", cron.NewParser(cron.Hour), func(s *cron.SpecSchedule) uint64 { return s.Hour }},
	{"day-of-month", cron.NewParser(cron.Dom), func(s *cron.SpecSchedule) uint64 { return s.Dom }},
	{"month", cron.NewParser(cron.Month), func(s *cron.SpecSchedule) uint64 { return s.Month }},
	{"day-of-week", cron.NewParser(cron.Dow), func(s *cron.SpecSchedule) uint64 { return s.Dow }},
}

// starBit is how robfig marks a field one of whose items is * or */1.
const starBit = 1 << 63

// parseSpec reads cron text; a non-empty reason completes the sentence "the spec …".
func parseSpec(text string) (r rule, reason string) {
	if reason := refuseText(text); reason != "" {
		return rule{}, reason
	}
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "@") {
		known, ok := descriptors[text]
		switch {
		case strings.HasPrefix(text, "@every"):
			return rule{}, "is not cron: use a schedule of kind every"
		case !ok:
			return rule{}, "is not a known descriptor"
		}
		text = known
	}
	fields := strings.Fields(text)
	switch {
	case len(fields) == 6:
		return rule{}, "has 6 fields: seconds (and years) are not written in cron text, use a schedule of kind every for less than a minute"
	case len(fields) != 5:
		return rule{}, fmt.Sprintf("has %d fields", len(fields))
	}
	var sets [5]uint64
	for i, f := range cronFields {
		plain := strings.ReplaceAll(fields[i], "?", "*")
		set, err := parseField(f, plain, i == dayOfWeek)
		if err != nil {
			return rule{}, fmt.Sprintf("has a bad %s field: %v", f.name, err)
		}
		sets[i] = set
		if i < 2 && strings.HasPrefix(plain, "*") {
			r.elapsed = true
		}
	}
	r.minute, r.hour, r.dom, r.month, r.dow = sets[0]&^starBit, sets[1]&^starBit, sets[2]&^starBit, sets[3]&^starBit, sets[4]&^starBit
	r.anyDom, r.anyDow = sets[2]&starBit != 0, sets[4]&starBit != 0
	if !r.possible() {
		return rule{}, "can never fire: none of its months has such a day"
	}
	return r, ""
}

// refuseText refuses what must not reach the parser at all.
func refuseText(text string) string {
	if len(text) > maxSpec {
		return fmt.Sprintf("is longer than %d bytes", maxSpec)
	}
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return fmt.Sprintf("has a byte that is not printable ASCII at position %d", i)
		}
	}
	upper := strings.ToUpper(strings.TrimSpace(text))
	switch {
	case upper == "":
		return "is empty"
	case strings.HasPrefix(upper, "TZ="), strings.HasPrefix(upper, "CRON_TZ="):
		return "names a zone: give it in the zone field"
	}
	return ""
}

// parseField gives the bit set of a field, with the star bit. It checks by itself what robfig lets pass (empty items, signs, text
// behind a star) and reads Sunday as 7, which robfig does not know.
func parseField(f cronField, text string, sundays bool) (uint64, error) {
	var set uint64
	for item := range strings.SplitSeq(text, ",") {
		if err := checkItem(item); err != nil {
			return 0, err
		}
		var (
			part uint64
			err  error
		)
		if body, _, _ := strings.Cut(item, "/"); sundays && isSeven(body[strings.Index(body, "-")+1:]) {
			part, err = parseToSunday(f, item)
		} else {
			part, err = f.parse(item)
		}
		if err != nil {
			return 0, err
		}
		set |= part
	}
	return set, nil
}

// checkItem holds an item to the grammar: (* | value [- value]) [/ digits], where a value is digits or three letters.
func checkItem(item string) error {
	if item == "" {
		return fmt.Errorf("it has an empty item")
	}
	body, step, stepped := strings.Cut(item, "/")
	low, high, ranged := strings.Cut(body, "-")
	switch {
	case stepped && !isDigits(step):
		return fmt.Errorf("the step of %q is not a number", item)
	case stepped && strings.Trim(step, "0") == "":
		return fmt.Errorf("the step of %q is 0", item)
	case body == "*":
		return nil
	case !isValue(low), ranged && !isValue(high):
		return fmt.Errorf("%q is not *, a value or a range (L, W and # are not supported)", item)
	}
	return nil
}

// parseToSunday reads an item of the day of week whose last day is Sunday written as 7.
func parseToSunday(f cronField, item string) (uint64, error) {
	body, stepText, stepped := strings.Cut(item, "/")
	low, _, ranged := strings.Cut(body, "-")
	if !ranged && stepped {
		return 0, fmt.Errorf("%q steps from the last day of the week on: write 0/%s or 7", item, stepText)
	}
	if isSeven(low) {
		return f.parse("0")
	}
	start, err := f.parse(low)
	if err != nil {
		return 0, err
	}
	step := 1
	if stepped {
		if step, err = strconv.Atoi(stepText); err != nil {
			return 0, fmt.Errorf("the step of %q is too large", item)
		}
	}
	var set uint64
	for day := bits.TrailingZeros64(start); day <= 7; day += min(step, 8) {
		set |= 1 << (day % 7)
	}
	return set, nil
}

// parse lets robfig read one item. Its parser has panicked on hostile text before, so a panic is an error here.
func (f cronField) parse(item string) (set uint64, err error) {
	defer func() {
		if p := recover(); p != nil {
			set, err = 0, fmt.Errorf("%q cannot be read: %v", item, p)
		}
	}()
	parsed, err := f.parser.Parse(item)
	if err != nil {
		return 0, err
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return 0, fmt.Errorf("%q is not a field", item)
	}
	return f.bits(spec), nil
}

func isSeven(value string) bool { return isDigits(value) && strings.TrimLeft(value, "0") == "7" }

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

func isValue(text string) bool {
	if isDigits(text) {
		return true
	}
	if len(text) != 3 {
		return false
	}
	for _, c := range []byte(strings.ToLower(text)) {
		if c < 'a' || c > 'z' {
			return false
		}
	}
	return true
}
