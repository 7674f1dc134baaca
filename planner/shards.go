package planner

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waterclock-io/waterclock/internal/failpoint"
	"github.com/waterclock-io/waterclock/planner/membership"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/streams"
)

const (
	checkShards     = 10 // renewals between two looks at who owns what
	saveCheckpoints = 15 // renewals between two checkpoints
)

// ownedShard is a shard that this planner plans.
type ownedShard struct {
	store.Shard
	cursor     store.TimerKey // forward reading goes on after this
	overdue    time.Time      // reading of what is over its time begins here at the latest; zero = where readBack says
	read       time.Time      // when the last read of what is over its time began that came to its end; zero = none has
	lookedBack time.Time      // when the last of them began that went back a minute; zero = none has
	further    time.Time      // the same, as asked for since the read under way began; zero = not
	sub        *nats.Subscription
	inFlight   bool // its in-flight rows are loaded
}

// keepMembership renews this member and follows who else lives.
func (p *Planner) keepMembership() {
	tick := time.NewTicker(p.cfg.renewEvery)
	defer tick.Stop()
	death := time.NewTimer(membership.TTL)
	defer death.Stop()
	host, _ := os.Hostname() // then it is empty
	var known []string
	for n := 0; ; n++ {
		ctx, cancel := context.WithTimeout(p.life, membership.TTL)
		members, now, err := p.cfg.Store.Renew(ctx, store.Member{ID: p.id, Host: host}, membership.TTL)
		if err == nil {
			ids, renewed := make([]string, len(members)), make([]time.Time, len(members))
			for i, m := range members {
				ids[i], renewed[i] = m.ID, m.RenewedAt
			}
			death.Reset(membership.NextDeath(renewed, now) + rand.N(membership.DeathSpread))
			if !slices.Equal(ids, known) || n%checkShards == 0 {
				if err = p.takeShards(ctx, ids); err == nil {
					known = ids
				}
			}
			if err == nil && n%saveCheckpoints == saveCheckpoints-1 {
				err = p.checkpoint(ctx)
			}
		}
		cancel()
		if err != nil && p.life.Err() == nil {
			p.log.Warn("cannot renew membership", "error", err)
		}
		select {
		case <-p.life.Done():
			return
		case <-tick.C:
		case <-death.C:
		case <-p.left:
		}
	}
}

// onLeft looks at once who is there.
func (p *Planner) onLeft() {
	select {
	case p.left <- struct{}{}:
	default:
	}
}

// takeShards claims what falls to this member and lets go of the rest.
func (p *Planner) takeShards(ctx context.Context, members []string) error {
	all, err := p.cfg.Store.Shards(ctx)
	if err != nil {
		return err
	}
	owners := membership.Assign(members, int32(len(all))) //nolint:gosec // shards are few
	var mine []int32
	for s, owner := range owners {
		if owner == p.id {
			mine = append(mine, s)
		}
	}
	slices.Sort(mine)
	claimed, err := p.cfg.Store.Claim(ctx, p.id, mine)
	if err != nil {
		return err
	}
	failpoint.Here(failpoint.PlannerClaimed)
	p.do(func() { p.own(claimed) })
	return nil
}

// own makes the core plan exactly these shards.
func (p *Planner) own(shards []store.Shard) {
	keep := map[int32]bool{}
	changed := 0
	var load []int32
	for _, s := range shards {
		keep[s.ID] = true
		if o := p.owned[s.ID]; o != nil {
			if o.Epoch != s.Epoch {
				// Another has planned it meanwhile, and handed out what this planner knows nothing of.
				o.Epoch = s.Epoch
				o.readFrom(s.Checkpoint)
				load = append(load, s.ID)
			}
			continue
		}
		changed++
		o := &ownedShard{Shard: s, overdue: s.Checkpoint, cursor: store.TimerKey{Shard: s.ID, DueAt: p.clock.Now()}}
		if o.overdue.IsZero() {
			o.overdue = time.UnixMicro(1) // nobody has noted how far it was planned: read all of it
		}
		sub, err := streams.OnWake(p.cfg.Conn, s.ID, p.onWake)
		if err != nil {
			p.log.Warn("cannot listen for wakes; rows are found by reading", "shard", s.ID, "error", err)
		}
		o.sub = sub
		p.owned[s.ID] = o
		load = append(load, s.ID)
	}
	if len(load) > 0 {
		go p.loadFlights(load)
	}
	for id, o := range p.owned {
		if keep[id] {
			continue
		}
		changed++
		if o.sub != nil {
			_ = o.sub.Unsubscribe() // fails only on a closed connection
		}
		delete(p.owned, id)
		p.board.drop(id)
		p.flights.dropShard(id)
	}
	if changed > 0 {
		failpoint.Here(failpoint.PlannerOwned)
		p.cfg.Metrics.shardChanges.Add(float64(changed))
		p.log.Info("shards changed", "owned", len(p.owned))
		// The owner before has let go by now, so what falls due until the next read ahead is read at once too.
		if soon := p.clock.Now().Add(readEvery + p.cfg.MarkAhead); soon.After(p.wokenUntil) {
			p.wokenUntil = soon
		}
		p.nudge()
	}
	p.cfg.Metrics.shards.Set(float64(len(p.owned)))
}

