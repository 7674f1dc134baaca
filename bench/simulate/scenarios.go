package simulate

import (
	"math/rand/v2"
	"time"
)

// Scenario is a configuration with a name for people.
type Scenario struct {
	Title string
	Config
}

// The load to plan for: the peak of submits, each of which is a run, and the burst.
const (
	PeakRate  = 2000 // runs a second
	BurstRuns = 100_000
	length    = 60 * time.Second // of the steady load
	settled   = 15 * time.Second // when all planners have been there for a while
)

// Scenarios are those of the page; base gives costs, shards and settings.
func Scenarios(base Config) []Scenario {
	steady := Load{Runs: PeakRate * int(length/time.Second), From: 5 * time.Second, To: 5*time.Second + length}
	minute := Load{Runs: BurstRuns, From: settled, To: settled + time.Minute}
	instant := Load{Runs: BurstRuns, From: settled, To: settled}
	one := instant
	one.Jobs = 1
	tenant := instant
	tenant.Jobs = 1000
	b := builder{base: base, rng: rand.New(rand.NewPCG(base.Seed, 3))} //nolint:gosec // repeatable on purpose
	b.add("nothing happens", 4, nil, steady)
	b.add("one of 2 is killed", 2, func(m []Member) []Member { return kill(m, 0, settled) }, steady)
	b.add("one of 4 is killed", 4, func(m []Member) []Member { return kill(m, 0, settled) }, steady)
	b.add("two of 8 are killed, half a second apart", 8, func(m []Member) []Member {
		return kill(kill(m, 0, settled), 1, settled+500*time.Millisecond)
	}, steady)
	b.add("one of 4 is stopped", 4, func(m []Member) []Member { m[0].Ends = settled; return m }, steady)
	b.add("4 more join 4, 5 s apart", 8, func(m []Member) []Member {
		for i := range 4 {
			m[4+i].Joins = settled + time.Duration(i)*5*time.Second
		}
		return m
	}, steady)
	b.add("a deploy replaces 4 by 4: one joins, 5 s later one is stopped", 8, func(m []Member) []Member {
		for i := range 4 {
			m[4+i].Joins = settled + time.Duration(i)*10*time.Second
			m[i].Ends = m[4+i].Joins + 5*time.Second
		}
		return m
	}, steady)
	b.add("100,000 more in one minute", 4, nil, steady, minute)
	b.add("the same, and one of 4 is killed in it", 4, func(m []Member) []Member { return kill(m, 0, settled+20*time.Second) }, steady, minute)
	for _, n := range []int{1, 2, 4, 8, 16} {
		b.add("100,000 at one instant", n, nil, instant)
	}
	b.add("100,000 at one instant, of one tenant with 1,000 jobs", 4, nil, tenant)
	b.add("100,000 at one instant, all of one job", 4, nil, one)
	return b.out
}

func kill(m []Member, i int, at time.Duration) []Member {
	m[i].Ends, m[i].Killed = at, true
	return m
}

type builder struct {
	base Config
	rng  *rand.Rand
	out  []Scenario
}

func (b *builder) add(title string, planners int, happens func([]Member) []Member, loads ...Load) {
	c := b.base
	for _, id := range ids(b.rng, planners) {
		c.Members = append(c.Members, Member{ID: id})
	}
	if happens != nil {
		c.Members = happens(c.Members)
	}
	c.Loads = loads
	c.Until = 2 * time.Minute
	b.out = append(b.out, Scenario{title, c})
}

// Default is the product as it is configured by default, at the costs given.
func Default(seed uint64, costs Costs) Config {
	return Config{Seed: seed, Shards: DefaultShards, Horizon: DefaultHorizon, MarkAhead: DefaultMarkAhead, Batch: DefaultBatch, Costs: costs}
}
