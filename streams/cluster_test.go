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
	"github.com/waterclock-io/waterclock/chaos/proxy"
	"github.com/waterclock-io/waterclock/internal/check"
)

// cluster is three servers that keep streams three times, each two of them with one link.
type cluster struct {
	*rig
	nodes map[string]*server.Server
	links map[[2]string]*proxy.Proxy
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{rig: &rig{t: t, reg: newMemory()}, nodes: map[string]*server.Server{}, links: map[[2]string]*proxy.Proxy{}}
	const nowhere = "127.0.0.1:1"
	var names []string
	addresses := map[string]string{}
	for i := range 3 {
		name := fmt.Sprintf("n%d", i+1)
		address, err := process.FreeAddress()
		check.OK(t, err)
		host, port, err := net.SplitHostPort(address)
		check.OK(t, err)
		n, err := strconv.Atoi(port)
		check.OK(t, err)
		// Of two, the later dials, and only by the link: no other address is of any use. Each is told of two others, by which it knows how many there are.
		var routes []*url.URL
		for _, other := range names {
			link, err := proxy.Listen(addresses[other])
			check.OK(t, err)
			t.Cleanup(func() { check.OK(t, link.Close()) })
			c.links[[2]string{other, name}] = link
			routes = append(routes, &url.URL{Scheme: "nats-route", Host: link.Addr()})
		}
		for len(routes) < 2 {
			routes = append(routes, &url.URL{Scheme: "nats-route", Host: nowhere})
		}
		s, err := server.NewServer(&server.Options{
			ServerName: name, Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
			Cluster: server.ClusterOpts{Name: "test", Host: host, Port: n, Advertise: nowhere}, Routes: routes,
		})
		check.OK(t, err)
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		c.nodes[name], addresses[name] = s, address
		names = append(names, name)
	}
	for _, s := range c.nodes {
		check.Await(t, "a server", func() bool { return s.ReadyForConnections(time.Second) })
	}
	c.nc = c.dial(Dial{URL: c.nodes["n1"].ClientURL()})
	c.js = jsOf(t, c.nc)
	return c
}

// ensure makes the streams as soon as there is who can.
func (c *cluster) ensure() Runs {
	c.t.Helper()
	var runs Runs
	check.Await(c.t, "the streams of a cluster", func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Second)
		defer cancel()
		var err error
		runs, err = Ensure(ctx, c.js, c.reg, Limits{Replicas: 3}, quiet)
		return err == nil
	})
	check.Await(c.t, "a majority", func() bool { return Settle(c.t.Context(), c.js, runs) == nil })
	return runs
}

// link is what lies between two servers.
func (c *cluster) link(a, b string) *proxy.Proxy { return c.links[[2]string{min(a, b), max(a, b)}] }
