package checker

import (
	"slices"
	"time"

	"github.com/waterclock-io/waterclock/job/schedule"
)

// outcomes is invariant 1: what was started is known, no nominal time ended twice, and a one-time job has its run.
func (c *check) outcomes(j *Job) {
	at := map[time.Time]string{}
	for i := range j.Runs {
		r := &j.Runs[i]
		if r.Origin != "schedule" || r.State == "skipped" {
			continue
		}
		if other, twice := at[r.Scheduled]; twice && other != r.ID {
			c.add(1, j.ID, r.ID, "the occurrence of %s has another outcome as run %s", stamp(r.Scheduled), other)
		}
		at[r.Scheduled] = r.ID
	}
	for i := range j.Runs {
		skip := &j.Runs[i]
		if skip.State != "skipped" {
			continue
		}
		for when, run := range at {
			if when.Before(skip.Scheduled) || when.After(skip.Through) {
				continue
			}
			leftBehind := cancelledAhead(j, c.runs[run]) && otherSchedule(j, skip.Scheduled, when)
			if !leftBehind {
				c.add(1, j.ID, run, "the occurrence of %s has a run, and is skipped too (%s, from %s to %s)",
					stamp(when), skip.Reason, stamp(skip.Scheduled), stamp(skip.Through))
			}
		}
	}
	c.onceHasRun(j, at)
}

// successes is the part of invariant 1 that says that no outcome is made up.
func (c *check) successes(j *Job) {
	for i := range j.Runs {
		r := &j.Runs[i]
		if r.State != "succeeded" || len(r.Attempts) == 0 {
			continue
		}
		last := r.Attempts[len(r.Attempts)-1]
		switch {
		case j.Doomed:
			c.add(1, j.ID, r.ID, "is succeeded, though its executor dies under it every time")
		case last.Attempt <= j.Fails:
			c.add(1, j.ID, r.ID, "is succeeded by attempt %d, and its first %d fail by themselves", last.Attempt, j.Fails)
		case !slices.ContainsFunc(c.of[r.ID], func(s session) bool { return s.Dispatch == last.Dispatch && s.ended }):
			c.add(1, j.ID, r.ID, "is succeeded by dispatch %d, whose command never came to its end", last.Dispatch)
		}
	}
}

// onceHasRun: the run of the last schedule must be there; one of an earlier schedule may, where it had been handed out before the update.
func (c *check) onceHasRun(j *Job, at map[time.Time]string) {
	if j.Schedule.Kind != schedule.Once {
		return
	}
	current := j.Schedule.At
	may := map[time.Time]bool{current: true}
	for _, ch := range j.Changes {
		if ch.Kind == Update {
			current = ch.Schedule.At
			may[current] = true
		}
	}
	if at[current] == "" {
		c.add(1, j.ID, "", "its run of %s has no outcome", stamp(current))
	}
	for when, run := range at {
		if !may[when] {
			c.add(2, j.ID, run, "a run of %s, which it never had as its time", stamp(when))
		}
	}
}

// handedOutAhead is how long before its time an occurrence may be handed out: it then goes on whatever becomes of its schedule.
const handedOutAhead = 250 * time.Millisecond

// span is a time in which a schedule was in force: for certain, and at most. Both ends count.
type span struct {
	schedule           schedule.Schedule
	mustFrom, mustTill time.Time
	mayFrom, mayTill   time.Time
}

// spans follows the schedule of a job through its updates to its end or its deletion.
func spans(j *Job) []span {
	far := j.Schedule.End
	for _, ch := range j.Changes {
		if ch.Kind == Update && ch.Schedule.End.After(far) {
			far = ch.Schedule.End
		}
	}
	out := []span{{schedule: j.Schedule, mustFrom: j.CreatedAt, mayFrom: j.CreatedAt, mustTill: far, mayTill: far}}
	for _, ch := range j.Changes {
		now := &out[len(out)-1]
		switch ch.Kind {
		case Update:
			now.mustTill, now.mayTill = ch.Requested, ch.Answered.Add(handedOutAhead)
			out = append(out, span{schedule: ch.Schedule, mustFrom: ch.Answered, mayFrom: ch.Requested, mustTill: far, mayTill: far})
		case Delete:
			now.mustTill, now.mayTill = ch.Requested, ch.Answered.Add(handedOutAhead)
		}
	}
	return out
}

