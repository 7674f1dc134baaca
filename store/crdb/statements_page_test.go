package crdb

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

const keysHeading = "## Keys touched\n"

// page is docs/statements.md.
type page struct {
	results []result
	plans   map[string]string
	version int
	b       strings.Builder
}

func (p *page) serverLine() string {
	return fmt.Sprintf("These figures and plans are those of PostgreSQL %d.", p.version)
}

func (p *page) text() string {
	p.b.Reset()
	p.b.WriteString(`# Statements

What SQL is asked for the life of a job: every statement of ` + "`store/crdb`" + `, how often it is sent for one job, what it touches, and by which plan.
All of it is measured on PostgreSQL by a test, which drives the store as the roles do and fails where this page says otherwise. It is the same at READ
COMMITTED and at SERIALIZABLE. ` + "`go test ./store/crdb -run TestStatements -update`" + ` writes the page.

Figures are per job, or per time that the step is done. Where calls take many jobs they stand as 1 → 0.002: alone, and in a batch of 500. Alone is what a
job costs on an idle system; under load batches fill. What a call costs however many jobs it takes falls with the batch, what is done for each job does
not.

## Executions

A round trip is what the client waits for: statements that need no answers of each other share one, BEGIN and COMMIT among them. The first use of a
statement on a connection costs one more, to prepare it; that is not counted.

| scenario | step | calls | round trips | statements | BEGIN, COMMIT |
|---|---|---|---|---|---|
`)
	for i, r := range p.results {
		for k, st := range r.Steps {
			name := ""
			if k == 0 {
				name = fmt.Sprintf("**%d. %s**", i+1, r.Name)
			}
			frames := per(st.At, func(m *measured) int { return m.sent("begin") + m.sent("commit") })
			p.row(name, st.Name, st.Calls, per(st.At, func(m *measured) int { return len(m.trips) }),
				per(st.At, func(m *measured) int { return m.sent("") - m.sent("begin") - m.sent("commit") }), frames)
		}
	}
	p.order()
	p.statements()
	p.keys()
	p.allPlans()
	return p.b.String()
}

func (p *page) row(cells ...string) { p.b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }

// sent counts executions of a statement, of all where name is empty.
func (m *measured) sent(name string) (n int) {
	for _, trip := range m.trips {
		for _, s := range trip {
			if name == "" || s == name {
				n++
			}
		}
	}
	return n
}

// per is a count per job at each size, once where it is the same.
func per(at []measured, count func(m *measured) int) string {
	var out []string
	for i := range at {
		each := math.Round(1000*float64(count(&at[i]))/float64(at[i].n)) / 1000
		if s := strconv.FormatFloat(each, 'f', -1, 64); len(out) == 0 || out[0] != s {
			out = append(out, s)
		}
	}
	if len(out) == 1 && out[0] == "0" {
		return ""
	}
	return strings.Join(out, " → ")
}

// order is what is sent in each round trip.
func (p *page) order() {
	p.b.WriteString("\n## In their order\n\nBrackets hold what goes in one round trip.\n\n```\n")
	for i, r := range p.results {
		fmt.Fprintf(&p.b, "%d. %s\n", i+1, r.Name)
		for _, st := range r.Steps {
			var trips []string
			for _, trip := range st.At[len(st.At)-1].trips {
				trips = append(trips, "["+strings.Join(trip, ", ")+"]")
			}
			fmt.Fprintf(&p.b, "   %-28s %s\n", st.Name, strings.Join(folded(trips), " "))
		}
	}
	p.b.WriteString("```\n")
}

// folded writes what repeats itself once: a whole that is made of equal parts, or else equal neighbours.
func folded(list []string) (out []string) {
	for d := 2; d <= len(list)/2; d++ {
		if n := len(list) / d; n*d == len(list) && slices.Equal(list, slices.Repeat(list[:d], n)) && !slices.Equal(list[1:], list[:len(list)-1]) {
			return []string{"(" + strings.Join(list[:d], " ") + ") ×" + strconv.Itoa(n)}
		}
	}
	for i := 0; i < len(list); {
		k := i
		for k < len(list) && list[k] == list[i] {
			k++
		}
		text := list[i]
		if k-i > 1 {
			text += " ×" + strconv.Itoa(k-i)
		}
		out = append(out, text)
		i = k
	}
	return out
}

