package work_test

import (
	"slices"
	"testing"
	"time"

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/bench/work"
	"github.com/waterclock-io/waterclock/bench/world"
	"github.com/waterclock-io/waterclock/internal/pgtest"
)

var tiny = work.Sizes{
	Singles: 100, Batches: 1, Drain: 100, Spread: 50, Over: 200 * time.Millisecond, Instant: 50, Probe: time.Second, Hold: 200 * time.Millisecond,
	Lone: 3, Idle: 100, Watch: 100 * time.Millisecond, Series: 5, Fires: 2, Period: time.Second,
}

// TestWorkloads asks contenders for what they have, so small that the values mean nothing but that it was done. Asynq and what wants the binary are left to
// `go run ./cmd/bench -tiny`.
func TestWorkloads(t *testing.T) {
	t.Parallel()
	for name, some := range map[string][]string{"waterclock-sqlite": nil, "waterclock-postgres": {"W1", "W2", "W7"}, "river": {"W1b", "W2", "W4"}} {
		kind, err := contend.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range work.Workloads {
			if w.Reads || some != nil && !slices.Contains(some, w.Name) {
				continue
			}
			t.Run(name+" "+w.Name, func(t *testing.T) {
				t.Parallel()
				env := contend.Env{Dir: t.TempDir()}
				if kind.Postgres {
					env.PostgresDSN = pgtest.Shared(t).NewDatabase(t)
				}
				meter, err := world.NewMeter(t.Context(), nil, env.PostgresDSN)
				if err != nil {
					t.Fatal(err)
				}
				v, err := w.Do(t.Context(), &work.Task{Kind: kind, Env: env, Meter: meter, Sizes: tiny})
				if err != nil {
					t.Fatal(err)
				}
				for _, zero := range []string{"early", "again", "missing"} {
					// A lag of less than nothing is an early start; W1's are none, but how long its submits took.
					if v[zero] != 0 {
						t.Errorf("%s is %v of %v", zero, v[zero], v)
					}
				}
				if err := meter.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
