package scan

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/bench/work"
	"github.com/waterclock-io/waterclock/bench/world"
	"github.com/waterclock-io/waterclock/store"
)

// PagesWorkload is the name under which pages of history are measured, PagesTitle what it is.
const (
	PagesWorkload = "W8b"
	PagesTitle    = "pages of 50 runs, anywhere in the history of one job, and of the failures of its namespace"
)

const (
	pageReads = 200
	pageSize  = 50
	// failedOf is how many runs there are for each that failed.
	failedOf = 100
)

// Pages measures reads of pages at random places of a history of the given number of runs, a second apart.
func (s *Store) Pages(ctx context.Context, env contend.Env, meter *world.Meter, runs int) (_ work.Values, err error) {
	f, err := s.open(ctx, env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	id := f.Traits().NewJobID()
	base := time.Now().Truncate(time.Second).Add(-time.Duration(runs) * time.Second)
	if err := f.history(ctx, id, runs, base); err != nil {
		return nil, err
	}
	v := work.Values{"runs": float64(runs)}
	kinds := map[string]func(before store.RunPosition) (int, error){
		"list": func(before store.RunPosition) (int, error) {
			rows, err := f.ListRuns(ctx, id, before, pageSize)
			return len(rows), err
		},
		"failures": func(before store.RunPosition) (int, error) {
			rows, err := f.ListFailures(ctx, "default", before, pageSize)
			return len(rows), err
		},
	}
	for name, read := range kinds {
		mark, err := meter.Mark(ctx)
		if err != nil {
			return nil, err
		}
		took := make([]time.Duration, pageReads)
		for i := range took {
			// The first page and the last are among them.
			at := base.Add(time.Duration(rand.IntN(runs)) * time.Second)
			switch i {
			case 0:
				at = base.Add(time.Duration(runs) * time.Second)
			case 1:
				at = base.Add(pageSize * failedOf * time.Second)
			}
			began := time.Now()
			n, err := read(store.RunPosition{At: at, RunID: uuid.Max})
			if err != nil {
				return nil, err
			}
			took[i] = time.Since(began)
			if n == 0 && i < 2 {
				return nil, fmt.Errorf("an empty page of %s at %s", name, at)
			}
		}
		u, err := meter.Since(ctx, mark)
		if err != nil {
			return nil, err
		}
		slices.Sort(took)
		v[name+"_p50"], v[name+"_max"] = took[pageReads/2].Seconds()*1000, took[pageReads-1].Seconds()*1000
		v[name+"_cpu"] = u.CPU.Seconds() * 1000 / pageReads
	}
	return v, nil
}
