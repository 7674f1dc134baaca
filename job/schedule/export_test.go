package schedule

import "time"

// CompileIn compiles cron text for a location that was loaded elsewhere: the tests try the machine's zone data and Go's own.
func CompileIn(spec string, loc *time.Location) *Compiled {
	r, reason := parseSpec(spec)
	if reason != "" {
		return &Compiled{from: 1, to: 0}
	}
	return &Compiled{source: &cronSource{rule: r, loc: loc}, from: minMicro, to: maxMicro}
}

// CheckSegments is the body of TestSegments.
var CheckSegments = checkSegments