// cancelledAhead tells whether a run was cancelled by its name before its time: it stays in history as that, whatever schedule the job has got since.
func cancelledAhead(j *Job, r *Run) bool {
	return r.State == "cancelled" && slices.ContainsFunc(j.Changes, func(ch Change) bool {
		return ch.Kind == Cancel && ch.RunID == r.ID && ch.Answered.Before(r.Scheduled)
	})
}

// otherSchedule tells whether no schedule that the job has had has both times: what an update left behind lies then within the range of a skip that does not
// stand for it.
func otherSchedule(j *Job, a, b time.Time) bool {
	return !slices.ContainsFunc(spans(j), func(s span) bool {
		has := map[time.Time]bool{}
		collect(has, s.schedule, a, a)
		collect(has, s.schedule, b, b)
		return has[a] && has[b]
	})
}

// manyOccurrences is more than a series of a fault run can have.
const manyOccurrences = 100_000

// occurrences is invariant 2: between the edges of each schedule every nominal time is a run or within a skip, and there is no other.
func (c *check) occurrences(j *Job) {
	if j.Schedule.Kind == schedule.Once {
		return
	}
	must, may := map[time.Time]bool{}, map[time.Time]bool{}
	for _, s := range spans(j) {
		collect(must, s.schedule, s.mustFrom, s.mustTill)
		collect(may, s.schedule, s.mayFrom, s.mayTill)
	}
	accounted, skipped := map[time.Time]bool{}, map[time.Time]bool{}
	for i := range j.Runs {
		r := &j.Runs[i]
		switch {
		case r.State == "skipped":
			c.skip(j, r, may, skipped)
		case r.Origin == "schedule":
			accounted[r.Scheduled] = true
			if !may[r.Scheduled] && !cancelledAhead(j, r) {
				c.add(2, j.ID, r.ID, "an extra run of %s, which is not an occurrence", stamp(r.Scheduled))
			}
		}
	}
	for when := range must {
		if !accounted[when] && !skipped[when] {
			c.add(2, j.ID, "", "a gap: the occurrence of %s has neither run nor skip", stamp(when))
		}
	}
}

// skip holds a skip against the occurrences that may have been, and notes those that it stands for.
func (c *check) skip(j *Job, r *Run, may, skipped map[time.Time]bool) {
	// Around an update which of the two schedules counted cannot be told from outside.
	one := len(spans(j)) == 1
	stands := int64(0)
	for when := range may {
		if when.Before(r.Scheduled) || when.After(r.Through) {
			continue
		}
		if skipped[when] && one {
			c.add(1, j.ID, r.ID, "the occurrence of %s is skipped twice, the second time from %s to %s (%s)", stamp(when), stamp(r.Scheduled), stamp(r.Through), r.Reason)
		}
		skipped[when] = true
		stands++
	}
	if !may[r.Scheduled] {
		c.add(2, j.ID, r.ID, "an extra skip of %s (%s), which is not an occurrence", stamp(r.Scheduled), r.Reason)
	}
	if stands != r.Count && one {
		c.add(2, j.ID, r.ID, "the skip from %s to %s (%s) counts %d occurrences, which are %d", stamp(r.Scheduled), stamp(r.Through), r.Reason, r.Count, stands)
	}
}

// triggers is invariant 2 for what was asked for beside the schedule: each acknowledged trigger has its run, and there is no other. That the run ends, and
// once, is seen with all others.
func (c *check) triggers(j *Job) {
	asked := map[string]Change{}
	for _, ch := range j.Changes {
		if ch.Kind == Trigger {
			asked[ch.RunID] = ch
		}
	}
	unsure := 0
	for _, ch := range j.Unsure {
		if ch.Kind == Trigger {
			unsure++
		}
	}
	there := map[string]bool{}
	for i := range j.Runs {
		r := &j.Runs[i]
		if r.Origin != "trigger" || there[r.ID] {
			continue
		}
		there[r.ID] = true
		if _, acknowledged := asked[r.ID]; acknowledged {
			continue
		}
		if unsure--; unsure < 0 && !c.triggeredFromOutside(j, r) {
			c.add(2, j.ID, r.ID, "an extra run of %s, which nobody triggered", stamp(r.Scheduled))
		}
	}
	for run, ch := range asked {
		if !there[run] {
			c.add(2, j.ID, run, "a gap: it was triggered, acknowledged at %s, and is not there", stamp(ch.Answered))
		}
	}
}

// collect adds the occurrences in [from, until].
func collect(into map[time.Time]bool, s schedule.Schedule, from, until time.Time) {
	occ, _ := s.Between(from.Add(-time.Microsecond), until, manyOccurrences)
	for _, o := range occ {
		into[o.At] = true
	}
}
