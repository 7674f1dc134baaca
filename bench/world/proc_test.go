package world

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	tail := " S 7 1 1 0 -1 4194560 100 200 0 0 11 12 300 400 20 0 1 0 5 6 7"
	tests := map[string]struct {
		text string
		want stat
		err  string
	}{
		"plain":                  {"42 (postgres)" + tail, stat{7, 7230 * time.Millisecond}, ""},
		"a name like the format": {"42 (a) R 1 (b c)" + tail, stat{7, 7230 * time.Millisecond}, ""},
		"no name":                {"42 postgres" + tail, stat{}, "parentheses"},
		"cut short":              {"42 (postgres) S 7 1", stat{}, "fields"},
		"not a number":           {strings.Replace("42 (postgres)"+tail, " 300 ", " x ", 1), stat{}, "CPU time"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseStat(test.text)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("error %v, want one with %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(stat{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseWrittenAndMemory(t *testing.T) {
	t.Parallel()
	written, err := parseWritten("rchar: 1\nwchar: 2\nread_bytes: 3\nwrite_bytes: 4096\ncancelled_write_bytes: 9\n")
	if err != nil || written != 4096 {
		t.Errorf("written %d, %v", written, err)
	}
	pss, err := parsePSS("5581 [rollup]\nRss:  900 kB\nPss:       123 kB\nPss_Anon: 5 kB\n")
	if err != nil || pss != 123<<10 {
		t.Errorf("memory %d, %v", pss, err)
	}
	if _, err := parsePSS("Rss: 900 kB\n"); err == nil {
		t.Error("no error where there is no such line")
	}
}

func TestFamily(t *testing.T) {
	t.Parallel()
	parents := map[int]int{1: 0, 10: 1, 11: 10, 12: 11, 20: 1, 30: 31, 31: 30}
	for _, test := range []struct {
		roots, want []int
	}{
		{[]int{10}, []int{10, 11, 12}},
		{[]int{11, 20}, []int{11, 12, 20}},
		{[]int{99}, nil},
		{[]int{10, 12}, []int{10, 11, 12}}, // one inside the other counts once
	} {
		got := family(parents, test.roots)
		slices.Sort(got)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("family of %v (-want +got):\n%s", test.roots, diff)
		}
	}
}

func TestMeterSeesOwnWork(t *testing.T) {
	t.Parallel()
	m, err := NewMeter(t.Context(), nil, "")
	if err != nil {
		t.Fatal(err)
	}
	from, err := m.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(from.own.pids, os.Getpid()) {
		t.Fatalf("this process is not among its own: %v", from.own.pids)
	}
	for sum, began := 0, time.Now(); time.Since(began) < 50*time.Millisecond; sum++ {
	}
	u, err := m.Since(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	if u.CPU <= 0 || u.DatabaseCPU != 0 || u.Memory <= 0 {
		t.Errorf("after some work: %+v", u)
	}
}
