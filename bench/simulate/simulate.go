// Package simulate plays P planners over N shards on a virtual clock: who owns what when planners come, leave and die, and how late runs are handed out.
//
// The planners follow the product's own rule (package planner/membership) and its constants for reading, marking and publishing. What a statement or a publish
// costs is given: measured elsewhere, assumed here. Nothing sleeps, no store and no NATS take part; the same configuration gives the same result. Executors are
// not simulated, so the lag is that of the hand-over and not of the start. cmd/simulate calls it, for docs/scale.md.
package simulate

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/waterclock-io/waterclock/planner/membership"
	"github.com/waterclock-io/waterclock/streams"
)

// The planner's own constants; those that it does not export are repeated here, and TestConstants holds them against its source.
const (
	markLead     = 50 * time.Millisecond
	markCost     = 20 * time.Microsecond
	maxMarks     = 2
	readEvery    = time.Second
	readPage     = 4000
	readPages    = 20
	checkShards  = 10 // renewals
	finishWithin = time.Second
	watchEvery   = 100 * time.Millisecond
	rollCallTime = 500 * time.Millisecond
	recountEvery = 20 * time.Second
)

// Costs say how long things take. Every statement counts as one, whatever it does inside.
type Costs struct {
	Read, ReadRow       time.Duration // a page of due rows, and each row of it
	Mark, MarkRow       time.Duration // a batch of marks, and each row of it
	Publish             time.Duration // one hand-over, by the one goroutine of a planner that sends them
	Renew, Claim, Leave time.Duration // statements of the membership
	Record              time.Duration // until a hand-over that was found lost is due again, by way of STATUS and the recorder
	// Parallel is how many statements the database works on at a time; others wait their turn.
	Parallel int
}

// DefaultCosts are round numbers of the size that package scale measured on PostgreSQL 15; cmd/simulate takes the measured ones in their place.
var DefaultCosts = Costs{
	Read: 5 * time.Millisecond, ReadRow: 40 * time.Microsecond, Mark: time.Millisecond, MarkRow: 15 * time.Microsecond, Publish: 50 * time.Microsecond,
	Renew: 4 * time.Millisecond, Claim: 4 * time.Millisecond, Leave: 4 * time.Millisecond, Record: 50 * time.Millisecond, Parallel: 4,
}

// Member is one planner's life. Zero Ends means that it outlives the simulation.
type Member struct {
	ID     string
	Joins  time.Duration
	Ends   time.Duration
	Killed bool // at Ends, with kill -9; else it is stopped and gives its shards away
}

// Load is a number of runs that fall due evenly between two moments: all at once where they are the same.
type Load struct {
	Runs     int
	From, To time.Duration
	// Jobs is to how many jobs they belong; 0: each to its own. A job's runs are all in one shard.
	Jobs int
}

// Config is one simulation.
type Config struct {
	Seed               uint64
	Shards             int32
	Members            []Member
	Loads              []Load
	Until              time.Duration // of the virtual clock; what is not handed out by then is unplanned
	Horizon, MarkAhead time.Duration // planner.horizon, planner.mark_ahead
	Batch              int           // rows that one mark takes
	Costs              Costs
}

// Defaults of the product.
const (
	DefaultShards    = 64
	DefaultHorizon   = 2500 * time.Millisecond
	DefaultMarkAhead = streams.MaxMarkAhead
	DefaultBatch     = 500
)

func (c *Config) check() error {
	switch {
	case c.Shards < 1:
		return fmt.Errorf("shards: %d given, at least 1 is needed", c.Shards)
	case len(c.Members) == 0:
		return fmt.Errorf("members: none given, at least one is needed")
	case c.Until <= 0:
		return fmt.Errorf("until: %s given, it must be positive", c.Until)
	case c.Horizon < readEvery || c.MarkAhead <= 0 || c.Batch < 1 || c.Costs.Parallel < 1:
		return fmt.Errorf("horizon %s, mark ahead %s, batch %d, parallel %d: at least %s, positive, 1 and 1 are needed", c.Horizon, c.MarkAhead, c.Batch, c.Costs.Parallel, readEvery)
	}
	seen := map[string]bool{}
	for _, m := range c.Members {
		if m.ID == "" || seen[m.ID] {
			return fmt.Errorf("member %q: ids must not be empty and not be the same", m.ID)
		}
		seen[m.ID] = true
		if m.Ends != 0 && m.Ends <= m.Joins {
			return fmt.Errorf("member %q ends at %s, before it joins at %s", m.ID, m.Ends, m.Joins)
		}
	}
	return nil
}

// sim is a simulation under way.
type sim struct {
	cfg      Config
	queue    events
	db       database
	rng      *rand.Rand
	shards   []*shard
	rows     []*row
	members  map[string]time.Duration // renewed at, by the database's clock
	planners []*planner
	result   Result
	moves    []move
}

// Run plays it from 0 to Until.
func Run(cfg Config) (*Result, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &sim{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 1)), members: map[string]time.Duration{}} //nolint:gosec // repeatable on purpose
	s.db = database{sim: s, free: cfg.Costs.Parallel}
	s.load()
	for _, m := range cfg.Members {
		p := newPlanner(s, m)
		s.planners = append(s.planners, p)
		// Processes that are started together are not so to the millisecond.
		s.queue.at(m.Joins+time.Duration(s.rng.Int64N(int64(membership.RenewEvery))), p.start)
		if m.Ends > 0 {
			s.queue.at(m.Ends, p.end)
		}
	}
	s.queue.run(cfg.Until)
	s.conclude()
	return &s.result, nil
}
