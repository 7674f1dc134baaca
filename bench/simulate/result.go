package simulate

import (
	"slices"
	"time"

	"github.com/waterclock-io/waterclock/planner/membership"
)

// What can happen to the membership.
const (
	joined = "joins"
	left   = "is stopped"
	killed = "is killed"
)

// Event is a change of the membership and what followed.
type Event struct {
	At   time.Duration
	What string
	Who  string
	// Moved is how many shards were claimed by another than their last owner until the next event; Must is how many had to, by the rule.
	Moved, Must int
	// Owned is how long after it every shard had a living planner that plans it, Settled until each had the one of the rule alone; -1: not by the next event.
	Owned, Settled time.Duration

	before, after map[int32]string
}

// Lag is how late runs were handed out.
type Lag struct {
	Runs          int
	P50, P99, Max time.Duration
}

// Share is what fell to one planner.
type Share struct {
	ID     string
	Shards int // at the end
	Runs   int // that it handed out
}

// Result is what a simulation showed.
type Result struct {
	Events []Event
	Shares []Share // of those that live at the end
	// Moving are runs of shards that changed hands, due from a second before the event until a second after the claim; Calm are all others.
	Calm, Moving Lag
	// Done is when the last run was handed out.
	Done time.Duration
	// Unplanned runs were not handed out by the end. Early, of those that were, before their time; Twice counts hand-overs beyond the first. Both must be 0.
	Unplanned, Early, Twice int
	// Lost hand-overs were marked by a planner that died before it published them, and came back.
	Lost int
	// Stale marks were refused because another planner was first; RowsRead and Pages are what all reads returned.
	Stale, RowsRead, Pages int
}

// move is a shard that was claimed by another than its owner before.
type move struct {
	shard *shard
	at    time.Duration
}

// happened notes an event. The members before and after it are the living ones, whether the others know it yet or not.
func (s *sim) happened(what string, p *planner) {
	var before, after []string
	for _, q := range s.planners {
		lives := q.alive && !q.leaving
		if lives || q == p && what != joined {
			before = append(before, q.m.ID)
		}
		if lives {
			after = append(after, q.m.ID)
		}
	}
	before = slices.DeleteFunc(before, func(id string) bool { return what == joined && id == p.m.ID })
	e := Event{
		At: s.queue.now, What: what, Who: p.m.ID, Owned: -1, Settled: -1,
		before: membership.Assign(before, s.cfg.Shards), after: membership.Assign(after, s.cfg.Shards),
	}
	for id, owner := range e.after {
		if e.before[id] != owner {
			e.Must++
		}
	}
	s.result.Events = append(s.result.Events, e)
	s.settle()
}

func (s *sim) moved(sh *shard) {
	if n := len(s.result.Events); n > 0 {
		s.result.Events[n-1].Moved++
	}
	s.moves = append(s.moves, move{sh, s.queue.now})
}

// settle looks whether the shards are where they belong.
func (s *sim) settle() {
	if len(s.result.Events) == 0 {
		return
	}
	e := &s.result.Events[len(s.result.Events)-1]
	if e.Settled >= 0 {
		return
	}
	all, right := true, true
	for _, sh := range s.shards {
		plans := false
		for _, p := range s.planners {
			if p.alive && !p.leaving && p.owned[sh.id] != nil {
				plans = true
				right = right && e.after[sh.id] == p.m.ID
			}
		}
		all = all && plans
	}
	if all && e.Owned < 0 {
		e.Owned = s.queue.now - e.At
	}
	if all && right {
		e.Settled = s.queue.now - e.At
	}
}

// conclude works out what is known only at the end.
func (s *sim) conclude() {
	r := &s.result
	for _, p := range s.planners {
		if p.alive {
			r.Shares = append(r.Shares, Share{p.m.ID, len(p.owned), p.handed})
		}
	}
	type window struct{ from, to time.Duration }
	windows := map[*shard][]window{}
	for _, m := range s.moves {
		for i := len(r.Events) - 1; i >= 0; i-- {
			if r.Events[i].At <= m.at {
				windows[m.shard] = append(windows[m.shard], window{r.Events[i].At - time.Second, m.at + time.Second})
				break
			}
		}
	}
	var calm, moving []time.Duration
	for _, row := range s.rows {
		if !row.sent {
			r.Unplanned++
			continue
		}
		if row.lag < 0 {
			r.Early++
		}
		r.Done = max(r.Done, row.scheduled+row.lag)
		if slices.ContainsFunc(windows[row.shard], func(w window) bool { return row.scheduled >= w.from && row.scheduled <= w.to }) {
			moving = append(moving, row.lag)
		} else {
			calm = append(calm, row.lag)
		}
	}
	r.Calm, r.Moving = lagOf(calm), lagOf(moving)
}

func lagOf(all []time.Duration) Lag {
	if len(all) == 0 {
		return Lag{}
	}
	slices.Sort(all)
	at := func(percent int) time.Duration { return all[(len(all)-1)*percent/100] }
	return Lag{len(all), at(50), at(99), at(100)}
}

// Spread is the largest share over the mean: 1 is even.
func Spread(shares []int) float64 {
	total, most := 0, 0
	for _, n := range shares {
		total += n
		most = max(most, n)
	}
	if total == 0 {
		return 0
	}
	return float64(most) * float64(len(shares)) / float64(total)
}
