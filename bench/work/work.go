// Package work holds the workloads: what is asked of a contender, and what is measured of how it does it. Every contender is asked for the same.
//
// A workload opens the contender, measures it once, and closes it. The calling process should do nothing else, since all it uses is counted. cmd/bench
// calls it, in a fresh process for each measure.
package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/bench/world"
)

// Values are what was measured, by name. The names and their units stand in the columns of package report.
type Values map[string]float64

// Sizes say how much is asked for.
type Sizes struct {
	Singles int           `json:"singles"` // W1: single submits
	Batches int           `json:"batches"` // W1: batches of contend.BatchSize
	Drain   int           `json:"drain"`   // W2: due jobs
	Spread  int           `json:"spread"`  // W3: starts
	Over    time.Duration `json:"over"`    // W3: the time over which they are spread
	Instant int           `json:"instant"` // W4: jobs due at one instant
	Probe   time.Duration `json:"probe"`   // W5: the search for a rate to begin with
	Hold    time.Duration `json:"hold"`    // W5: how long a rate must hold
	Lone    int           `json:"lone"`    // L: lone jobs
	Idle    int           `json:"idle"`    // W6: jobs of tomorrow
	Watch   time.Duration `json:"watch"`   // W6: how long the idle processes are watched
	Series  int           `json:"series"`  // W7: schedules
	Fires   int           `json:"fires"`   // W7: fires of each
	Period  time.Duration `json:"period"`  // W7: time between two fires of one
}

// Task is one measure.
type Task struct {
	Kind  contend.Kind
	Env   contend.Env
	Meter *world.Meter
	Sizes Sizes
}

// Workload is something that contenders can be asked for.
type Workload struct {
	Name, Title string
	// SubmitsMatter: contenders that differ in their way in alone are worth measuring. Recurring: it is for contenders that are, alone.
	// Reads is for those that can be read.
	SubmitsMatter, Recurring, Reads bool

	run func(ctx context.Context, t *Task, c contend.Contender) (Values, error)
}

// Workloads are all of them.
var Workloads = []Workload{
	{"W1", "single submits by 64 clients", true, false, false, singles},
	{"W1b", "submits in batches of 1,000 by 4 clients", true, false, false, batches},
	{"W2", "due jobs drained by one process", false, false, false, drain},
	{"W3", "starts spread over time", false, false, false, spread},
	{"W4", "jobs due at one instant, in four priorities", false, false, false, instant},
	{"W5", "single submits by 64 clients and runs together, at the highest rate that holds", true, false, false, together},
	{"W6", "idle with many jobs of tomorrow", true, false, false, idle},
	{"W7", "recurring schedules", false, true, false, recurring},
	{"W8", "reads of states, 10,000 a second, beside 1,000 jobs a second", true, false, true, reading},
	{"L", "from the submit to the start of a lone job", true, false, false, lone},
}

// Find returns the workload of a name.
func Find(name string) (Workload, error) {
	for _, w := range Workloads {
		if w.Name == name {
			return w, nil
		}
	}
	return Workload{}, fmt.Errorf("workload %q is not known", name)
}

// Do measures once.
func (w *Workload) Do(ctx context.Context, t *Task) (_ Values, err error) {
	c, err := t.Kind.Open(ctx, t.Env)
	if err != nil {
		return nil, err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if closeErr := c.Close(end); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("close %s: %w", t.Kind.Name, closeErr))
		}
	}()
	v, err := w.run(ctx, t, c)
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", w.Name, t.Kind.Name, err)
	}
	return v, nil
}

// Used adds what a number of jobs cost.
func (v Values) Used(u world.Usage, jobs int) {
	n := float64(jobs)
	v["cpu"] = u.CPU.Seconds() / n * 1000
	v["database_cpu"] = u.DatabaseCPU.Seconds() / n * 1000
	v["wal"] = float64(u.WAL) / n
	v["written"] = float64(u.Written) / n
	v["memory"] = float64(u.Memory) / (1 << 20)
	v["database_memory"] = float64(u.DatabaseMemory) / (1 << 20)
	v["jobs"] = n
}

// lags adds how late things were.
func (v Values) lags(all []time.Duration) {
	sorted := sortedCopy(all)
	for name, q := range map[string]float64{"p50": .5, "p95": .95, "p99": .99, "max": 1} {
		v[name] = milliseconds(quantile(sorted, q))
	}
	v["min"] = milliseconds(quantile(sorted, 0))
	v["early"] = 0
	for _, d := range sorted {
		if d >= 0 {
			break
		}
		v["early"]++
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
