package simulate

import (
	"maps"
	"slices"
	"time"

	"github.com/waterclock-io/waterclock/planner/membership"
	"github.com/waterclock-io/waterclock/streams"
)

// owned is a shard that a planner believes to own.
type owned struct {
	*shard
	epoch  int64
	cursor key // forward reading goes on after this
}

// planner is one process, with the loops of the product's planner.
type planner struct {
	s       *sim
	m       Member
	alive   bool
	leaving bool

	renewals int
	known    []string
	owned    map[int32]*owned

	// A read is under way, and what waits for its end: at most one of each kind, as in the channels of the product.
	reading, nudged, ticked bool
	wokenUntil              time.Duration // rows up to this are to be read at once

	upcoming rowHeap
	entries  map[*row]*entry
	ready    []*entry
	marking  int
	waking   time.Duration // when the core is woken next; 0: not

	departures rowHeap
	publishing bool
	handed     int // runs that it has handed out
}

func newPlanner(s *sim, m Member) *planner {
	return &planner{s: s, m: m, owned: map[int32]*owned{}, entries: map[*row]*entry{}}
}

func (p *planner) start() {
	if p.m.Ends > 0 && p.s.queue.now >= p.m.Ends {
		return
	}
	p.alive = true
	p.s.happened(joined, p)
	p.renew()
	p.s.queue.after(readEvery, p.tickRead)
	p.s.queue.after(recountEvery, p.recount)
}

// if alive: what a dead process was about to do does not happen.
func (p *planner) live(do func()) func() {
	return func() {
		if p.alive {
			do()
		}
	}
}

// renew is the loop of the membership: write, read, and look at the shards when the list has changed, and now and then.
func (p *planner) renew() {
	if !p.alive {
		return
	}
	s := p.s
	next := s.queue.now + membership.RenewEvery
	n := p.renewals
	p.renewals++
	s.db.do(takes(s.cfg.Costs.Renew, func() {
		if p.gone() {
			return
		}
		s.members[p.m.ID] = s.queue.now // also where the process was killed since it asked
		if !p.alive {
			return
		}
		if death := s.queue.now + s.nextDeath(); death < next {
			next = death
		}
		again := func() { s.queue.at(next, p.renew) } // at once where it is over
		ids := s.livingMembers()
		if slices.Equal(ids, p.known) && n%checkShards != 0 {
			again()
			return
		}
		p.takeShards(ids, again)
	}))
}

// gone tells whether it has stopped, and waited for its own statements before it left.
func (p *planner) gone() bool { return p.leaving && !p.alive }

// livingMembers are those that the database says have renewed within the TTL.
func (s *sim) livingMembers() []string {
	var ids []string
	for id, at := range s.members {
		if at > s.queue.now-membership.TTL {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// nextDeath is how long it is until the first of those would be dead.
func (s *sim) nextDeath() time.Duration {
	var renewed []time.Time
	now := time.Time{}.Add(s.queue.now)
	for _, at := range s.members {
		if at > s.queue.now-membership.TTL {
			renewed = append(renewed, time.Time{}.Add(at))
		}
	}
	return membership.NextDeath(renewed, now) + time.Duration(s.rng.Int64N(int64(membership.DeathSpread)))
}

func (p *planner) takeShards(ids []string, then func()) {
	var mine []int32
	for id, owner := range membership.Assign(ids, p.s.cfg.Shards) {
		if owner == p.m.ID {
			mine = append(mine, id)
		}
	}
	slices.Sort(mine)
	p.s.db.do(takes(p.s.cfg.Costs.Claim, func() {
		if p.gone() {
			return
		}
		for _, id := range mine {
			if sh := p.s.shards[id]; sh.owner != p.m.ID {
				p.s.moved(sh)
				sh.owner = p.m.ID
				sh.epoch++
			}
		}
		p.live(func() {
			p.known = ids
			p.own(mine)
			then()
		})()
	}))
}

// own makes the planner plan exactly these.
func (p *planner) own(mine []int32) {
	now := p.s.queue.now
	keep := map[int32]bool{}
	changed := false
	for _, id := range mine {
		keep[id] = true
		sh := p.s.shards[id]
		if o := p.owned[id]; o != nil {
			if o.epoch != sh.epoch {
				o.epoch = sh.epoch
				p.loadFlights(sh)
			}
			continue
		}
		changed = true
		p.owned[id] = &owned{shard: sh, epoch: sh.epoch, cursor: key{due: now}}
		p.loadFlights(sh)
	}
	for id, o := range p.owned {
		if !keep[id] {
			changed = true
			delete(p.owned, id)
			p.drop(o.shard)
		}
	}
	if changed {
		p.wokenUntil = max(p.wokenUntil, now+readEvery+p.s.cfg.MarkAhead)
		p.nudge()
		p.s.settle()
	}
}

// loadFlights finds what another had marked and not published, and lets it come back when its publish can no longer happen.
func (p *planner) loadFlights(sh *shard) {
	p.s.db.do(takes(p.s.cfg.Costs.Read, p.live(func() {
		for _, r := range p.s.inOrder(sh.unsent) {
			if e := p.entries[r]; e != nil {
				continue // its own
			}
			p.watch(r, r.dispatch)
		}
	})))
}

// watch looks at a hand-over of another after it should be in the stream, in the next round.
func (p *planner) watch(r *row, dispatch int) {
	s := p.s
	at := max(r.markedAt+streams.StoredWithin, p.m.Joins+rollCallTime)
	at = (at + watchEvery - 1) / watchEvery * watchEvery
	s.queue.at(at, p.live(func() {
		if p.owned[r.shard.id] == nil || !r.marked || r.sent || r.dispatch != dispatch || s.holds(r) {
			return
		}
		s.queue.after(s.cfg.Costs.Record, func() {
			if !r.marked || r.sent || r.dispatch != dispatch {
				return
			}
			s.result.Lost++
			r.shard.comeBack(r, s.queue.now)
			if p.alive {
				p.nudge()
			}
		})
	}))
}

// holds tells whether a living planner is about to publish the row: its publish_by is not over, as it publishes at the due time.
func (s *sim) holds(r *row) bool {
	for _, p := range s.planners {
		if p.alive && p.entries[r] != nil && p.entries[r].departing {
			return true
		}
	}
	return false
}

func (p *planner) recount() {
	if !p.alive {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(p.owned)) {
		p.loadFlights(p.owned[id].shard)
	}
	p.s.queue.after(recountEvery, p.recount)
}

// end stops or kills the process.
func (p *planner) end() {
	s := p.s
	if !p.alive {
		return
	}
	if p.m.Killed {
		p.alive = false
		s.happened(killed, p)
		return
	}
	p.leaving = true
	s.happened(left, p)
	limit := s.queue.now + finishWithin
	var finish func()
	finish = func() {
		if s.queue.now < limit && (p.marking > 0 || len(p.departures) > 0 || p.publishing) {
			s.queue.after(10*time.Millisecond, finish)
			return
		}
		p.alive = false
		s.db.do(takes(s.cfg.Costs.Leave, func() {
			delete(s.members, p.m.ID)
			for _, sh := range s.shards {
				if sh.owner == p.m.ID {
					sh.owner = ""
				}
			}
		}))
	}
	finish()
}
