package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock-io/waterclock/bench/scale"
	"github.com/waterclock-io/waterclock/bench/simulate"
)

func TestCosts(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(simulate.DefaultCosts, costs(&scale.Facts{})); diff != "" {
		t.Error("without facts (-default +got):\n" + diff)
	}
	c := costs(&scale.Facts{Costs: scale.Costs{Mark: 1500, MarkRow: 12.6, Claim: 900}})
	if c.Mark != 1500*time.Microsecond || c.MarkRow != 13*time.Microsecond || c.Leave != 900*time.Microsecond || c.Read != simulate.DefaultCosts.Read {
		t.Errorf("%+v", c)
	}
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	for _, bad := range [][]string{{"-shards", "0"}, {"-shards", "100000"}, {"-x"}} {
		if err := run(bad, &bytes.Buffer{}); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
