// Package report keeps the results of the benchmark and renders them: as JSON for machines and later reports, as Markdown tables for people.
//
// It knows the names and units of values, and nothing of how they were measured. cmd/bench calls it.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// Report is one run of the benchmark.
type Report struct {
	Begun   time.Time     `json:"begun"`
	Took    time.Duration `json:"took_ns"`
	Machine Machine       `json:"machine"`
	// Versions of what took part, by name.
	Versions map[string]string `json:"versions"`
	// Settings are notes on how it was run.
	Settings   []string    `json:"settings"`
	Contenders []Contender `json:"contenders"`
	Workloads  []Workload  `json:"workloads"`
	Measures   []Measure   `json:"measures"`
	// Missing says what was left out, and why.
	Missing []string `json:"missing,omitempty"`
}

// Contender is one row of the tables.
type Contender struct {
	Name     string `json:"name"`
	Title    string `json:"title"`
	Settings string `json:"settings"`
}

// Workload is one table.
type Workload struct {
	Name  string `json:"name"`
	Title string `json:"title"`
}

// Measure is one repetition of one workload by one contender.
type Measure struct {
	Workload   string             `json:"workload"`
	Contender  string             `json:"contender"`
	Repetition int                `json:"repetition"`
	Values     map[string]float64 `json:"values,omitempty"`
	// Error says why there are no values.
	Error string `json:"error,omitempty"`
}

// WriteJSON writes the whole report.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// Spread is what several repetitions gave.
type Spread struct{ Median, Min, Max float64 }

// Of returns the spread of one value of a contender in a workload; false where it was not measured.
func (r *Report) Of(workload, contender, value string) (Spread, bool) {
	var all []float64
	for i := range r.Measures {
		m := &r.Measures[i]
		if v, ok := m.Values[value]; ok && m.Workload == workload && m.Contender == contender {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return Spread{}, false
	}
	return spread(all), true
}

// spread returns median, minimum and maximum; the median of an even number of values is the mean of the two in the middle.
func spread(all []float64) Spread {
	sorted := slices.Sorted(slices.Values(all))
	n := len(sorted)
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1]}
}