func (p *page) statements() {
	p.b.WriteString(`
## Statements

The number before the colon is that of the first scenario that sends the statement; what follows is how often it is sent in all steps of that, and how
many rows it returns or writes. Statements without it belong to no scenario. The index is that of the plan; functions and inserts need none.

| statement | for | called by, when | per job | rows | index |
|---|---|---|---|---|---|
`)
	for _, e := range catalogue {
		times, rows := p.first(e.name)
		var indexes []string
		for _, m := range index.FindAllStringSubmatch(p.plans[e.name], -1) {
			if name := m[1] + m[2]; !slices.Contains(indexes, name) {
				indexes = append(indexes, name)
			}
		}
		p.row(e.name, e.use, e.by, times, rows, strings.Join(indexes, ", "))
	}
}

// first is how often a statement is sent in the first scenario that does, with how many rows.
func (p *page) first(name string) (times, rows string) {
	for i, r := range p.results {
		whole := make([]measured, len(r.Steps[0].At))
		for _, st := range r.Steps {
			for k, m := range st.At {
				whole[k].n = m.n
				whole[k].trips = append(whole[k].trips, m.trips...)
				if whole[k].rows == nil {
					whole[k].rows = map[string]int64{}
				}
				whole[k].rows[name] += m.rows[name]
			}
		}
		if whole[0].sent(name) > 0 {
			times = per(whole, func(m *measured) int { return m.sent(name) })
			return fmt.Sprintf("%d: %s", i+1, times), per(whole, func(m *measured) int { return int(m.rows[name]) })
		}
	}
	return "", ""
}

func (p *page) keys() {
	p.b.WriteString("\n" + keysHeading + `
` + p.serverLine() + `

Read are rows fetched through an index. Of the updates, HOT ones stay on their page and write no index. Locked are rows whose lock is written to the log:
by FOR UPDATE, and by an update that must look for room on another page. Look-ups are descents of an index, entries are what is written to it. Rows of
INSERT … ON CONFLICT are written to the log twice, the second time to confirm. Clean-up is off while this is counted.

| | step | table | read | ins. | upd. | HOT | del. | lock | look-ups | entries |
|---|---|---|---|---|---|---|---|---|---|---|
`)
	for i, r := range p.results {
		for _, st := range r.Steps {
			names := map[string]bool{}
			for _, m := range st.At {
				for table := range m.touched {
					names[table] = true
				}
			}
			for k, table := range slices.Sorted(maps.Keys(names)) {
				count := func(of func(c counts) int64) string {
					return per(st.At, func(m *measured) int { return int(of(m.touched[table])) })
				}
				number, step := "", ""
				if k == 0 {
					number, step = strconv.Itoa(i+1), st.Name
				}
				p.row(number, step, table,
					count(func(c counts) int64 { return c.read }), count(func(c counts) int64 { return c.inserted }),
					count(func(c counts) int64 { return c.updated }), count(func(c counts) int64 { return c.hot }),
					count(func(c counts) int64 { return c.deleted }), count(func(c counts) int64 { return c.locked }),
					byIndex(table, st.At, func(c counts) map[string]int64 { return c.lookups }),
					byIndex(table, st.At, func(c counts) map[string]int64 { return c.entries }))
			}
		}
	}
}

// byIndex tells a count for each index of a table, by its name without the table's.
func byIndex(table string, at []measured, of func(c counts) map[string]int64) string {
	names := map[string]bool{}
	for _, m := range at {
		for name := range of(m.touched[table]) {
			names[name] = true
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, strings.TrimPrefix(name, table+"_")+" "+per(at, func(m *measured) int { return int(of(m.touched[table])[name]) }))
	}
	return strings.Join(out, ", ")
}

func (p *page) allPlans() {
	p.b.WriteString(`
## Plans

The plan that a prepared statement runs by, under the settings of the store's connections and in an empty database. That those of the roles do not change
for the worse with what statistics say is another test's: ` + "`TestPlansWhateverTheStatistics`" + `. A page of jobs is the exception: with statistics it goes along
the index and sorts as it goes.

` + "```\n")
	for i, e := range catalogue {
		if p.plans[e.name] == "" {
			continue
		}
		if i > 0 {
			p.b.WriteString("\n")
		}
		p.b.WriteString(e.name + "\n")
		for _, line := range strings.Split(p.plans[e.name], "\n") {
			p.b.WriteString("    " + line + "\n")
		}
	}
	p.b.WriteString("```\n")
}
