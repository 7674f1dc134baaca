package schedule_test

import (
	"archive/zip"
	_ "embed"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock-io/waterclock/job/schedule"
)

//go:embed zones.txt
var zoneText string

// goZones reads the zone data of the Go installation that runs the test, the same that time/tzdata links in. Where the sources are
// not there, the committed list is loaded as the program would.
var goZones = sync.OnceValues(func() (map[string]*time.Location, error) {
	out := map[string]*time.Location{}
	r, err := zip.OpenReader(filepath.Join(runtime.GOROOT(), "lib", "time", "zoneinfo.zip")) //nolint:staticcheck // tests run where they were built
	if errors.Is(err, fs.ErrNotExist) {
		for _, name := range strings.Fields(zoneText) {
			if out[name], err = time.LoadLocation(name); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for _, f := range r.File {
		if strings.HasSuffix(f.Name, "/") || f.Name == "Factory" {
			continue
		}
		data, err := fs.ReadFile(r, f.Name)
		if err != nil {
			return nil, err
		}
		if out[f.Name], err = time.LoadLocationFromTZData(f.Name, data); err != nil {
			return nil, err
		}
	}
	return out, nil
})

// locations gives a zone as the program loads it (often the machine's files, which list every change up to 2037) and as Go's own
// data has it (which end in a rule); the standard library answers differently for the two.
func locations(t *testing.T, zone string) map[string]*time.Location {
	t.Helper()
	loaded, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	all, err := goZones()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*time.Location{"loaded": loaded, "go": all[zone]}
}

// zones lists the IANA names.
func zones(t *testing.T) []string {
	t.Helper()
	all, err := goZones()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(all))
}

func TestSegments(t *testing.T) {
	t.Parallel()
	for _, zone := range zones(t) {
		for data, loc := range locations(t, zone) {
			if err := schedule.CheckSegments(loc); err != nil {
				t.Errorf("%s (%s): %v", zone, data, err)
			}
		}
	}
}

// TestZoneListIsCurrent fails when Go brings zones that the list does not have. To renew it:
// unzip -Z1 $(go env GOROOT)/lib/time/zoneinfo.zip | grep -v -e '/$' -e '^Factory$' | LC_ALL=C sort > zones.txt
func TestZoneListIsCurrent(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(strings.Fields(zoneText), zones(t)); diff != "" {
		t.Errorf("zones.txt is not the list of this Go (-list +go):\n%s", diff)
	}
}

func TestEveryZoneIsAccepted(t *testing.T) {
	t.Parallel()
	for _, zone := range zones(t) {
		s := schedule.Schedule{Kind: schedule.Cron, Spec: "@daily", Zone: zone}
		if err := s.Validate(); err != nil {
			t.Error(err)
		}
	}
}

// TestLastDayOfLeapYear: go1.26's ZoneBounds gives an end that is over on 31 December of a leap year (see segmentAt).
func TestLastDayOfLeapYear(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Sydney", "Pacific/Auckland", "UTC"} {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, year := range []int{2028, 2040, 2096, 2100, 2400} {
			s := schedule.Schedule{Kind: schedule.Cron, Spec: "*/30 * * * *", Zone: zone}
			from := time.Date(year, 12, 29, 23, 0, 0, 0, loc)
			occ, _ := s.Between(from, from.AddDate(0, 0, 5), 1000)
			if len(occ) != 5*48 {
				t.Errorf("%s %d: %d occurrences in five days, want %d", zone, year, len(occ), 5*48)
			}
		}
	}
}
