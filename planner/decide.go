package planner

import (
	"time"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// verdict is what is to be done with a row that is due.
type verdict int8

const (
	verdictDispatch verdict = iota
	verdictSkip             // its policy says not to run it
	verdictFail             // its total deadline is over
)

// decision is a verdict with its reason; for a skip that stands for several occurrences, through and count say for which.
type decision struct {
	verdict verdict
	reason  string
	through time.Time
	count   int64
}

// countLimit bounds the work of counting missed occurrences; beyond it the count is a lower bound.
const countLimit = 100_000

// decide says what is to be done with a due row at a moment of database time. It is pure: rows and a time in, a decision out, so that a year of outages can be
// tried in a test. Overlap is not decided here: only the statement that marks a row can see the earlier run as it is then.
func decide(r *store.DueRow, now time.Time) decision {
	base := r.ScheduledAt
	if base.Before(r.JobCreatedAt) {
		base = r.JobCreatedAt
	}
	if d := r.Spec.TotalDeadline; d > 0 && !now.Before(base.Add(d)) {
		return decision{verdict: verdictFail, reason: "deadline"}
	}
	if r.Attempt > 1 || r.Origin != job.FromSchedule {
		return decision{}
	}
	// One that was handed out before has had its turn, and its successor may have been made: given back, snoozed or lost, it is not missed. Nor is one that an
	// update left over from the schedule before.
	if r.Recurring && r.Dispatch == 0 && !r.Followed {
		if d := missed(r, now); d.verdict != verdictDispatch {
			return d
		}
	}
	if d := r.Spec.StartDeadline; d > 0 && r.StartedAt.IsZero() && now.After(base.Add(d)) {
		return decision{verdict: verdictSkip, reason: "start_deadline"}
	}
	return decision{}
}

// missed applies the catch-up policy to an occurrence of a series that is late.
func missed(r *store.DueRow, now time.Time) decision {
	late := now.Sub(r.ScheduledAt)
	if late < time.Second { // the shortest period: no later occurrence can be due
		return decision{}
	}
	s := r.Spec.Schedule
	switch r.Spec.CatchUp {
	case job.CatchUpAll:
		return decision{}
	case job.CatchUpNone:
		until := now.Add(-job.CatchUpGrace)
		if r.ScheduledAt.After(until) {
			return decision{}
		}
		through, count := r.ScheduledAt, int64(1)
		if last, ok := s.Latest(r.ScheduledAt, until); ok {
			n, _ := s.Count(r.ScheduledAt, until, countLimit)
			through, count = last.At, 1+int64(n)
		}
		return decision{verdict: verdictSkip, reason: "missed", through: through, count: count}
	default:
		last, ok := s.Latest(r.ScheduledAt, now)
		if !ok {
			return decision{} // it is the latest itself
		}
		// All up to, and without, the latest: those after this one are one fewer than are due since.
		n, _ := s.Count(r.ScheduledAt, now, countLimit)
		through := r.ScheduledAt
		if before, ok := s.Latest(r.ScheduledAt, last.At.Add(-time.Microsecond)); ok {
			through = before.At
		}
		return decision{verdict: verdictSkip, reason: "missed", through: through, count: int64(max(n, 1))}
	}
}

// waitsForItsTurn tells whether an occurrence that overlaps an earlier run waits for its end instead of being skipped: it did not fall due while that went on,
// but is one of those that catch-up makes up for, one after another.
func waitsForItsTurn(r *store.DueRow, now time.Time) bool {
	return r.Spec.CatchUp == job.CatchUpAll && now.Sub(r.ScheduledAt) >= time.Second
}
