package scale

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/waterclock-io/waterclock/bench/report"
)

// Write renders the model. Without a report of the benchmark the CPU of whole processes is shown as not measured.
func Write(w io.Writer, f *Facts, p Plan, assumptions []Assumption, bench *report.Report) error {
	if len(f.Steps) == 0 || f.Messages.Runs == 0 {
		return fmt.Errorf("facts.json holds nothing measured; cmd/scale -measure scale/facts.json makes it")
	}
	a := valuesOf(assumptions)
	var b strings.Builder
	writeFacts(&b, f)
	writeCPU(&b, f, p, a, bench)
	writeDatabase(&b, f, p, a)
	writeRoad(&b, f, p, a)
	writeVolume(&b, f, p, a)
	writePrice(&b, f, p, a, bench)
	b.WriteString("### Assumptions\n\n| what | value | source |\n|---|---|---|\n")
	for _, x := range assumptions {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", x.Name, strings.TrimSpace(number(x.Value)+" "+x.Unit), x.Source)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeFacts(b *strings.Builder, f *Facts) {
	fmt.Fprintf(b, "### What one job costs\n\nMeasured %s: %s one-time jobs with payloads of %d bytes, PostgreSQL %s,\nby the product's own store; %s runs for the messages.\nMachine: %s.\n\n",
		f.Measured.Format("2006-01-02 15:04 MST"), count(float64(f.Jobs)), f.Payload, f.Postgres, count(float64(f.Messages.Runs)), f.Machine)
	b.WriteString("| transaction | jobs in each | rows written per job | KV writes on CockroachDB | WAL bytes per job | CPU s per 1,000: database | the caller |\n|---|---|---|---|---|---|---|\n")
	var rows, kv, wal, db, client float64
	for _, s := range f.Steps {
		var tables []string
		var r, k float64
		for _, t := range slices.Sorted(maps.Keys(s.Writes)) {
			tables = append(tables, fmt.Sprintf("%s %.0f", t, s.Writes[t]))
			r += s.Writes[t]
			k += s.Writes[t] * kvPerRow[t]
		}
		batch := "–"
		if s.Batch > 0 {
			batch = fmt.Sprint(s.Batch)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %.0f | %.0f | %.3f | %.3f |\n", s.Name, batch, orDash(strings.Join(tables, ", ")), k, s.WAL, s.DatabaseCPU, s.ClientCPU)
		rows, kv, wal, db, client = rows+r, kv+k, wal+s.WAL, db+s.DatabaseCPU, client+s.ClientCPU
	}
	fmt.Fprintf(b, "| **all** | | %.0f | %.0f | %.0f | %.3f | %.3f |\n\n", rows, kv, wal, db, client)
	b.WriteString("| bytes per row | jobs | payloads | timers | runs |\n|---|---|---|---|---|\n| table |")
	names := []string{"jobs", "payloads", "timers", "runs"}
	for _, n := range names {
		fmt.Fprintf(b, " %.0f |", f.Table(n).Heap)
	}
	b.WriteString("\n| indexes |")
	for _, n := range names {
		fmt.Fprintf(b, " %.0f |", f.Table(n).Indexes)
	}
	m := f.Messages
	fmt.Fprintf(b, "\n\nA message in RUNS takes %.0f bytes, a report in STATUS %.0f (%.2f messages a run: executors put several into one). A page of due rows took %.1f ms\n"+
		"and %.0f µs a row, a batch of marks %.1f ms and %.0f µs a row, a publish %.0f µs (the quickest tenth of 40 times, as the machine was shared).\n\n", m.RunBytes, m.StatusBytes, m.StatusMessages, f.Costs.Read/1000, f.Costs.ReadRow,
		f.Costs.Mark/1000, f.Costs.MarkRow, f.Costs.Publish)
}

func writeCPU(b *strings.Builder, f *Facts, p Plan, a assumed, bench *report.Report) {
	c := cpuOf(f, bench)
	b.WriteString("### Processes of Waterclock\n\n")
	if c.Whole {
		fmt.Fprintf(b, "From the benchmark (%s), without the database and with its client: %.3f CPU s per 1,000 submits over Connect, %.3f per 1,000 runs (planner, recorder,\n"+
			"executor and NATS in one process).\n\n", bench.Begun.UTC().Format("2006-01-02"), c.Submit, c.Run)
	} else {
		fmt.Fprintf(b, "**CPU of whole processes: not measured** (`-from` names no results of the benchmark). What follows counts the calls of the store alone: %.3f CPU s\n"+
			"per 1,000 submits and %.3f per 1,000 runs. RPC, NATS and the executors' work come on top.\n\n", c.Submit, c.Run)
	}
	b.WriteString("| | submits/s | runs/s | busy cores | processes |\n|---|---|---|---|---|\n")
	for _, m := range p.Moments() {
		fmt.Fprintf(b, "| %s | %s | %s | %.1f | %s |\n", m.Name, count(m.Submits), count(m.Runs), c.Cores(m), count(processes(c, m, a)))
	}
	fmt.Fprintf(b, "\nProcesses of %.0f vCPU at %.0f %% use, at least two of api and recorder and %.0f planners; executors are as many as the work wants and are not counted.\n\n",
		a[roleCPU], 100*a[roleUse], a[planners])
}

func processes(c CPU, m Moment, a assumed) float64 {
	return max(math.Ceil(c.Cores(m)/a[roleCPU]/a[roleUse]), 4+a[planners])
}

func writeDatabase(b *strings.Builder, f *Facts, p Plan, a assumed) {
	b.WriteString("### CockroachDB\n\n| | row writes/s | KV writes/s | MB/s of log, one copy | vCPU, cautious | vCPU, by its cost model | nodes |\n|---|---|---|---|---|---|---|\n")
	for _, m := range p.Moments() {
		d := f.Database(m, a)
		fmt.Fprintf(b, "| %s | %s | %s | %.1f | %.0f | %.0f | %.0f |\n", m.Name, count(d.RowWrites), count(d.KVWrites), d.Bytes/1e6, d.Cautious, d.Costed, d.Nodes)
	}
	fmt.Fprintf(b, "\n%s status reads/s are in all three. *Cautious*: each row a transaction of its own, as others measured it; Waterclock writes up to 500 in one. Nodes of\n"+
		"%.0f vCPU, used to %.0f %%, three at least. The bytes are PostgreSQL's WAL: CockroachDB's will differ.\n\n", count(p.StatusReads), a[nodeCPU], 100*a[utilisation])
}

func writeRoad(b *strings.Builder, f *Facts, p Plan, a assumed) {
	b.WriteString("### NATS with R3\n\n| | messages/s | acks/s | MB/s to disks, three copies | STATUS keeps | RUNS of 1 GiB holds |\n|---|---|---|---|---|---|\n")
	for _, m := range p.Moments() {
		r := f.Road(m, a)
		fmt.Fprintf(b, "| %s | %s | %s | %.1f | %s | %.0f s of runs |\n", m.Name, count(r.Stored), count(r.Acks), r.Bytes/1e6, size(r.Kept), r.Budget)
	}
	b.WriteString("\n")
}

// retentions of the table, in days; the first is the history that is planned for.
func retentions(p Plan) []float64 { return []float64{p.History / p.JobsPerDay, 7, 30, 90} }

func writeVolume(b *strings.Builder, f *Facts, p Plan, a assumed) {
	nodes := f.Database(p.Moments()[2], a).Nodes
	fmt.Fprintf(b, "### History and its retention\n\n| retention | rows of history | runs | jobs | payloads | timers | disk, %.0f copies and %.0f %% free | ranges | on each of %.0f nodes |\n|---|---|---|---|---|---|---|---|---|\n",
		a[replication], 100*a[freeDisk], nodes)
	for _, days := range retentions(p) {
		v := f.Volume(p, days, nodes, a)
		fmt.Fprintf(b, "| %s d | %s | %s | %s | %s | %s | %s | %s | %s |\n", number(days), count(v.Rows), size(v.TableOfBytes["runs"]), size(v.TableOfBytes["jobs"]),
			size(v.TableOfBytes["payloads"]), size(v.TableOfBytes["timers"]), size(v.Disk), count(v.Ranges), size(v.DiskPerNode))
	}
	b.WriteString("\n")
}

func writePrice(b *strings.Builder, f *Facts, p Plan, a assumed, bench *report.Report) {
	m := p.Moments()[2]
	d, c := f.Database(m, a), cpuOf(f, bench)
	fmt.Fprintf(b, "### Price of one million jobs\n\nAt %s jobs a day, on machines for the peak that are paid all day. **Prices are assumptions**: list prices, no discount.\n\n"+
		"| retention | database | its disks | NATS | Waterclock | traffic between zones | a day | one million jobs |\n|---|---|---|---|---|---|---|---|\n", count(p.JobsPerDay))
	for _, days := range retentions(p) {
		v := f.Volume(p, days, d.Nodes, a)
		x := f.Price(p, d, v, processes(c, m, a)*a[roleCPU], a)
		fmt.Fprintf(b, "| %s d | $%.0f | $%.0f | $%.0f | $%.0f | $%.0f | $%.0f | $%.2f |\n", number(days), x.Database, x.Disk, x.NATS, x.Roles, x.Traffic,
			x.PerMillion*p.JobsPerDay/1e6, x.PerMillion)
	}
	if !c.Whole {
		b.WriteString("\nThe column Waterclock is too low where more than the least number of processes is needed: their whole CPU was not measured.\n")
	}
	b.WriteString("\n")
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// count shows a number of things.
func count(n float64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.3g billion", n/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.0f million", n/1e6)
	case n >= 1000:
		return fmt.Sprintf("%d,%03d", int(math.Round(n))/1000, int(math.Round(n))%1000)
	}
	return fmt.Sprintf("%.0f", n)
}

// number shows up to three digits that count.
func number(n float64) string {
	if n >= 100 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.3g", n)
}

// size shows bytes.
func size(n float64) string {
	for _, unit := range []string{"B", "kB", "MB", "GB"} {
		if n < 1000 {
			return fmt.Sprintf("%.3g %s", n, unit)
		}
		n /= 1000
	}
	return fmt.Sprintf("%.3g TB", n)
}
