package scan

import (
	"testing"

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/bench/work"
	"github.com/waterclock-io/waterclock/bench/world"
	"github.com/waterclock-io/waterclock/internal/pgtest"
)

func TestStores(t *testing.T) {
	t.Parallel()
	for _, s := range Stores {
		for name, measure := range map[string]func(env contend.Env, m *world.Meter) (work.Values, error){
			"scan": func(env contend.Env, m *world.Meter) (work.Values, error) { return s.Do(t.Context(), env, m, first) },
			"pages": func(env contend.Env, m *world.Meter) (work.Values, error) {
				return s.Pages(t.Context(), env, m, 10*failedOf*pageSize/2)
			},
		} {
			t.Run(s.Name+" "+name, func(t *testing.T) {
				t.Parallel()
				env := contend.Env{Dir: t.TempDir()}
				if s.Postgres {
					env.PostgresDSN = pgtest.Shared(t).NewDatabase(t)
				}
				meter, err := world.NewMeter(t.Context(), nil, "")
				if err != nil {
					t.Fatal(err)
				}
				v, err := measure(env, meter)
				if err != nil {
					t.Fatal(err)
				}
				for name, n := range v {
					if n < 0 {
						t.Errorf("%s is %v", name, n)
					}
				}
			})
		}
	}
}
