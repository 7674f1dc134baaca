package floor

import (
	"testing"

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/bench/world"
	"github.com/waterclock-io/waterclock/internal/pgtest"
)

// TestFloors runs each with a number of jobs that no batch divides.
func TestFloors(t *testing.T) {
	t.Parallel()
	for _, f := range Floors {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			env := contend.Env{Dir: t.TempDir()}
			if f.Postgres {
				env.PostgresDSN = pgtest.Shared(t).NewDatabase(t)
			}
			meter, err := world.NewMeter(t.Context(), nil, "")
			if err != nil {
				t.Fatal(err)
			}
			v, err := f.Do(t.Context(), env, meter, 733)
			if err != nil {
				t.Fatal(err)
			}
			if v["rate"] <= 0 || v["jobs"] != 733 {
				t.Errorf("values %v", v)
			}
		})
	}
}
