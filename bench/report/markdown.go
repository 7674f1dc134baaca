package report

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// column is a value as tables show it.
type column struct {
	value, title string
	digits       int // after the point
}

var (
	cost = []column{
		{"cpu", "CPU s per 1,000", 3}, {"database_cpu", "of it database", 3}, {"memory", "memory MiB", 0}, {"wal", "WAL B per job", 0}, {"written", "disk B per job", 0},
	}
	lateness = []column{{"min", "min ms", 1}, {"p50", "p50 ms", 1}, {"p95", "p95 ms", 1}, {"p99", "p99 ms", 1}, {"max", "max ms", 1}, {"early", "early", 0}}
	columns  = map[string][]column{
		"W1":  slices.Concat([]column{{"rate", "jobs/s", 0}, {"p50", "p50 ms", 1}, {"p99", "p99 ms", 1}}, cost),
		"W1b": slices.Concat([]column{{"rate", "jobs/s", 0}, {"p50", "p50 ms of a batch", 1}, {"p99", "p99 ms of a batch", 1}}, cost),
		"W2":  slices.Concat([]column{{"rate", "jobs/s", 0}, {"start_rate", "starts/s", 0}, {"first", "first start ms", 0}}, cost),
		"W3":  slices.Concat(lateness, cost),
		"W4":  slices.Concat(lateness, []column{{"urgent_max", "max ms of the urgent", 1}, {"overtaken", "% of others before the last urgent", 1}}, cost[:1]),
		"W5":  slices.Concat([]column{{"rate", "jobs/s", 0}, {"submit_p50", "submit p50 ms", 1}, {"p50", "submit to start p50 ms", 1}, {"p99", "p99 ms", 1}}, cost),
		"W6": {
			{"core", "% of a core", 2}, {"database_core", "of it database", 2}, {"server_memory", "memory MiB without client and database", 0}, {"memory", "memory MiB of all", 0},
			{"transactions", "transactions/s", 1}, {"wal_rate", "WAL B/s", 0}, {"rate", "stored jobs/s", 0},
		},
		"W7": slices.Concat([]column{{"fires", "fires", 0}, {"rate", "fires/s", 0}, {"missing", "missing", 0}, {"again", "twice", 0}}, lateness, cost),
		"L":  lateness[:5],
		"W8": {
			{"rate", "reads/s", 0}, {"read_p50", "read p50 ms", 1}, {"read_p99", "p99 ms", 1}, {"read_max", "max ms", 1}, {"jobs_rate", "jobs/s beside", 0},
			{"p50", "submit to start p50 ms", 1}, {"p99", "p99 ms", 1}, {"core", "% of a core, all", 0}, {"memory", "memory MiB", 0},
		},
		"W8b": {
			{"runs", "runs", 0}, {"list_p50", "page p50 ms", 2}, {"list_max", "max ms", 2}, {"list_cpu", "CPU ms", 2}, {"failures_p50", "failures p50 ms", 2},
			{"failures_max", "max ms", 2}, {"failures_cpu", "CPU ms", 2},
		},
		"W9": {
			{"10000", "ms at 10⁴", 2}, {"100000", "10⁵", 2}, {"1000000", "10⁶", 2}, {"10000000", "10⁷", 2}, {"deleted", "after deletions", 2},
			{"deleted_first", "the first after deletions", 2}, {"10000_cpu", "CPU ms at 10⁴", 2}, {"1000000_cpu", "at 10⁶", 2}, {"10000000_cpu", "at 10⁷", 2},
			{"deleted_cpu", "after deletions", 2},
		},
		"F": {{"rate", "jobs/s", 0}, cost[0], cost[1], cost[3], cost[4]},
	}
	// compared are the values that a second table sets against the reference.
	compared = map[string][]column{
		"W1": {{"rate", "rate", 2}, {"cpu", "CPU", 2}}, "W1b": {{"rate", "rate", 2}, {"cpu", "CPU", 2}}, "W2": {{"rate", "rate", 2}, {"cpu", "CPU", 2}},
		"W3": {{"p50", "p50", 2}, {"p99", "p99", 2}, {"cpu", "CPU", 2}}, "W4": {{"max", "max", 2}, {"cpu", "CPU", 2}}, "W5": {{"rate", "rate", 2}, {"cpu", "CPU", 2}},
		"W6": {{"core", "CPU", 2}}, "L": {{"p50", "p50", 2}, {"p99", "p99", 2}},
	}
)

