package streams

import (
	"slices"
	"strconv"
	"time"

	"github.com/waterclock-io/waterclock/job"
)

// What a Puller decides: what to start, what to give back, and whom to ask for more.

// act does what the state asks for: start what may start, give back what waited too long, ask for more.
func (p *Puller) act() {
	now := time.Now()
	p.giveUpLate(now)
	p.startHeld(now)
	if p.probing >= 0 {
		if p.lanes[p.probing].pull.waits() {
			return // not answered yet
		}
		p.probeOn()
		return
	}
	if p.free <= 0 || len(p.held) > 0 {
		return
	}
	if p.parked && !p.found {
		p.park()
		return
	}
	// Something came, or slots became free, since the lanes were last known empty.
	if p.free >= max(1, p.cfg.Slots/4) || p.lingerAt.IsZero() || !now.Before(p.lingerAt) {
		p.beginRound()
	}
}

// startHeld hands deliveries to free slots, most urgent first.
func (p *Puller) startHeld(now time.Time) {
	for len(p.held) > 0 {
		best := 0
		for i := range p.held {
			if p.held[i].lane.Priority < p.held[best].lane.Priority {
				best = i
			}
		}
		h := p.held[best]
		if p.free > 0 {
			if p.fences > 0 {
				return // a higher lane has yet to answer
			}
			if !h.cleared && h.lane.Priority > job.Critical && p.free < len(job.Priorities) && p.fence(h.lane.Priority) {
				return
			}
			p.free--
			p.drop(best)
			p.cfg.Deliver(h.msg)
			continue
		}
		if slices.ContainsFunc(p.held, func(h heldMsg) bool { return !now.Before(h.until) }) {
			p.giveBackAll()
		}
		return
	}
}

// giveBackAll gives back everything that is held, together: apart, a lower one could come back before a higher.
func (p *Puller) giveBackAll() {
	if len(p.held) == 0 {
		return
	}
	slices.SortStableFunc(p.held, func(a, b heldMsg) int { return int(a.lane.Priority) - int(b.lane.Priority) })
	msgs := make([]Delivery, len(p.held))
	for i := range p.held {
		msgs[i] = p.held[i].msg
		p.held[i].lane.park = leastParked // what is given back makes its way through SQL again; in RUNS it would have waited for a slot
	}
	p.held = nil
	p.cfg.Surplus(msgs)
}

func (p *Puller) drop(i int) { p.held = append(p.held[:i], p.held[i+1:]...) }

// fence asks every lane above a priority whether it has something; while answers are out nothing starts. It returns false where there is nobody to ask.
func (p *Puller) fence(below job.Priority) bool {
	asked := false
	for i, l := range p.lanes {
		if l.Priority < below && !l.fence.waits() && p.request(i, &l.fence, 1, true) {
			p.fences++
			asked = true
		}
	}
	for i := range p.held {
		if p.held[i].lane.Priority <= below { // the others have lanes above them that were not asked
			p.held[i].fenced = asked
		}
	}
	return asked
}

func (p *Puller) beginRound() {
	p.lingerAt = time.Time{}
	p.parked, p.found, p.lowest, p.more = false, false, false, false
	if p.rounds++; p.rounds > bottomEvery {
		p.rounds = 0
		p.bottom()
		return
	}
	p.probing = -1
	p.probeOn()
}

// bottom takes one run from the lowest lane that is not asked already, so that nobody starves behind a flood from above.
func (p *Puller) bottom() {
	for i := len(p.lanes) - 1; i >= 0; i-- {
		if !p.lanes[i].pull.waits() && p.ask(i, 1, true) {
			p.probing, p.lowest = i, true
			return
		}
	}
	p.probeOn()
}

