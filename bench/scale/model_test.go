package scale

import (
	"math"
	"strings"
	"testing"

	"github.com/waterclock-io/waterclock/bench/report"
)

// round are facts that can be reckoned with in the head.
var round = &Facts{
	Jobs: 1000, Payload: 100,
	Steps: []Step{
		{Name: StepSubmit, Batch: 64, Writes: map[string]float64{"jobs": 1, "payloads": 1, "timers": 1}, WAL: 1000, ClientCPU: .1},
		{Name: StepMark, Batch: 500, Writes: map[string]float64{"timers": 1}, WAL: 300, ClientCPU: .02},
		{Name: StepRecord, Batch: 500, Writes: map[string]float64{"timers": 1, "runs": 1}, WAL: 500, ClientCPU: .03},
		{Name: StepPurge, Batch: 1000, Writes: map[string]float64{"jobs": 1, "payloads": 1, "runs": 1}, WAL: 200},
	},
	Tables:   []Table{{"jobs", 300, 100}, {"payloads", 150, 50}, {"timers", 300, 100}, {"runs", 200, 100}},
	Messages: Messages{Runs: 10, RunBytes: 400, StatusBytes: 100, StatusMessages: .5, StatusKept: 150},
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6*math.Max(1, math.Abs(want)) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func TestDatabase(t *testing.T) {
	t.Parallel()
	a := assumed{writesPerCPU: 500, kvWriteCost: 1, kvWriteByte: 400, kvReadCost: .5, readsPerStatus: 4, utilisation: .5, nodeCPU: 16}
	d := round.Database(Moment{Submits: 1000, Runs: 2000, Purges: 500, Reads: 1000}, a)
	near(t, "row writes", d.RowWrites, 3*1000+3*2000+3*500)
	near(t, "KV writes", d.KVWrites, 4*1000+3*2000+4*500)
	near(t, "bytes", d.Bytes, 1000*1000+800*2000+200*500)
	reads := 6000 * .5 / 1000
	near(t, "cautious", d.Cautious, 10500./500+reads)
	near(t, "costed", d.Costed, 12+2.7*.4+reads)
	near(t, "nodes", d.Nodes, 3)
	if d = round.Database(Moment{Submits: 100_000}, a); d.Nodes != math.Ceil(600/.5/16) {
		t.Errorf("%v nodes for 600 vCPU", d.Nodes)
	}
}

func TestVolumeAndRoad(t *testing.T) {
	t.Parallel()
	p := Plan{JobsPerDay: 8.64e6}
	a := assumed{replication: 3, freeDisk: .25, garbage: 1000, rangeSize: 512, rangeFill: .5}
	v := round.Volume(p, 10, 4, a)
	near(t, "rows", v.Rows, 86.4e6)
	live := 400 * (8.64e6 + 3*100*1000)
	near(t, "bytes", v.Bytes, 86.4e6*(300+400+200)+live)
	near(t, "disk", v.Disk, v.Bytes*4)
	near(t, "disk of a node", v.DiskPerNode, v.Bytes)
	near(t, "ranges", v.Ranges, math.Ceil(v.Bytes/(256<<20)))
	r := round.Road(Moment{Runs: 1000}, a)
	near(t, "messages", r.Stored, 1500)
	near(t, "bytes to disks", r.Bytes, 1.5e6)
	near(t, "kept in STATUS", r.Kept, 15e6)
}

func TestPrice(t *testing.T) {
	t.Parallel()
	p := Plan{JobsPerDay: 86.4e6, Peak: 1000}
	a := valuesOf(Assumptions())
	d, v := Database{Nodes: 10}, Volume{Disk: 3e12}
	x := round.Price(p, d, v, 20, a)
	near(t, "database", x.Database, 10*16*.0408*24)
	near(t, "disks", x.Disk, 3000*.08/30)
	near(t, "NATS", x.NATS, 12*.0408*24)
	near(t, "roles", x.Roles, 20*.0408*24)
	near(t, "traffic", x.Traffic, (2*2000+2*500.)*1000*86400/1e9*.02)
	near(t, "a million", x.PerMillion, (x.Database+x.Disk+x.NATS+x.Roles+x.Traffic)/86.4)
}

func TestCPUOfTheBenchmark(t *testing.T) {
	t.Parallel()
	if c := cpuOf(round, nil); c.Whole || math.Abs(c.Run-.05) > 1e-9 || c.Submit != .1 {
		t.Errorf("without the benchmark: %+v", c)
	}
	r := &report.Report{Measures: []report.Measure{
		{Workload: submitWork, Contender: submitContender, Values: map[string]float64{"cpu": .3, "database_cpu": .1}},
	}}
	if c := cpuOf(round, r); c.Whole {
		t.Errorf("with half of it: %+v", c)
	}
	r.Measures = append(r.Measures, report.Measure{Workload: runWork, Contender: runContender, Values: map[string]float64{"cpu": .09, "database_cpu": .04}})
	c := cpuOf(round, r)
	if !c.Whole {
		t.Errorf("with the benchmark: %+v", c)
	}
	near(t, "busy cores", c.Cores(Moment{Submits: 1000, Runs: 2000}), .2+.1)
	for bench, want := range map[*report.Report]bool{nil: true, r: false} {
		var b strings.Builder
		if err := Write(&b, round, DefaultPlan, Assumptions(), bench); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), "not measured** (`-from`"); got != want {
			t.Errorf("says that CPU is not measured: %v, want %v", got, want)
		}
	}
}