// reference is the contender that ratios are to.
const reference = "river"

// WriteMarkdown writes the tables: medians, with the lowest and the highest value where there were several.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s · %s · took %s\n\n", r.Begun.UTC().Format("2006-01-02 15:04 MST"), r.Machine, r.Took.Round(time.Second))
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		fmt.Fprintf(&b, "- %s %s\n", name, r.Versions[name])
	}
	for _, s := range r.Settings {
		fmt.Fprintf(&b, "- %s\n", s)
	}
	for _, s := range r.Missing {
		fmt.Fprintf(&b, "- **missing:** %s\n", s)
	}
	for i := range r.Contenders {
		if c := &r.Contenders[i]; c.Settings != "" {
			fmt.Fprintf(&b, "- %s: %s\n", c.Title, c.Settings)
		}
	}
	for i := range r.Workloads {
		r.table(&b, &r.Workloads[i])
	}
	r.floorsTable(&b)
	r.aimsTable(&b)
	r.errors(&b)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the tables: %w", err)
	}
	return nil
}

func (r *Report) table(b *strings.Builder, w *Workload) {
	if !slices.ContainsFunc(r.Contenders, func(c Contender) bool { return r.has(w.Name, c.Name) }) {
		return
	}
	cols := columns[w.Name]
	fmt.Fprintf(b, "\n### %s: %s\n\n|", w.Name, w.Title)
	for _, c := range cols {
		fmt.Fprintf(b, " | %s", c.title)
	}
	ratios := compared[w.Name]
	for _, c := range ratios {
		fmt.Fprintf(b, " | %s to River's", c.title)
	}
	fmt.Fprintf(b, " |\n|%s\n", strings.Repeat("---|", 1+len(cols)+len(ratios)))
	for i := range r.Contenders {
		name := r.Contenders[i].Name
		if !r.has(w.Name, name) {
			continue
		}
		fmt.Fprintf(b, "| %s", r.Contenders[i].Title)
		for _, c := range cols {
			b.WriteString(" | ")
			if s, ok := r.Of(w.Name, name, c.value); ok {
				b.WriteString(cell(s, c.digits))
			}
		}
		for _, c := range ratios {
			b.WriteString(" | ")
			own, ok := r.Of(w.Name, name, c.value)
			to, there := r.Of(w.Name, reference, c.value)
			if ok && there && to.Median != 0 && name != reference {
				fmt.Fprintf(b, "%.*f", c.digits, own.Median/to.Median)
			}
		}
		b.WriteString(" |\n")
	}
}

func (r *Report) has(workload, contender string) bool {
	return slices.ContainsFunc(r.Measures, func(m Measure) bool { return m.Workload == workload && m.Contender == contender && m.Values != nil })
}

func (r *Report) errors(b *strings.Builder) {
	for i := range r.Measures {
		if m := &r.Measures[i]; m.Error != "" {
			fmt.Fprintf(b, "\n**Not measured:** %s, %s, repetition %d: %s\n", m.Workload, m.Contender, m.Repetition, m.Error)
		}
	}
}

// cell shows a spread; values that look the same are shown once.
func cell(s Spread, digits int) string {
	median, low, high := number(s.Median, digits), number(s.Min, digits), number(s.Max, digits)
	if low == high {
		return median
	}
	return median + " (" + low + "–" + high + ")"
}

// number shows a value with commas between thousands.
func number(v float64, digits int) string {
	text := fmt.Sprintf("%.*f", digits, math.Abs(v))
	whole, rest, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if rest != "" {
		whole += "." + rest
	}
	if v < 0 && strings.Trim(text, "0.") != "" {
		whole = "−" + whole
	}
	return whole
}