// probeOn asks the next lane of the round; after the last, everything being empty, it parks.
func (p *Puller) probeOn() {
	if p.free <= 0 || len(p.held) > 0 {
		p.probing = -1
		p.found = true // there may be more than fitted
		return
	}
	for i := p.probing + 1; i < len(p.lanes); i++ {
		if p.more && i > 0 && p.lanes[i].Priority > p.lanes[i-1].Priority {
			p.beginRound() // a more urgent lane has more
			return
		}
		if p.lanes[i].pull.waits() {
			continue // a pull is parked there: what it has, it sends
		}
		if p.ask(i, p.free, true) {
			p.probing = i
			if i == len(p.lanes)-1 {
				p.rounds = 0
			}
			return
		}
	}
	p.probing = -1
	p.rounds = 0
	if p.found {
		p.beginRound()
		return
	}
	p.park()
}

// park leaves a pull on every lane that has none. Where runs of several priorities fall due together, what such pulls bring of a lower one starts before the rest of
// the higher, so they ask for few until it shows that there are many.
func (p *Puller) park() {
	p.parked, p.lingerAt = true, time.Time{}
	for i, l := range p.lanes {
		if !l.pull.waits() {
			p.ask(i, min(p.free, l.park), false)
		}
	}
}

func (p *Puller) ask(i, batch int, noWait bool) bool {
	return p.request(i, &p.lanes[i].pull, batch, noWait)
}

// request pulls from a lane by one of its inboxes, which nothing is under way for.
func (p *Puller) request(i int, by **inbox, batch int, noWait bool) bool {
	now, l := time.Now(), p.lanes[i]
	if now.Before(l.retryAt) {
		return false
	}
	if *by == nil {
		in, err := p.openInbox(i)
		if err != nil {
			l.retryAt = now.Add(retryGone)
			return false
		}
		*by = in
	}
	in := *by
	b := make([]byte, 0, 64)
	b = append(b, `{"batch":`...)
	b = strconv.AppendInt(b, int64(batch), 10)
	giveUp := now.Add(parkSlack)
	if noWait {
		b = append(b, `,"no_wait":true}`...)
	} else {
		b = append(b, `,"expires":`...)
		b = strconv.AppendInt(b, int64(p.cfg.parkFor), 10)
		b = append(b, '}')
		giveUp = giveUp.Add(p.cfg.parkFor)
	}
	p.pullSeq++
	token := strconv.FormatUint(p.pullSeq, 36)
	if err := p.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+p.runs.Name+"."+l.name, in.prefix+token, b); err != nil {
		l.retryAt = now.Add(retryGone) // away: the reconnect resets us
		p.retire(in)                   // a part of it may have been sent
		*by = nil
		return false
	}
	in.token, in.asked, in.batch, in.credit, in.giveUp = token, now, batch, batch, giveUp
	return true
}

// giveUpLate forgets pulls that should have been answered long ago.
func (p *Puller) giveUpLate(now time.Time) {
	for _, l := range p.lanes {
		if l.pull.waits() && now.After(l.pull.giveUp) || l.fence.waits() && now.After(l.fence.giveUp) {
			p.forgetPulls(l)
		}
	}
	p.closeRetired(now)
}

// forget waits for no answer any more.
func (p *Puller) forget() {
	for _, l := range p.lanes {
		p.forgetPulls(l)
		l.retryAt = time.Time{}
	}
	p.probing, p.parked, p.found = -1, false, true
}

// nextWake is how long nothing needs to be done unless something comes.
func (p *Puller) nextWake() time.Duration {
	wake := parkSlack
	now := time.Now()
	sooner := func(t time.Time) {
		if !t.IsZero() {
			wake = min(wake, max(t.Sub(now), 50*time.Microsecond))
		}
	}
	for i := range p.held {
		sooner(p.held[i].until)
	}
	if p.free > 0 && len(p.held) == 0 && p.probing < 0 && !p.parked {
		sooner(p.lingerAt)
	}
	for _, l := range p.lanes {
		if !l.pull.waits() && p.free > 0 && now.Before(l.retryAt) {
			sooner(l.retryAt)
		}
	}
	return wake
}
