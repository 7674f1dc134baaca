package streams

import (
	"context"
	"testing"
	"time"

	"github.com/waterclock-io/waterclock/internal/check"
)

// Without a majority nothing that is published is stored, nor is it known not to be: Settle says so, and does not before there is one.
func TestSettleNeedsAMajority(t *testing.T) {
	t.Parallel()
	r := newCluster(t)
	runs := r.ensure()
	s, err := r.js.Stream(t.Context(), runs.Name)
	check.OK(t, err)
	leader := s.CachedInfo().Cluster.Leader
	js := jsOf(t, r.dial(Dial{URL: r.nodes[leader].ClientURL()}))
	check.OK(t, Settle(t.Context(), js, runs))
	for name, n := range r.nodes {
		if name != leader {
			n.Shutdown()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := Settle(ctx, js, runs); err == nil {
		t.Error("all is settled, and nobody could be asked")
	}
}

// What is asked of RUNS and STATUS is answered by their leaders: a copy that lags behind would say of a message that it is not there.
func TestReadsAreNotOfCopies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	check.OK(t, Settle(t.Context(), r.js, runs))
	for _, name := range []string{runs.Name, StatusStream} {
		s, err := r.js.Stream(t.Context(), name)
		check.OK(t, err)
		cfg := s.CachedInfo().Config
		if cfg.AllowDirect {
			t.Errorf("%s lets any copy answer", name)
		}
		cfg.AllowDirect = true // as it was made before
		_, err = r.js.UpdateStream(t.Context(), cfg)
		check.OK(t, err)
	}
	r.ensure()
	for _, name := range []string{runs.Name, StatusStream} {
		s, err := r.js.Stream(t.Context(), name)
		check.OK(t, err)
		if s.CachedInfo().Config.AllowDirect {
			t.Errorf("%s still lets any copy answer", name)
		}
	}
}
