package schedule

import (
	_ "embed"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // zones must load on machines without zone files
)

// zoneText lists every IANA zone name, sorted by bytes, one a line, without the placeholder "Factory". A name outside of it is
// refused: LoadLocation would also open whatever else lies in the machine's zone folder ("localtime", "right/…", other spellings
// on a file system that ignores case).
//
//go:embed zones.txt
var zoneText string

var zoneNames = sync.OnceValue(func() []string { return strings.Fields(zoneText) })

// locations keeps loaded zones, name to *time.Location, because loading reads a file. It holds at most one entry per name of the list.
var locations sync.Map

const zoneAllowed = "an IANA time zone name such as Europe/Berlin, or UTC"

// loadZone gives the location of a listed name, or the reason for which there is none.
func loadZone(name string) (loc *time.Location, reason string) {
	switch {
	case name == "":
		return nil, "is missing: a cron schedule always has a zone"
	case strings.EqualFold(name, "Local"):
		return nil, "is not a zone: it would mean something else on each machine"
	}
	if known, ok := locations.Load(name); ok {
		return known.(*time.Location), ""
	}
	names := zoneNames()
	if i := sort.SearchStrings(names, name); i == len(names) || names[i] != name {
		for _, n := range names {
			if strings.EqualFold(n, name) {
				return nil, fmt.Sprintf("is not known (did you mean %q?)", n)
			}
		}
		return nil, "is not known"
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, "could not be loaded: " + err.Error()
	}
	kept, _ := locations.LoadOrStore(name, loc)
	return kept.(*time.Location), ""
}

// segment is a stretch of time in which a zone keeps one offset. Instants and offsets are in seconds.
type segment struct {
	start, end int64 // [start, end)
	offset     int64 // east of UTC
	before     int64 // the offset just before start
}

// beyond is further than any instant that is looked at, and small enough to be added to.
const beyond = int64(1) << 60

// segmentAt mends two answers of ZoneBounds (go1.26) for instants past the last listed change, where a rule goes on: see endAt, and
// a start that lies before the last listed change when that was made in the middle of a year (America/Ciudad_Juarez 2022).
func segmentAt(loc *time.Location, t int64) segment {
	at := time.Unix(t, 0).In(loc)
	_, offset := at.Zone()
	seg := segment{start: -beyond, end: endAt(loc, t), offset: int64(offset), before: int64(offset)}
	if start, _ := at.ZoneBounds(); !start.IsZero() {
		seg.start = start.Unix()
		for end := endAt(loc, seg.start); end < seg.end; end = endAt(loc, end) {
			seg.start = end
		}
		_, before := time.Unix(seg.start-1, 0).In(loc).Zone()
		seg.before = int64(before)
	}
	return seg
}

// endAt gives the end of the offset in force at t. The rule ends each year after 365 days, so that on the last day of a leap year
// ZoneBounds names an end that is over; the offset does hold until the year is out.
func endAt(loc *time.Location, t int64) int64 {
	at := time.Unix(t, 0).In(loc)
	switch _, end := at.ZoneBounds(); {
	case end.IsZero():
		return beyond
	case end.Unix() <= t:
		return time.Date(at.UTC().Year()+1, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	default:
		return end.Unix()
	}
}
