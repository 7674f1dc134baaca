package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestPageKeepsWhatPeopleWrote(t *testing.T) {
	t.Parallel()
	first, err := sample().Page(nil, "performance")
	if err != nil {
		t.Fatal(err)
	}
	written := bytes.Replace(first, []byte("# Performance\n"), []byte("# Performance\n\nBefore.\n"), 1)
	written = append(written, "\nAfter.\n"...)
	second, err := sample().Page(written, "performance")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(written, second) {
		t.Errorf("the same report changed the page:\n%s\nbecame\n%s", written, second)
	}
	for _, part := range []string{"Before.", "After.", "### W1: single submits", "(performance/throughput.svg)"} {
		if n := strings.Count(string(second), part); n != 1 {
			t.Errorf("%q stands in the page %d times", part, n)
		}
	}
	if _, err := sample().Page([]byte("# Something else\n"), "performance"); err == nil {
		t.Error("a page without the lines was taken")
	}
}

func TestChartsAreXML(t *testing.T) {
	t.Parallel()
	r := sample()
	r.Contenders[0].Title = `Ours <& "others">`
	r.Measures = append(r.Measures, Measure{Workload: "W3", Contender: "ours", Values: map[string]float64{"p50": -5, "p99": 3, "max": 400}})
	charts := r.Charts()
	if len(charts) != 3 {
		t.Fatalf("%d charts, want 3", len(charts))
	}
	for name, c := range charts {
		d := xml.NewDecoder(bytes.NewReader(c))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, c)
			}
		}
	}
}

func TestPlace(t *testing.T) {
	t.Parallel()
	const width = chartWidth - labelWidth - valueWidth
	for _, test := range []struct {
		c             chart
		v, most, want float64
	}{
		{chart{}, 5, 10, width / 2}, {chart{}, -3, 10, 0}, {chart{}, 3, 0, 0},
		{chart{log: true}, 1000, 1000, width}, {chart{log: true}, 10, 1000, width / 2}, {chart{log: true}, .01, 1000, 0}, {chart{log: true}, .01, .05, 0},
	} {
		if got := test.c.place(test.v, test.most); got < test.want-.01 || got > test.want+.01 {
			t.Errorf("place(%v of %v) is %v, want %v", test.v, test.most, got, test.want)
		}
	}
}
