package checker

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// work is invariants 3, 4 (the scheduled time) and 5 over what the commands wrote.
func (c *check) work() {
	last := map[string]session{} // the latest of each run
	for _, s := range c.sessions {
		r, j := c.runs[s.RunID], c.jobOf[s.RunID]
		jobID := ""
		if j == nil {
			c.add(1, "", s.RunID, "worked on at %s (job number %d), and in no history", stamp(s.At), s.Number)
		} else {
			jobID = j.ID
			if early := due(j, r).Sub(s.At); early > clockSlack {
				c.add(4, jobID, s.RunID, "dispatch %d started at %s, %s before its time", s.Dispatch, stamp(s.At), early)
			}
			if s.Attempt > j.MaxAttempts {
				c.add(5, jobID, s.RunID, "attempt %d was started, the maximum is %d", s.Attempt, j.MaxAttempts)
			}
		}
		before, again := last[s.RunID]
		if again {
			c.pair(jobID, before, s)
		}
		if !again || s.last.After(before.last) || s.Dispatch > before.Dispatch {
			last[s.RunID] = s
		}
	}
}

// due is the earliest time at which a run may start: the scheduled one and its jitter. Which jitter counts around an update cannot be told from outside.
func due(j *Job, r *Run) time.Time {
	if r.Origin != "schedule" || j.Schedule.Jitter == 0 || slices.ContainsFunc(j.Changes, isUpdate) || slices.ContainsFunc(j.Unsure, isUpdate) {
		return r.Scheduled
	}
	id, err := uuid.Parse(j.ID)
	if err != nil {
		return r.Scheduled
	}
	return r.Scheduled.Add(j.Schedule.JitterFor(id, r.Scheduled))
}

func isUpdate(ch Change) bool { return ch.Kind == Update }

// pair looks at two sessions of a run, of which b started later.
func (c *check) pair(jobID string, a, b session) {
	switch {
	case a.Dispatch == b.Dispatch:
		c.add(3, jobID, b.RunID, "dispatch %d was worked on twice, at %s by group %d and at %s by group %d",
			a.Dispatch, stamp(a.At), a.Group, stamp(b.At), b.Group)
	case b.Dispatch < a.Dispatch:
		c.add(3, jobID, b.RunID, "dispatch %d started at %s, after dispatch %d at %s", b.Dispatch, stamp(b.At), a.Dispatch, stamp(a.At))
	case a.last.After(b.At):
		c.add(3, jobID, b.RunID, "dispatch %d (attempt %d, group %d) lived until %s, and dispatch %d (attempt %d) started at %s",
			a.Dispatch, a.Attempt, a.Group, stamp(a.last), b.Dispatch, b.Attempt, stamp(b.At))
	}
}

// holds is the other half of invariant 4: no start after a job was cancelled, deleted, or while it was paused.
func (c *check) holds(j *Job) {
	lost := merged(c.h.Lost)
	for i, ch := range j.Changes {
		var until time.Time
		switch ch.Kind {
		case Cancel, Delete:
		case Pause:
			for _, later := range j.Changes[i+1:] {
				if later.Kind == Resume {
					until = later.Requested
					break
				}
			}
		default:
			continue
		}
		for k := range j.Runs {
			if ch.Kind == Cancel && j.Runs[k].ID != ch.RunID {
				continue
			}
			for _, s := range c.of[j.Runs[k].ID] {
				switch {
				case !s.At.After(ch.Answered.Add(Heartbeat)) || !until.IsZero() && !s.At.Before(until):
				case reaches(lost, ch.Answered, s.At):
					c.excused[ch.Kind]++
				default:
					c.add(4, j.ID, s.RunID, "dispatch %d started at %s, %s after the %s was acknowledged at %s",
						s.Dispatch, stamp(s.At), s.At.Sub(ch.Answered), ch.Kind, stamp(ch.Answered))
				}
			}
		}
	}
}

// reaches tells whether NATS lost something from about the answer to a change until a start, or has recovered from that just before.
func reaches(lost []Window, answered, start time.Time) bool {
	return slices.ContainsFunc(lost, func(w Window) bool {
		return w.From.Before(answered.Add(Heartbeat)) && start.Before(w.Till.Add(Recovery))
	})
}

// Excused counts, by the kind of the change, starts after an acknowledged cancel, pause or delete that NATS lost.
func Excused(h *History) map[ChangeKind]int {
	c := newCheck(h)
	for i := range h.Jobs {
		c.holds(&h.Jobs[i])
	}
	return c.excused
}
