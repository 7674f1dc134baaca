package cluster

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/chaos/proxy"
)

// linkFaults hit what lies between processes; the processes go on.
func (c *Cluster) linkFaults() []fault.Fault {
	var out []fault.Fault
	on := func(kind string, m *member, links []*proxy.Proxy, from, to time.Duration, hit func(rng *rand.Rand) func(*proxy.Proxy)) {
		out = append(out, newFault(kind, fault.Link, m.target, func(ctx context.Context, rng *rand.Rand) error {
			return onLinks(ctx, links, fault.Between(rng, from, to), hit(rng))
		}))
	}
	cut := func(*rand.Rand) func(*proxy.Proxy) { return (*proxy.Proxy).Cut }
	oneWay := func(rng *rand.Rand) func(*proxy.Proxy) {
		d := fault.Pick(rng, []proxy.Direction{proxy.ToServer, proxy.ToClient})
		return func(l *proxy.Proxy) { l.Hold(d) }
	}
	for _, m := range c.members {
		on("cut link to nats", m, m.nats, 500*time.Millisecond, 6*time.Second, cut)
		on("slow link to nats", m, m.nats, time.Second, 6*time.Second, slow)
		on("one-way link to nats", m, m.nats, 500*time.Millisecond, 6*time.Second, oneWay)
		if m.role == "planner" {
			on("freeze planner's link to nats", m, m.nats, 6*time.Second, 10*time.Second, func(*rand.Rand) func(*proxy.Proxy) { return (*proxy.Proxy).Freeze })
		}
		if m.sql != nil {
			on("cut link to sql", m, []*proxy.Proxy{m.sql}, 500*time.Millisecond, 6*time.Second, cut)
			on("slow link to sql", m, []*proxy.Proxy{m.sql}, time.Second, 6*time.Second, slow)
		}
	}
	for i, n := range c.nats.nodes {
		if len(c.nats.nodes) == 1 {
			break // it has no routes
		}
		out = append(out, newFault("cut routes of one nats node", fault.Link, n.target, func(ctx context.Context, rng *rand.Rand) error {
			if err := onLinks(ctx, c.nats.links(i), fault.Between(rng, 500*time.Millisecond, 8*time.Second), (*proxy.Proxy).Cut); err != nil {
				return err
			}
			return c.nats.awaitCurrent(ctx)
		}))
	}
	return out
}

// onLinks hits links for a while.
func onLinks(ctx context.Context, links []*proxy.Proxy, d time.Duration, hit func(*proxy.Proxy)) error {
	each := func(f func(*proxy.Proxy)) func() error {
		return func() error {
			for _, l := range links {
				f(l)
			}
			return nil
		}
	}
	return fault.Lasting(ctx, d, each(hit), each((*proxy.Proxy).Heal))
}

// slow draws a delay for each direction, and for a third of the links a rate.
func slow(rng *rand.Rand) func(*proxy.Proxy) {
	var paces [2]proxy.Pace
	for i := range paces {
		paces[i].Delay = fault.Between(rng, 5*time.Millisecond, 300*time.Millisecond)
	}
	if rng.IntN(3) == 0 {
		rate := 32<<10 + rng.IntN(224<<10)
		paces[0].Rate, paces[1].Rate = rate, rate
	}
	return func(l *proxy.Proxy) { l.Slow(paces[proxy.ToServer], paces[proxy.ToClient]) }
}
