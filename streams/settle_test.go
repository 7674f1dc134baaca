package streams

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/waterclock-io/waterclock/chaos/process"
	"github.com/waterclock-io/waterclock/internal/check"
)

// cluster starts three servers that keep streams three times.
func cluster(t *testing.T) map[string]*server.Server {
	t.Helper()
	var routes []*url.URL
	for range 3 {
		address, err := process.FreeAddress()
		check.OK(t, err)
		routes = append(routes, &url.URL{Scheme: "nats-route", Host: address})
	}
	all := map[string]*server.Server{}
	for i, r := range routes {
		_, port, err := net.SplitHostPort(r.Host)
		check.OK(t, err)
		n, err := strconv.Atoi(port)
		check.OK(t, err)
		name := fmt.Sprintf("n%d", i+1)
		s, err := server.NewServer(&server.Options{
			ServerName: name, Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: n}, Routes: routes,
		})
		check.OK(t, err)
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		all[name] = s
	}
	return all
}

// Without a majority nothing that is published is stored, nor is it known not to be: Settle says so, and does not before there is one.
func TestSettleNeedsAMajority(t *testing.T) {
	t.Parallel()
	nodes := cluster(t)
	r := &rig{t: t, reg: newMemory()}
	r.nc = r.dial(Dial{URL: nodes["n1"].ClientURL()})
	r.js = jsOf(t, r.nc)
	var runs Runs
	check.Await(t, "the streams of a cluster", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		var err error
		runs, err = Ensure(ctx, r.js, r.reg, Limits{Replicas: 3}, quiet)
		return err == nil
	})
	check.Await(t, "a majority", func() bool { return Settle(t.Context(), r.js, runs) == nil })
	s, err := r.js.Stream(t.Context(), runs.Name)
	check.OK(t, err)
	leader := s.CachedInfo().Cluster.Leader
	js := jsOf(t, r.dial(Dial{URL: nodes[leader].ClientURL()}))
	check.OK(t, Settle(t.Context(), js, runs))
	for name, n := range nodes {
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
