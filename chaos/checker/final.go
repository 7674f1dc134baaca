package checker

import "fmt"

// rows is invariant 8 over the history of a job at the end, and invariant 5 over its attempts.
func (c *check) rows(j *Job) {
	listed := map[string]bool{}
	for i := range j.Runs {
		r := &j.Runs[i]
		if r.State == "skipped" && r.Origin == "schedule" && len(r.Attempts) == 0 {
			continue // a skip, not a run
		}
		if listed[r.ID] {
			c.add(8, j.ID, r.ID, "has more than one final row")
		}
		listed[r.ID] = true
		if r.Ended() {
			c.attempts(j, r)
		} else {
			c.add(9, j.ID, r.ID, "is still %s", r.State)
		}
	}
}

// attempts: numbered upwards, all but the last failed, and the last is what became of the run.
func (c *check) attempts(j *Job, r *Run) {
	for i, a := range r.Attempts {
		final := i == len(r.Attempts)-1
		// An attempt that ended before it was handed out has the dispatch of the one before.
		fresh := i == 0 || a.Dispatch > r.Attempts[i-1].Dispatch || (a.Dispatch == r.Attempts[i-1].Dispatch && a.Started.IsZero())
		switch {
		case i > 0 && (a.Attempt <= r.Attempts[i-1].Attempt || !fresh):
			c.add(8, j.ID, r.ID, "attempt %d of dispatch %d follows attempt %d of dispatch %d",
				a.Attempt, a.Dispatch, r.Attempts[i-1].Attempt, r.Attempts[i-1].Dispatch)
		case !final && a.State != "failed":
			c.add(8, j.ID, r.ID, "attempt %d is %s, and is followed by another", a.Attempt, a.State)
		case final && a.State != r.State:
			c.add(8, j.ID, r.ID, "is listed as %s, its last attempt is %s", r.State, a.State)
		}
		if final && a.State == "failed" && a.Attempt < j.MaxAttempts {
			c.add(5, j.ID, r.ID, "is failed (%s) by attempt %d, and may have %d: no failure of a fault run is for good", a.Reason, a.Attempt, j.MaxAttempts)
		}
		if a.Attempt > j.MaxAttempts {
			c.add(5, j.ID, r.ID, "has attempt %d in history, the maximum is %d", a.Attempt, j.MaxAttempts)
		}
	}
	if len(r.Attempts) == 0 {
		c.add(8, j.ID, r.ID, "is %s without a row of history", r.State)
	}
}

// seen is the other half of invariant 8: what was read once reads so at the end.
func (c *check) seen() {
	type key struct {
		run     string
		attempt int32
	}
	now := map[key]Attempt{}
	for id, r := range c.runs {
		for _, a := range r.Attempts {
			a.RunID = id
			now[key{id, a.Attempt}] = a
		}
	}
	told := map[string]bool{}
	for _, was := range c.h.Seen {
		is, there := now[key{was.RunID, was.Attempt}]
		if there && is == was {
			continue
		}
		what := fmt.Sprintf("attempt %d was read as %+v, at the end it is %+v", was.Attempt, was, is)
		if !there {
			what = fmt.Sprintf("attempt %d was read as %+v, at the end it is gone", was.Attempt, was)
		}
		if told[what] {
			continue
		}
		told[what] = true
		jobID := ""
		if j := c.jobOf[was.RunID]; j != nil {
			jobID = j.ID
		}
		c.add(8, jobID, was.RunID, "%s", what)
	}
}

// left is invariant 9 over SQL and JetStream.
func (c *check) left() {
	for _, t := range c.h.Left.Timers {
		c.add(9, t.JobID, t.RunID, "its row is left in SQL: %s, attempt %d, dispatch %d, due %s", t.Step, t.Attempt, t.Dispatch, stamp(t.DueAt))
	}
	for _, s := range c.h.Left.Streams {
		if s.Messages > 0 {
			c.add(9, "", "", "%d messages are left: %s", s.Messages, s.Name)
		}
	}
	for _, id := range c.h.Left.Endless {
		c.add(9, id, "", "is an active series without a future run")
	}
}
