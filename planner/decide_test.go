package planner

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/store"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func minutely() schedule.Schedule {
	return schedule.Schedule{Kind: schedule.Every, Period: time.Minute, Anchor: noon.Add(-24 * time.Hour)}
}

// dueAt is the row of a series' occurrence as its first attempt.
func dueAt(s schedule.Schedule, nominal time.Time, change func(*store.DueRow)) *store.DueRow {
	j := &job.Job{ID: uuid.New(), Version: 1, State: job.Active, Spec: job.Spec{Schedule: s}}
	r := &store.DueRow{Timer: store.NewTimer(j, schedule.Occurrence{At: nominal}, nominal), Spec: j.Spec, JobCreatedAt: noon.Add(-24 * time.Hour)}
	if change != nil {
		change(r)
	}
	return r
}

func TestDecide(t *testing.T) {
	t.Parallel()
	dispatch := decision{}
	missed := func(through time.Time, count int64) decision { return decision{verdictSkip, "missed", through, count} }
	late := decision{verdict: verdictSkip, reason: "start_deadline"}
	over := decision{verdict: verdictFail, reason: "deadline"}
	catchUp := func(c job.CatchUp) func(*store.DueRow) { return func(r *store.DueRow) { r.Spec.CatchUp = c } }
	once := schedule.Schedule{Kind: schedule.Once, At: noon}
	min := time.Minute
	for _, c := range []struct {
		name   string
		s      schedule.Schedule
		late   time.Duration
		change func(*store.DueRow)
		want   decision
	}{
		{"in time", minutely(), 0, nil, dispatch},
		{"once, a year late", once, 8760 * time.Hour, nil, dispatch},
		{"latest: its period is not over", minutely(), min - time.Microsecond, nil, dispatch},
		{"latest: the next is due", minutely(), min, nil, missed(noon, 1)},
		{"latest: five periods late", minutely(), 5*min + time.Second, nil, missed(noon.Add(4*min), 5)},
		{"all: five periods late", minutely(), 5 * min, catchUp(job.CatchUpAll), dispatch},
		{"none: within the grace", minutely(), min - time.Microsecond, catchUp(job.CatchUpNone), dispatch},
		{"none: at the grace", minutely(), min, catchUp(job.CatchUpNone), missed(noon, 1)},
		{"none: five periods late", minutely(), 5 * min, catchUp(job.CatchUpNone), missed(noon.Add(4*min), 5)},
		{"a retry is never missed", minutely(), time.Hour, func(r *store.DueRow) { r.Attempt = 2 }, dispatch},
		{"a trigger is never missed", minutely(), time.Hour, func(r *store.DueRow) { r.Origin = job.FromTrigger }, dispatch},
		{"a run that was given back is never missed", minutely(), time.Hour, func(r *store.DueRow) { r.Dispatch = 1 }, dispatch},
		{"a snoozed run of a series without catch-up", minutely(), time.Hour, func(r *store.DueRow) { r.Dispatch, r.Spec.CatchUp = 1, job.CatchUpNone }, dispatch},
		{"start deadline: just in time", once, min, func(r *store.DueRow) { r.Spec.StartDeadline = min }, dispatch},
		{"start deadline: over", once, min + 1, func(r *store.DueRow) { r.Spec.StartDeadline = min }, late},
		{"start deadline of a retry", once, time.Hour, func(r *store.DueRow) { r.Spec.StartDeadline, r.Attempt = min, 2 }, dispatch},
		{"start deadline of what was given back before it began", once, time.Hour, func(r *store.DueRow) { r.Spec.StartDeadline, r.Dispatch = min, 1 }, late},
		{"start deadline of what had begun, snoozed", once, time.Hour, func(r *store.DueRow) {
			r.Spec.StartDeadline, r.Dispatch, r.StartedAt = min, 1, noon
		}, dispatch},
		{"start deadline from the making of a job in the past", once, time.Hour, func(r *store.DueRow) {
			r.Spec.StartDeadline, r.JobCreatedAt = min, noon.Add(time.Hour)
		}, dispatch},
		{"missed goes before the start deadline", minutely(), 2 * min, func(r *store.DueRow) { r.Spec.StartDeadline = time.Second }, missed(noon.Add(min), 2)},
		{"total deadline: just in time", once, min - 1, func(r *store.DueRow) { r.Spec.TotalDeadline = min }, dispatch},
		{"total deadline: over", once, min, func(r *store.DueRow) { r.Spec.TotalDeadline = min }, over},
		{"total deadline of a retry", once, min, func(r *store.DueRow) { r.Spec.TotalDeadline, r.Attempt = min, 3 }, over},
		{"total deadline of a trigger", once, min, func(r *store.DueRow) { r.Spec.TotalDeadline, r.Origin = min, job.FromTrigger }, over},
		{"total deadline from the making of a job in the past", once, time.Hour, func(r *store.DueRow) {
			r.Spec.TotalDeadline, r.JobCreatedAt = min, noon.Add(time.Hour-min+1)
		}, dispatch},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := decide(dueAt(c.s, noon, c.change), noon.Add(c.late)); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// account is the ledger of a series: every occurrence must get into it exactly once.
type account struct {
	t       *rapid.T
	s       schedule.Schedule
	entries map[time.Time]string
}

func (a *account) enter(at time.Time, what string) {
	if was := a.entries[at]; was != "" {
		a.t.Fatalf("%s is accounted for as %s and again as %s", at, was, what)
	}
	a.entries[at] = what
}

func (a *account) skip(from time.Time, d decision) {
	occ, _ := a.s.Between(from.Add(-time.Microsecond), d.through, 200_000)
	if int64(len(occ)) != d.count || !occ[len(occ)-1].At.Equal(d.through) {
		a.t.Fatalf("a skip from %s through %s says %d, and holds %d", from, d.through, d.count, len(occ))
	}
	for _, o := range occ {
		a.enter(o.At, "skipped")
	}
}

// A year of a series with outages, late planners and runs that come back: what was expected is accounted for, once each.
func TestAYearIsAccountedFor(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rapid.Int64Range(0, int64(1000*24*time.Hour)).Draw(t, "start")).Truncate(time.Microsecond))
		span := 366 * 24 * time.Hour
		var s schedule.Schedule
		if rapid.Bool().Draw(t, "cron") {
			s = schedule.Schedule{
				Kind: schedule.Cron, Start: start, Zone: rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"}).Draw(t, "zone"),
				Spec: rapid.SampledFrom([]string{"30 2 * * *", "0 */3 * * *", "15 6 1 * *", "@hourly", "0 0 * * 1-5", "30 1,2,3 * * 0"}).Draw(t, "spec"),
			}
		} else {
			s = schedule.Schedule{Kind: schedule.Every, Period: time.Duration(rapid.Int64Range(1, 100_000).Draw(t, "seconds")) * time.Second, Anchor: start}
			span = min(span, 2000*s.Period)
		}
		catchUp := rapid.SampledFrom([]job.CatchUp{"", job.CatchUpLatest, job.CatchUpAll, job.CatchUpNone}).Draw(t, "catch-up")
		j := &job.Job{ID: uuid.New(), Version: 1, State: job.Active, Spec: job.Spec{Schedule: s, CatchUp: catchUp}, CreatedAt: start}
		outage := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(span/4)).Draw(t, "outage")).Truncate(time.Microsecond)
		})
		a := &account{t, s, map[time.Time]string{}}
		end := start.Add(span)
		occ, ok := s.First()
		now := start
		for ok && !occ.At.After(end) {
			row := &store.DueRow{Timer: store.NewTimer(j, occ, now), Spec: j.Spec, JobCreatedAt: start}
			if now.Before(row.DueAt) {
				now = row.DueAt
			}
			if rapid.IntRange(0, 19).Draw(t, "luck") == 0 {
				now = now.Add(outage.Draw(t, "away"))
			}
			through := occ.At
			if d := decide(row, now); d.verdict == verdictSkip {
				a.skip(occ.At, d)
				through = d.through
				if catchUp == job.CatchUpAll {
					t.Fatalf("%s is skipped (%s), and all are to be run", occ.At, d.reason)
				}
			} else {
				a.enter(occ.At, "dispatched")
				if later, more := s.Latest(occ.At, now); more && (catchUp == "" || catchUp == job.CatchUpLatest) && now.Sub(occ.At) >= time.Second {
					t.Fatalf("%s is dispatched at %s, when %s was due", occ.At, now, later.At)
				}
				if catchUp == job.CatchUpNone && now.Sub(occ.At) > job.CatchUpGrace {
					t.Fatalf("%s is dispatched at %s", occ.At, now)
				}
				// It may come back (snoozed, given back, lost), after its successor was made.
				row.Timer = store.Again(row.Timer, j, now, 1)
				row.Dispatch++
				if d := decide(row, now.Add(outage.Draw(t, "snoozed"))); d.verdict != verdictDispatch {
					t.Fatalf("%s was dispatched, came back, and is %+v", occ.At, d)
				}
			}
			occ, ok = s.Next(through)
		}
		expected, _ := s.Between(start.Add(-time.Microsecond), end, 200_000)
		for _, o := range expected {
			if a.entries[o.At] == "" {
				t.Fatalf("%s is not accounted for", o.At)
			}
			delete(a.entries, o.At)
		}
		for at := range a.entries {
			if !at.After(end) { // a skip may reach past the end
				t.Fatalf("%s is in the ledger, and not in the schedule", at)
			}
		}
	})
}
