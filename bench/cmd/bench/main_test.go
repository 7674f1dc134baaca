package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock-io/waterclock/bench/floor"
)

func TestParse(t *testing.T) {
	t.Parallel()
	p, err := parse([]string{"-short", "-repeat", "5", "-drain", "7", "-workloads", "F,W2", "-contenders", "river,waterclock-sqlite"})
	if err != nil {
		t.Fatal(err)
	}
	if p.repeat != 5 || p.sizes.Drain != 7 || p.sizes.Singles != shortSizes.sizes.Singles {
		t.Errorf("sizes: %+v", p)
	}
	if diff := cmp.Diff([]string{"W2", floor.Workload}, p.workloads); diff != "" {
		t.Errorf("workloads (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"waterclock-sqlite", "river"}, p.contenders); diff != "" {
		t.Errorf("contenders (-want +got):\n%s", diff)
	}
	for _, bad := range [][]string{{"-workloads", "W99"}, {"-contenders", "nobody"}, {"-workloads", ""}} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestTasksLeaveOutWhatDoesNotMatter(t *testing.T) {
	t.Parallel()
	p, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, task := range (&bench{plan: p}).tasks() {
		count[task.workload]++
	}
	want := map[string]int{"W1": 6, "W1b": 6, "W2": 4, "W3": 4, "W4": 4, "W5": 6, "W6": 6, "W7": 2, "L": 6, "W8": 2, "W8b": 2, "W9": 2, "F": 6}
	if diff := cmp.Diff(want, count); diff != "" {
		t.Errorf("measures of each workload (-want +got):\n%s", diff)
	}
}
