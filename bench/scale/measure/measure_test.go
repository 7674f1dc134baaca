package measure

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock-io/waterclock/bench/scale"
	"github.com/waterclock-io/waterclock/internal/pgtest"
)

// The rows that one job writes are what the model rests on: one more of them is to be seen here.
func TestRowsOfAJob(t *testing.T) {
	t.Parallel()
	f, err := SQL(t.Context(), pgtest.Shared(t).NewDatabase(t), nil, 4*planBatch, 128)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]float64{
		scale.StepSubmit: {"jobs": 1, "payloads": 1, "timers": 1}, scale.StepRead: {}, scale.StepMark: {"timers": 1},
		scale.StepRecord: {"timers": 1, "runs": 1}, scale.StepPurge: {"jobs": 1, "payloads": 1, "runs": 1},
	}
	got := map[string]map[string]float64{}
	for _, s := range f.Steps {
		got[s.Name] = s.Writes
		if s.WAL <= 0 && s.Name != scale.StepRead {
			t.Errorf("%s made %v bytes of WAL", s.Name, s.WAL)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("rows written per job (-want +got):\n" + diff)
	}
	for _, name := range []string{"jobs", "payloads", "timers", "runs"} {
		if b := f.Table(name).Bytes(); b < 100 || b > 2000 {
			t.Errorf("a row of %s takes %v bytes", name, b)
		}
	}
	if c := f.Costs; c.Mark+c.MarkRow <= 0 || c.Read+c.ReadRow <= 0 || c.Renew <= 0 || c.Claim <= 0 {
		t.Errorf("costs: %+v", c)
	}
}

func TestMessagesOfARun(t *testing.T) {
	t.Parallel()
	const payload = 128
	m, publish, err := Streams(t.Context(), pgtest.Shared(t).NewDatabase(t), t.TempDir(), 300, payload)
	if err != nil {
		t.Fatal(err)
	}
	// A ticket travels with both, the payload with the run alone.
	if m.RunBytes < 2*payload || m.RunBytes > 1000 || m.StatusBytes < 100 || m.StatusBytes > 600 || m.StatusMessages <= 0 || m.StatusMessages > 1 || publish <= 0 {
		t.Errorf("messages %+v, publish %v µs", m, publish)
	}
}
