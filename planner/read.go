package planner

import (
	"context"
	"time"

	"github.com/waterclock-io/waterclock/internal/failpoint"
	"github.com/waterclock-io/waterclock/store"
)

const (
	readEvery = time.Second
	// Each second a glance reads what fell due of late: rows whose wake was lost, that came back, or that took a little longer to commit. A look back, which is longer
	// than any transaction may take to commit, sees to it that no row stays behind the planner's place. It is made less often, as the rows that were done meanwhile
	// have left dead entries in the index, and all of them are walked through.
	glance       = 5 * time.Second
	lookBack     = time.Minute
	lookBackEach = 10 * time.Second
	// readPage is how many rows one read returns over all shards, and readPages how many reads follow each other before others have their turn.
	readPage  = 4000
	readPages = 20
	// readFew is so few rows that to read those between now and the horizon twice costs less than a question.
	readFew = 100
)

// nudge makes the reader look at once for rows that are over their time.
func (p *Planner) nudge() {
	select {
	case p.nudges <- struct{}{}:
	default:
	}
}

func (p *Planner) nudgeLater() { time.AfterFunc(200*time.Millisecond, p.nudge) }

// read brings due rows to the core: each second what is over its time and what comes within the horizon, and at a nudge the former at once.
func (p *Planner) read() {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		each := false
		select {
		case <-p.life.Done():
			return
		case <-tick.C:
			each = true
		case <-p.nudges:
		}
		horizon := p.clock.Now().Add(p.cfg.Horizon)
		err := p.readOverdue(each, horizon)
		if err == nil && each {
			err = p.readAhead(horizon)
		}
		if err != nil && p.life.Err() == nil {
			p.log.Warn("cannot read due rows; trying again in a second", "error", err)
		}
	}
}

// ask runs a question in the core and waits for its answer.
func ask[T any](p *Planner, f func() T) (T, bool) {
	got := make(chan T, 1)
	p.do(func() { got <- f() })
	select {
	case v := <-got:
		return v, true
	case <-p.life.Done():
		var zero T
		return zero, false
	}
}

// readOverdue reads what should have been handed out already: rows whose wake was lost, that came back, that were committed late, or that waited for an owner.
//
// What falls due until the next of these reads is read with it each second: a row that was committed behind the forward cursor would else be found when it is late.
//
// Where few rows are on the board it goes on to the horizon, which saves a question.
func (p *Planner) readOverdue(each bool, horizon time.Time) error {
	now := p.clock.Now()
	until := now.Add(p.cfg.MarkAhead)
	if each {
		until = until.Add(readEvery)
	}
	cursors, ok := ask(p, func() []store.ShardCursor {
		if p.wokenUntil.After(horizon) || (each && len(p.board.entries) < readFew) {
			until = horizon // the rest is read in its time
		} else if p.wokenUntil.After(until) {
			until = p.wokenUntil.Add(time.Microsecond)
		}
		if each {
			p.board.second()
		}
		woken := !p.wokenUntil.IsZero()
		p.wokenUntil = time.Time{}
		p.roomAgain()
		p.unrecorded()
		if each && !woken && p.busy() {
			return nil
		}
		out := make([]store.ShardCursor, 0, len(p.owned))
		for _, o := range p.owned {
			o.further = time.Time{}
			from := o.readBack(now)
			if !o.overdue.IsZero() && o.overdue.Before(from) {
				from = o.overdue
			}
			out = append(out, store.ShardCursor{Shard: o.ID, From: store.TimerKey{Shard: o.ID, DueAt: from}})
		}
		return out
	})
	if !ok || len(cursors) == 0 {
		return nil
	}
	done, err := p.readPages(cursors, until)
	if err != nil {
		return err
	}
	p.do(func() {
		for _, c := range done {
			o := p.owned[c.Shard]
			if o == nil {
				continue
			}
			if now.Sub(o.lookedBack) >= lookBackEach {
				o.lookedBack = now
			}
			// From here on the forward cursor has seen everything before; until then an old backlog is read on from where this read came to.
			if c.From.DueAt.Before(now.Add(-glance)) {
				o.overdue = c.From.DueAt
			} else {
				o.overdue, o.read = time.Time{}, now
			}
			o.readFrom(o.further) // asked for meanwhile
			o.readTo(c.From)
		}
	})
	return nil
}

// busyEvery is how often a planner looks back that has more than a page of rows waiting: it would read all of them again to find the one that was committed late,
// which comes after them anyhow.
const busyEvery = 5 * readEvery

// busy tells whether looking back can be left to a later read.
func (p *Planner) busy() bool {
	if p.board.waiting <= readPage {
		return false
	}
	for _, o := range p.owned {
		if !o.overdue.IsZero() || o.read.IsZero() || p.clock.Now().Sub(o.read) >= busyEvery {
			return false
		}
	}
	return true
}

// readAgain sees to it that a row is read once more that is off the board and may still be due: a minute later it would not be.
func (p *Planner) readAgain(k store.TimerKey) {
	if o := p.owned[k.Shard]; o != nil {
		o.readFrom(k.DueAt)
	}
}

// seenUpTo is the moment before which everything that is due has been read: a minute back from the last look back, so that no row that was committed late stays
// behind, however long SQL was away since.
func (o *ownedShard) seenUpTo(now time.Time) time.Time {
	return orNow(o.lookedBack, now).Add(-lookBack)
}

// readBack is where the next read of what is over its time begins.
func (o *ownedShard) readBack(now time.Time) time.Time {
	if now.Sub(o.lookedBack) >= lookBackEach {
		return o.seenUpTo(now)
	}
	return orNow(o.read, now).Add(-glance)
}