func TestEveryAssumptionHasASource(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, a := range Assumptions() {
		if a.Source == "" || a.Value <= 0 || seen[a.Name] {
			t.Errorf("%+v", a)
		}
		seen[a.Name] = true
	}
}

// What stands in the repository is of the product as it is: five row writes and the payload, and three at the end of the retention.
func TestMeasured(t *testing.T) {
	t.Parallel()
	f, err := Measured()
	if err != nil {
		t.Fatal(err)
	}
	rows := 0.
	for _, name := range []string{StepSubmit, StepMark, StepRecord, StepPurge} {
		for table, n := range f.Step(name).Writes {
			if kvPerRow[table] == 0 {
				t.Errorf("table %q is not known to the model", table)
			}
			rows += n
		}
	}
	near(t, "row writes of a job", rows, 9)
	if f.Costs.Mark <= 0 || f.Costs.Publish <= 0 || f.Messages.RunBytes <= 0 || f.Table("runs").Bytes() <= 0 {
		t.Errorf("facts.json lacks something: %+v", f)
	}
	if err := Write(&strings.Builder{}, &Facts{}, DefaultPlan, Assumptions(), nil); err == nil {
		t.Error("no error for facts that were not measured")
	}
}

func TestPut(t *testing.T) {
	t.Parallel()
	page := []byte("# Scale\n\nBefore.\n" + ModelPart.Begin + "\nold\n" + ModelPart.End + "\nBetween.\n" + SimulationPart.Begin + "\n" + SimulationPart.End + "\nAfter.\n")
	for range 2 { // twice is the same
		var err error
		if page, err = ModelPart.Put(page, []byte("\nmodel\n\n")); err != nil {
			t.Fatal(err)
		}
		if page, err = SimulationPart.Put(page, []byte("tables")); err != nil {
			t.Fatal(err)
		}
	}
	want := "# Scale\n\nBefore.\n" + ModelPart.Begin + "\n\nmodel\n\n" + ModelPart.End + "\nBetween.\n" + SimulationPart.Begin + "\n\ntables\n\n" + SimulationPart.End + "\nAfter.\n"
	if string(page) != want {
		t.Errorf("got\n%s\nwant\n%s", page, want)
	}
	for _, broken := range []string{"", "# Scale\n", ModelPart.Begin + "\n"} {
		if _, err := ModelPart.Put([]byte(broken), nil); err == nil {
			t.Errorf("%q: no error", broken)
		}
	}
}
