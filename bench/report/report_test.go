package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSpread(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		all  []float64
		want Spread
	}{
		"one":  {[]float64{3}, Spread{3, 3, 3}},
		"odd":  {[]float64{9, 1, 4}, Spread{4, 1, 9}},
		"even": {[]float64{8, 1, 4, 2}, Spread{3, 1, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, spread(test.all)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for want, test := range map[string]struct {
		v      float64
		digits int
	}{
		"0": {0, 0}, "999": {999, 0}, "1,000": {999.6, 0}, "12,345.68": {12345.678, 2}, "−433.0": {-433, 1}, "0.0": {-0.01, 1}, "1,234,567": {1234567, 0},
	} {
		if got := number(test.v, test.digits); got != want {
			t.Errorf("number(%v, %d) is %q, want %q", test.v, test.digits, got, want)
		}
	}
}

func sample() *Report {
	return &Report{
		Begun: time.Date(2026, 11, 21, 15, 0, 0, 0, time.UTC), Took: 90 * time.Second, Versions: map[string]string{"PostgreSQL": "15.1", "Go": "1.26"},
		Machine:    Machine{CPU: "a processor", Cores: 2, MemoryMiB: 1024, Kernel: "6.1", LoadBefore: "0.1 0.2 0.3", LoadAfter: "2 1 0"},
		Contenders: []Contender{{Name: "ours", Title: "Ours", Settings: "defaults"}, {Name: "river", Title: "River"}, {Name: "absent", Title: "Absent"}},
		Workloads:  []Workload{{"W1", "single submits"}},
		Measures: []Measure{
			{Workload: "W1", Contender: "ours", Repetition: 1, Values: map[string]float64{"rate": 20000, "cpu": .02}},
			{Workload: "W1", Contender: "river", Repetition: 1, Values: map[string]float64{"rate": 5000, "cpu": .4}},
			{Workload: "W1", Contender: "ours", Repetition: 2, Values: map[string]float64{"rate": 10000, "cpu": .02}},
			{Workload: "W1", Contender: "river", Repetition: 2, Error: "it ended"},
		},
		Missing: []string{"Asynq: no redis-server"},
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := sample().WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	const want = `2026-11-21 15:00 UTC · a processor, 2 cores, 1024 MiB, Linux 6.1 · load before 0.1 0.2 0.3, after 2 1 0 · took 1m30s

- Go 1.26
- PostgreSQL 15.1
- **missing:** Asynq: no redis-server
- Ours: defaults

### W1: single submits

| | jobs/s | p50 ms | p99 ms | CPU s per 1,000 | of it database | memory MiB | WAL B per job | disk B per job | rate to River's | CPU to River's |
|---|---|---|---|---|---|---|---|---|---|---|
| Ours | 15,000 (10,000–20,000) |  |  | 0.020 |  |  |  |  | 3.00 | 0.05 |
| River | 5,000 |  |  | 0.400 |  |  |  |  |  |  |

**Not measured:** W1, river, repetition 2: it ended
`
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(b.String(), "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestJSONComesBack(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := sample().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got Report
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), &got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAims(t *testing.T) {
	t.Parallel()
	r := &Report{Contenders: []Contender{{Name: ours, Title: "Ours"}}}
	add := func(workload, contender string, values map[string]float64) {
		r.Measures = append(r.Measures, Measure{Workload: workload, Contender: contender, Values: values})
	}
	add("W5", reference, map[string]float64{"rate": 3000, "cpu": .45})
	add("W5", ours, map[string]float64{"rate": 8000, "cpu": .15})
	add("W3", ours, map[string]float64{"p50": 2, "early": 0})
	add("F", "floor-jetstream-100", map[string]float64{"cpu": .03})
	add("F", "floor-postgres-500", map[string]float64{"cpu": .06})
	var b strings.Builder
	r.floorsTable(&b)
	r.aimsTable(&b)
	const want = `
### W5 against the floors

CPU seconds per 1,000 jobs; the floors are the JetStream loop with 100 results per status message and SQL in batches of 500.

| | W5 | floors | floors / W5 (aim ≥ 0.5) |
|---|---|---|---|
| Ours | 0.150 | 0.030 + 0.060 = 0.090 | 0.60 |

### Aims

| | Waterclock | aim | median | |
|---|---|---|---|---|
| W3 | start lag p50 ms | ≤ 1.5 | 2.0 | **missed** |
| W3 | started early | ≤ 0 | 0 | kept |
| W5 | in process, jobs/s | ≥ 9,000 (3 × River's) | 8,000 | **missed** |
| W5 | in process, CPU | ≤ 0.150 (0.33 × River's) | 0.150 | kept |
`
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(b.String(), "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