func orNow(at, now time.Time) time.Time {
	if at.IsZero() || at.After(now) {
		return now
	}
	return at
}

// readFrom lets the next read of what is over its time begin no later than a moment.
func (o *ownedShard) readFrom(at time.Time) {
	if at.IsZero() {
		return
	}
	if o.overdue.IsZero() || at.Before(o.overdue) {
		o.overdue = at
	}
	if o.further.IsZero() || at.Before(o.further) {
		o.further = at
	}
}

// unrecorded lets rows be decided again whose report nobody has recorded in time: it may be lost with its stream.
func (p *Planner) unrecorded() {
	now := time.Now()
	for run, v := range p.skipping {
		if !now.Before(v.until) {
			delete(p.skipping, run)
			p.readAgain(v.key)
		}
	}
}

// roomAgain lets rows that were passed over be read again, once half of their lane is empty.
func (p *Planner) roomAgain() {
	for _, l := range p.board.lanes {
		if l.passedFrom.IsZero() || l.count+l.heldCount() > laneRows*p.cfg.LaneLimit/2 {
			continue
		}
		for _, o := range p.owned {
			if o.overdue.IsZero() || l.passedFrom.Before(o.overdue) {
				o.overdue = l.passedFrom
			}
			if l.passedFrom.Before(o.cursor.DueAt) {
				o.cursor = store.TimerKey{Shard: o.ID, DueAt: l.passedFrom}
			}
		}
		l.passedFrom = time.Time{}
	}
}

// readTo notes up to where everything is read.
func (o *ownedShard) readTo(at store.TimerKey) {
	if at.Compare(o.cursor) > 0 {
		o.cursor = at
	}
}

// readAhead moves the forward cursors to the horizon.
func (p *Planner) readAhead(horizon time.Time) error {
	cursors, ok := ask(p, func() []store.ShardCursor {
		out := make([]store.ShardCursor, 0, len(p.owned))
		for _, o := range p.owned {
			if o.cursor.DueAt.Before(horizon) {
				out = append(out, store.ShardCursor{Shard: o.ID, From: o.cursor})
			}
		}
		return out
	})
	if !ok || len(cursors) == 0 {
		return nil
	}
	done, err := p.readPages(cursors, horizon)
	if err != nil {
		return err
	}
	p.do(func() {
		for _, c := range done {
			if o := p.owned[c.Shard]; o != nil {
				o.readTo(c.From)
			}
		}
	})
	return nil
}

// readPages reads what is due in shards from their cursors up to a time, page by page, and returns how far it came in each.
func (p *Planner) readPages(cursors []store.ShardCursor, until time.Time) ([]store.ShardCursor, error) {
	return pages(cursors, until, readPages, func(open []store.ShardCursor, limit int) ([]*store.DueRow, error) {
		ctx, cancel := context.WithTimeout(p.life, 10*time.Second)
		defer cancel()
		begun := time.Now()
		rows, err := p.cfg.Store.ReadDue(ctx, open, until, limit)
		if err != nil {
			return nil, err //nolint:wrapcheck // told by the caller
		}
		p.cfg.Metrics.reads.Observe(time.Since(begun).Seconds())
		p.do(func() { p.merge(rows) })
		return rows, nil
	}, func(r **store.DueRow) store.TimerKey { return (*r).TimerKey })
}

// pages reads shards from their cursors up to a time: a page of all of them, then one of those that have more, and so on up to a number. It returns how far it came
// in each.
func pages[T any](
	cursors []store.ShardCursor, until time.Time, most int, read func(open []store.ShardCursor, limit int) ([]T, error), key func(*T) store.TimerKey,
) ([]store.ShardCursor, error) {
	done := make(map[int32]store.ShardCursor, len(cursors))
	open := cursors
	for page := 0; len(open) > 0 && page < most; page++ {
		limit := max(readPage/len(open), 16)
		rows, err := read(open, limit)
		if err != nil {
			return nil, err
		}
		count := make(map[int32]int, len(open))
		last := make(map[int32]store.TimerKey, len(open))
		for i := range rows {
			k := key(&rows[i])
			count[k.Shard]++
			if k.Compare(last[k.Shard]) > 0 || count[k.Shard] == 1 {
				last[k.Shard] = k
			}
		}
		var full []store.ShardCursor
		for _, c := range open {
			if count[c.Shard] < limit {
				done[c.Shard] = store.ShardCursor{Shard: c.Shard, From: store.TimerKey{Shard: c.Shard, DueAt: until}}
				continue
			}
			next := store.ShardCursor{Shard: c.Shard, From: last[c.Shard]}
			done[c.Shard] = next
			full = append(full, next)
		}
		open = full
	}
	out := make([]store.ShardCursor, 0, len(done))
	for _, c := range done {
		out = append(out, c)
	}
	return out, nil
}

// merge takes rows that were read or woken, save those that are on their way already.
func (p *Planner) merge(rows []*store.DueRow) {
	now := time.Now()
	for i := range rows {
		r := rows[i]
		if p.owned[r.Shard] == nil {
			continue
		}
		if fl := p.flights.byRun[r.RunID]; fl != nil && fl.timer.Dispatch > r.Dispatch {
			continue // read before it was marked
		} else if fl != nil {
			p.flights.remove(fl) // it came back
		}
		if v, ok := p.skipping[r.RunID]; ok {
			if now.Before(v.until) && v.key.Compare(r.TimerKey) == 0 {
				continue
			}
			delete(p.skipping, r.RunID)
		}
		p.board.add(r)
		failpoint.Here(failpoint.PlannerRead)
	}
}