// recount loads the in-flight rows of each shard again: one that nobody here knows of would be looked after by nobody. The other way round, it sweeps messages that
// nobody is given any more.
func (p *Planner) recount() {
	shards, _ := ask(p, func() []int32 { return slices.Sorted(maps.Keys(p.owned)) })
	p.loadFlights(shards)
	if len(shards) == 0 || shards[0] != 0 {
		return // whoever has the first shard sees to the stream, for all
	}
	ctx, cancel := context.WithTimeout(p.life, 10*time.Second)
	defer cancel()
	swept, err := streams.SweepRuns(ctx, p.js, p.road.Load().runs)
	if err != nil {
		p.log.Debug("cannot sweep messages that were passed over", "error", err) // tried again
	}
	if swept > 0 {
		p.log.Info("messages that a NATS server had kept by mistake are deleted", "messages", swept)
	}
}

const rollCallTime = 500 * time.Millisecond

// flightAhead is more than anything is handed out before its time, MarkAhead and the difference of clocks included.
const flightAhead = time.Minute

// loadFlights finds what another planner, or this one before a restart, had handed out of some shards.
func (p *Planner) loadFlights(shards []int32) {
	from := make([]store.ShardCursor, len(shards))
	for i, s := range shards {
		from[i] = store.ShardCursor{Shard: s, From: store.TimerKey{Shard: s}}
	}
	until := p.clock.Now().Add(flightAhead)
	for p.life.Err() == nil {
		_, err := pages(from, until, math.MaxInt, func(open []store.ShardCursor, limit int) ([]store.Timer, error) {
			ctx, cancel := context.WithTimeout(p.life, 10*time.Second)
			defer cancel()
			rows, err := p.cfg.Store.ReadInFlight(ctx, open, until, limit)
			if err == nil {
				p.do(func() { p.lookAfter(rows) })
			}
			return rows, err //nolint:wrapcheck // told below
		}, func(t *store.Timer) store.TimerKey { return t.TimerKey })
		if err == nil {
			break
		}
		p.log.Warn("cannot read what is handed out; trying again", "shards", len(shards), "error", err)
		select {
		case <-p.life.Done():
			return
		case <-time.After(500 * time.Millisecond):
		}
	}
	p.do(func() {
		for _, s := range shards {
			if o := p.owned[s]; o != nil {
				o.inFlight = true
			}
		}
	})
}

// lookAfter takes hand-overs that others have made.
func (p *Planner) lookAfter(rows []store.Timer) {
	for i := range rows {
		t := rows[i]
		if _, known := p.flights.byRun[t.RunID]; known || p.owned[t.Shard] == nil {
			continue
		}
		l := p.board.lane(laneOf(&t))
		l.enqueue(false)
		// By then what was published in the last moments is stored, and executors have had time to answer the roll call of the start.
		check := time.Now().Add(streams.StoredBy(&t).Sub(p.clock.Now()))
		if called := p.startedAt.Add(rollCallTime); called.After(check) {
			check = called
		}
		p.flights.add(&flight{timer: t, lane: l, generation: t.Generation, check: check})
	}
	p.lookSoon()
}

// checkpoint stores from where a new owner has to read.
func (p *Planner) checkpoint(ctx context.Context) error {
	got := make(chan []store.Shard, 1)
	p.do(func() {
		at := p.clock.Now().Add(-lookBack)
		if passed := p.board.passedFrom(); !passed.IsZero() && passed.Before(at) {
			at = passed
		}
		for _, e := range p.board.entries {
			if e.row.DueAt.Before(at) {
				at = e.row.DueAt
			}
		}
		for _, v := range p.skipping {
			if v.key.DueAt.Before(at) {
				at = v.key.DueAt
			}
		}
		var out []store.Shard
		for _, o := range p.owned {
			upTo := at
			if seen := o.seenUpTo(at.Add(lookBack)); seen.Before(upTo) {
				upTo = seen
			}
			if o.overdue.IsZero() && upTo.After(o.Checkpoint) {
				o.Checkpoint = upTo
				out = append(out, o.Shard)
			}
		}
		got <- out
	})
	select {
	case shards := <-got:
		if len(shards) == 0 {
			return nil
		}
		return p.cfg.Store.Checkpoint(ctx, p.id, shards)
	case <-p.life.Done():
		return nil
	}
}

// onWake takes rows that were just committed. One that comes without its job is read from SQL.
func (p *Planner) onWake(w *wirev1.Wake) {
	rows := make([]*store.DueRow, 0, len(w.Rows))
	nudge, until := false, time.Time{}
	for _, r := range w.Rows {
		row, ok := streams.DecodeWake(r)
		if ok {
			rows = append(rows, row)
			continue
		}
		nudge = true
		if due := time.UnixMicro(r.DueAt).UTC(); due.After(until) {
			until = due
		}
	}
	p.do(func() {
		p.merge(rows)
		if nudge {
			// The forward cursor has passed what is due soon: without this it would be found when it is due.
			if until.After(p.wokenUntil) {
				p.wokenUntil = until
			}
			p.nudge()
		}
	})
}
