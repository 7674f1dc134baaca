package report

import (
	"fmt"
	"strings"
)

// aim is something that a median should keep to.
type aim struct {
	workload, contender, value, what string
	atLeast                          bool
	limit                            float64
	// against is the contender whose median times limit is what counts; empty: limit itself.
	against string
	digits  int
}

const (
	ours, oursLite       = "waterclock-postgres", "waterclock-sqlite"
	oursRPC, oursLiteRPC = "waterclock-postgres-rpc", "waterclock-sqlite-rpc"
)

var aims = []aim{
	{"W1", ours, "rate", "in process, jobs/s", true, 3, reference, 0},
	{"W1", ours, "cpu", "in process, CPU", false, .25, reference, 3},
	{"W1", oursRPC, "rate", "over Connect, jobs/s", true, 2, reference, 0},
	{"W1", oursRPC, "cpu", "over Connect, CPU", false, .75, reference, 3},
	{"W1b", ours, "rate", "batches in process, jobs/s", true, 1, reference, 0},
	{"W2", ours, "rate", "jobs/s", true, 2.5, reference, 0},
	{"W2", ours, "cpu", "CPU", false, .75, reference, 3},
	{"W2", oursLite, "rate", "SQLite, jobs/s", true, 2.5, reference, 0},
	{"W2", oursLite, "cpu", "SQLite, CPU", false, .75, reference, 3},
	{"W3", ours, "p50", "start lag p50 ms", false, 1.5, "", 1},
	{"W3", ours, "p99", "start lag p99 ms", false, 5, "", 1},
	{"W3", ours, "p99", "start lag p99 ms", false, .2, reference, 1},
	{"W3", ours, "early", "started early", false, 0, "", 0},
	{"W3", ours, "cpu", "CPU", false, 1, reference, 3},
	{"W4", ours, "max", "max lag ms", false, .5, reference, 1},
	{"W4", ours, "overtaken", "% of others before the last urgent", false, 1, "", 1},
	{"W5", ours, "rate", "in process, jobs/s", true, 3, reference, 0},
	{"W5", ours, "cpu", "in process, CPU", false, 1. / 3, reference, 3},
	{"W5", oursRPC, "rate", "over Connect, jobs/s", true, 2, reference, 0},
	{"W5", oursRPC, "cpu", "over Connect, CPU", false, 2. / 3, reference, 3},
	{"W6", ours, "core", "idle, % of a core", false, 1, "", 2},
	{"W6", oursLite, "core", "idle on SQLite, % of a core", false, 1, "", 2},
	{"W6", oursLiteRPC, "server_memory", "idle server on SQLite, MiB", false, 100, "", 0},
	{"W7", ours, "missing", "fires missing", false, 0, "", 0},
	{"W7", ours, "p99", "lag p99 ms", false, 10, "", 1},
	{"W8", oursRPC, "rate", "status reads/s beside 1,000 jobs/s", true, 9900, "", 0},
	{"W8", oursRPC, "read_p99", "status reads p99 ms", false, 250, "", 1},
	{"W8b", ours, "list_max", "any page of the run list, ms", false, 50, "", 1},
	{"W9", ours, "growth", "the look for due rows at the most timers, × that at 10⁴", false, 1.5, "", 2},
	{"W9", ours, "deleted_growth", "after deletions, × that at 10⁴", false, 1.5, "", 2},
	{"L", oursRPC, "p50", "lone job p50 ms", false, 3, "", 1},
	{"L", oursRPC, "p99", "lone job p99 ms", false, 8, "", 1},
}

// aimsTable shows each aim of which everything was measured.
func (r *Report) aimsTable(b *strings.Builder) {
	var rows strings.Builder
	for i := range aims {
		a := &aims[i]
		own, ok := r.Of(a.workload, a.contender, a.value)
		limit, sign := a.limit, "≤"
		if a.atLeast {
			sign = "≥"
		}
		text := ""
		if a.against != "" {
			to, there := r.Of(a.workload, a.against, a.value)
			ok = ok && there
			limit *= to.Median
			text = fmt.Sprintf(" (%.2g × River's)", a.limit)
		}
		if !ok {
			continue
		}
		kept := "kept"
		if a.atLeast != (own.Median >= limit) && own.Median != limit {
			kept = "**missed**"
		}
		fmt.Fprintf(&rows, "| %s | %s | %s %s%s | %s | %s |\n", a.workload, a.what, sign, number(limit, a.digits), text, cell(own, a.digits), kept)
	}
	if rows.Len() > 0 {
		b.WriteString("\n### Aims\n\n| | Waterclock | aim | median | |\n|---|---|---|---|---|\n" + rows.String())
	}
}

// floorsTable sets the CPU time of Waterclock against the sum of its floors.
func (r *Report) floorsTable(b *strings.Builder) {
	loop, ok := r.Of("F", "floor-jetstream-100", "cpu")
	if !ok {
		return
	}
	var rows strings.Builder
	for _, pair := range [][2]string{{ours, "floor-postgres-500"}, {oursRPC, "floor-postgres-500"}, {oursLite, "floor-sqlite-500"}, {oursLiteRPC, "floor-sqlite-500"}} {
		sql, ok := r.Of("F", pair[1], "cpu")
		own, measured := r.Of("W5", pair[0], "cpu")
		if !ok || !measured || own.Median == 0 {
			continue
		}
		sum := loop.Median + sql.Median
		fmt.Fprintf(&rows, "| %s | %.3f | %.3f + %.3f = %.3f | %.2f |\n", r.title(pair[0]), own.Median, loop.Median, sql.Median, sum, sum/own.Median)
	}
	if rows.Len() > 0 {
		b.WriteString("\n### W5 against the floors\n\nCPU seconds per 1,000 jobs; the floors are the JetStream loop with 100 results per status message and SQL in " +
			"batches of 500.\n\n| | W5 | floors | floors / W5 (aim ≥ 0.5) |\n|---|---|---|---|\n" + rows.String())
	}
}

func (r *Report) title(contender string) string {
	for i := range r.Contenders {
		if r.Contenders[i].Name == contender {
			return r.Contenders[i].Title
		}
	}
	return contender
}
