// Package floor measures what the parts of Waterclock cost at least: the messages of a run through JetStream, and the row writes of a job in SQL, both
// without anything around them. What Waterclock costs is set against their sum.
//
// The rows go into the product's own tables, with rows of the size that it writes; the code is none of the product's. cmd/bench calls it.
package floor

import (
	"context"
	"fmt"
	"time"

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/bench/work"
	"github.com/waterclock-io/waterclock/bench/world"
)

// Workload is the name under which floors are measured, Title what it is.
const (
	Workload = "F"
	Title    = "floors: what the parts cost without the rest"
)

// Floor is something that can be measured.
type Floor struct {
	Name, Title string
	Postgres    bool

	// open prepares, and returns what is measured and what ends it.
	open func(ctx context.Context, env contend.Env, jobs int) (measured func(context.Context) error, end func(), err error)
}

// Floors are all of them.
var Floors = []Floor{
	{"floor-jetstream", "JetStream loop, one status message per run", false, jetStream(1)},
	{"floor-jetstream-100", "JetStream loop, 100 results per status message", false, jetStream(100)},
	{"floor-postgres-20", "SQL of five row writes per job, PostgreSQL, batches of 20", true, postgres(20)},
	{"floor-postgres-100", "the same, batches of 100", true, postgres(100)},
	{"floor-postgres-500", "the same, batches of 500", true, postgres(500)},
	{"floor-sqlite-500", "SQL of five row writes per job, SQLite, batches of 500", false, sqliteRows(500)},
}

// Find returns the floor of a name.
func Find(name string) (Floor, error) {
	for _, f := range Floors {
		if f.Name == name {
			return f, nil
		}
	}
	return Floor{}, fmt.Errorf("floor %q is not known", name)
}

// Do measures once.
func (f *Floor) Do(ctx context.Context, env contend.Env, meter *world.Meter, jobs int) (work.Values, error) {
	measured, end, err := f.open(ctx, env, jobs)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", f.Name, err)
	}
	defer end()
	mark, err := meter.Mark(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := measured(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	gone := time.Since(began)
	u, err := meter.Since(ctx, mark)
	if err != nil {
		return nil, err
	}
	v := work.Values{"rate": float64(jobs) / gone.Seconds()}
	v.Used(u, jobs)
	return v, nil
}
