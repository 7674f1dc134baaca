package simulate

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// The numbers of the balance table.
var (
	balancePlanners = []int{1, 2, 3, 4, 8, 16, 32}
	balanceShards   = []int32{16, 64, 256}
)

const balanceSets = 500

// Write plays the scenarios and writes their tables.
func Write(w io.Writer, base Config, scenarios []Scenario) error {
	var lags, events strings.Builder
	verdict := "No run was early, none was handed out twice, none was left."
	for i := range scenarios {
		sc := &scenarios[i]
		r, err := Run(sc.Config)
		if err != nil {
			return fmt.Errorf("%s: %w", sc.Title, err)
		}
		lagRow(&lags, sc, r)
		if r.Unplanned+r.Early+r.Twice > 0 {
			verdict = fmt.Sprintf("**In %q %d runs were left, %d were early, %d handed out twice.**", sc.Title, r.Unplanned, r.Early, r.Twice)
		}
		eventRows(&events, sc, r)
	}
	var b strings.Builder
	c := base.Costs
	fmt.Fprintf(&b, "Seed %d, %d shards. Costs: a page of due rows %s and %s a row, a batch of marks (up to %d rows) %s and %s a row, a publish %s, a statement of\n"+
		"the membership %s; the database works on %d statements at a time.\n\n", base.Seed, base.Shards, c.Read, c.ReadRow, base.Batch, c.Mark, c.MarkRow, c.Publish,
		c.Renew, c.Parallel)
	b.WriteString("**Lag of the hand-over** (ms; p50 / p99 / worst). *Moving* are runs of shards that changed hands, due from a second before the event to a second\n" +
		"after the claim. *Last* is when, after the first was due, the last was handed out.\n" + verdict + "\n\n")
	b.WriteString("| scenario | planners | runs | shards, max / mean | runs, max / mean | calm shards | moving shards | moving runs | lost | stale marks | last |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|\n")
	b.WriteString(lags.String())
	b.WriteString("\n**What moved.** *Must* is what the rule asks for, *1/P* an even share of the shards. *Owned*: each shard has a planner that plans it; *settled*:\n" +
		"only the one of the rule. A dash: the next event was earlier.\n\n")
	b.WriteString("| scenario | event at | planner | moved | must | 1/P | owned after | settled after |\n|---|---|---|---|---|---|---|---|\n")
	b.WriteString(events.String())
	fmt.Fprintf(&b, "\n**Balance of the rule**: the largest share over the mean, over %d sets of planners (mean, worst; in brackets planners without any shard).\n\n| planners |", balanceSets)
	for _, n := range balanceShards {
		fmt.Fprintf(&b, " %d shards |", n)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(balanceShards)))
	all := Balances(base.Seed, balanceSets, balancePlanners, balanceShards)
	for i, x := range all {
		if i%len(balanceShards) == 0 {
			fmt.Fprintf(&b, "\n| %d |", x.Planners)
		}
		fmt.Fprintf(&b, " %.2f, %.2f", x.Mean, x.Worst)
		if x.Idle > 0 {
			fmt.Fprintf(&b, " (%.1f)", x.Idle)
		}
		b.WriteString(" |")
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func lagRow(b *strings.Builder, sc *Scenario, r *Result) {
	var shards, runs []int
	for _, s := range r.Shares {
		shards, runs = append(shards, s.Shards), append(runs, s.Runs)
	}
	first := sc.Loads[0].From
	for _, l := range sc.Loads {
		first = min(first, l.From)
	}
	total := r.Calm.Runs + r.Moving.Runs
	fmt.Fprintf(b, "| %s | %d | %s | %.2f | %.2f | %s | %s | %s | %d | %d | %s |\n", sc.Title, len(sc.Members), thousands(total), Spread(shards), Spread(runs),
		lagText(r.Calm), lagText(r.Moving), thousands(r.Moving.Runs), r.Lost, r.Stale, seconds(r.Done-first))
}

func eventRows(b *strings.Builder, sc *Scenario, r *Result) {
	living := 0
	for _, e := range r.Events {
		share := 0.
		if e.What == joined {
			living++
			share = float64(sc.Shards) / float64(living)
		} else {
			share = float64(sc.Shards) / float64(living)
			living--
		}
		if e.At < settled {
			continue // the start
		}
		fmt.Fprintf(b, "| %s | %s | %s | %d | %d | %.1f | %s | %s |\n", sc.Title, seconds(e.At), e.What, e.Moved, e.Must, share, seconds(e.Owned), seconds(e.Settled))
	}
}

func lagText(l Lag) string {
	if l.Runs == 0 {
		return "–"
	}
	return fmt.Sprintf("%s / %s / %s", ms(l.P50), ms(l.P99), ms(l.Max))
}

func ms(d time.Duration) string {
	if d < 100*time.Microsecond {
		return "<0.1"
	}
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f", d.Seconds()*1000)
	}
	return thousands(int(d.Milliseconds()))
}

func seconds(d time.Duration) string {
	if d < 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
