package harness

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/job/schedule"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

// work is what a job's command does.
type work struct {
	file  string
	child []string // argv of the child mode
	long  time.Duration
	fails int
	slow  int // attempts that run into their time-out; of calls only
	web   bool
	// murder: the command kills its executor.
	murder bool
}

// maker makes the jobs of one client.
type maker struct {
	rng   *rand.Rand
	file  string
	child []string
	// end is when the load ends; no series goes on for long after it.
	end time.Time
	// queues are those that its jobs may be put into, with the names that the checker has for them; none means the default one.
	queues []queueName
	// web is the address of the service that jobs of the kind http call; empty: there are none.
	web string
	// murders is how many jobs may still be made that kill their executor; nil: none.
	murders *atomic.Int64
}

// queueName is a queue as a job names it and as the checker does, which knows those of all namespaces.
type queueName struct{ name, full string }

func (m *maker) between(low, high time.Duration) time.Duration {
	return fault.Between(m.rng, low, high)
}

// one makes a one-time job of any sort.
func (m *maker) one(number int, now time.Time) (*waterclockv1.JobSpec, checker.Job) {
	w := work{file: m.file, child: m.child, long: m.between(0, 300*time.Millisecond)}
	j := checker.Job{Number: number, MaxAttempts: 3, Schedule: schedule.Schedule{Kind: schedule.Once, At: now}}
	switch m.rng.IntN(10) {
	case 0, 1, 2, 3: // now
	case 4, 5, 6:
		j.Schedule.At = now.Add(m.between(200*time.Millisecond, 8*time.Second))
	case 7:
		w.fails = 1 + m.rng.IntN(2)
	case 8: // fails for good
		w.fails, j.MaxAttempts = 9, 2
	default:
		w.long = m.between(time.Second, 4*time.Second)
		j.MaxAttempts = 50
	}
	if m.web != "" && m.rng.IntN(6) == 0 {
		w.web, w.long = true, min(w.long, 500*time.Millisecond)
		if w.fails == 0 && m.rng.IntN(3) == 0 {
			w.slow = 1 + m.rng.IntN(2)
		}
	}
	// A job of which nothing is known but that its process was killed must come to its end by succeeding: enough attempts for every fault of a run.
	if w.fails == 0 {
		j.MaxAttempts = 50
	}
	if m.murders != nil && now.Add(murderAhead).Before(m.end) && m.rng.IntN(12) == 0 && m.murders.Add(-1) >= 0 {
		// Late enough that the recorder knows of the start: one that dies with the word of it unsaid was never started, and costs no attempt.
		w = work{file: m.file, child: m.child, long: m.between(1500*time.Millisecond, 2500*time.Millisecond), murder: true}
		j.Doomed, j.MaxAttempts = true, 2
	}
	j.Fails, j.Schedule.At = int32(w.fails), j.Schedule.At.UTC().Truncate(time.Microsecond) //nolint:gosec // a few
	m.place(&j)
	return m.spec(j, w), j
}

// murderAhead is how long before the end of the load the last job is made that kills its executor: both of its attempts end before.
const murderAhead = 15 * time.Second

// place puts a job into a queue.
func (m *maker) place(j *checker.Job) {
	if len(m.queues) > 0 {
		j.Queue = fault.Pick(m.rng, m.queues).full
	}
}

// series makes a recurring job.
func (m *maker) series(number int, now time.Time) (*waterclockv1.JobSpec, checker.Job) {
	period := m.between(time.Second, 3*time.Second).Truncate(time.Millisecond)
	j := checker.Job{
		Number: number, MaxAttempts: 50, Overlap: fault.Pick(m.rng, []string{"forbid", "allow"}), CatchUp: fault.Pick(m.rng, []string{"latest", "all", "none"}),
		Schedule: m.every(period, now.Add(m.between(0, time.Second)), m.between(5*time.Second, 25*time.Second)),
	}
	w := work{file: m.file, child: m.child, long: m.between(0, 200*time.Millisecond)}
	// Now and then longer than its period; not where each missed one waits for the one before, as what an outage leaves then takes longer than the outage did.
	if m.rng.IntN(3) == 0 && (j.CatchUp != "all" || j.Overlap == "allow") {
		w.long = m.between(period/2, period*3/2)
	}
	if m.rng.IntN(4) == 0 {
		j.Schedule.Jitter = m.between(50*time.Millisecond, 600*time.Millisecond).Truncate(time.Millisecond)
	}
	m.place(&j)
	return m.spec(j, w), j
}

// minutely makes a series by cron, which fires each minute; false where none of its times is within the load.
func (m *maker) minutely(number int, now time.Time) (*waterclockv1.JobSpec, checker.Job, bool) {
	end := m.end.Add(2 * time.Second).UTC().Truncate(time.Microsecond)
	next := now.Truncate(time.Minute).Add(time.Minute)
	if next.Sub(now) < time.Second || !next.Before(end) {
		return nil, checker.Job{}, false
	}
	j := checker.Job{Number: number, MaxAttempts: 50, Overlap: "forbid", CatchUp: "latest", Schedule: schedule.Schedule{
		Kind: schedule.Cron, Spec: fault.Pick(m.rng, []string{"* * * * *", "*/1 * * * *", "0-59 * * * *"}), Zone: "Europe/Berlin", End: end,
	}}
	m.place(&j)
	return m.spec(j, work{file: m.file, child: m.child, long: m.between(0, 200*time.Millisecond)}), j, true
}

func (m *maker) every(period time.Duration, anchor time.Time, long time.Duration) schedule.Schedule {
	anchor = anchor.UTC().Truncate(time.Microsecond)
	end := anchor.Add(long)
	if last := m.end.Add(2 * time.Second); end.After(last) {
		end = last
	}
	if !end.After(anchor) {
		end = anchor.Add(time.Millisecond) // one occurrence
	}
	return schedule.Schedule{Kind: schedule.Every, Period: period, Anchor: anchor, End: end.UTC().Truncate(time.Microsecond)}
}

func (m *maker) spec(j checker.Job, w work) *waterclockv1.JobSpec {
	if w.web {
		return m.wrap(j, "http", map[string]any{"method": "POST", "url": webURL(m.web, j.Number, w)}, w)
	}
	argv := []any{}
	for _, arg := range w.child {
		argv = append(argv, arg)
	}
	for _, arg := range []string{"--file", w.file, "--number", fmt.Sprint(j.Number), "--work", w.long.String(), "--fails", fmt.Sprint(w.fails)} {
		argv = append(argv, arg)
	}
	if w.murder {
		argv = append(argv, "--murder")
	}
	return m.wrap(j, "exec", map[string]any{"argv": argv}, w)
}

func (m *maker) wrap(j checker.Job, kind string, in map[string]any, w work) *waterclockv1.JobSpec {
	input, err := structpb.NewValue(in)
	if err != nil {
		panic(err) // of strings
	}
	s := &waterclockv1.JobSpec{
		Kind: kind, Input: &waterclockv1.JobSpec_Json{Json: input}, Schedule: protoSchedule(j.Schedule),
		Priority: waterclockv1.Priority(1 + m.rng.IntN(4)),
		Retry:    &waterclockv1.RetryPolicy{MaxAttempts: j.MaxAttempts, InitialBackoff: durationpb.New(200 * time.Millisecond), MaxBackoff: durationpb.New(time.Second)},
	}
	if j.Overlap == "allow" {
		s.Overlap = waterclockv1.Overlap_OVERLAP_ALLOW
	}
	switch j.CatchUp {
	case "all":
		s.CatchUp = waterclockv1.CatchUp_CATCH_UP_ALL
	case "none":
		s.CatchUp = waterclockv1.CatchUp_CATCH_UP_NONE
	}
	if w.slow > 0 {
		s.AttemptTimeout = durationpb.New(slowLimit)
	}
	for _, q := range m.queues {
		if q.full == j.Queue {
			s.Queue = q.name
		}
	}
	return s
}

func protoSchedule(s schedule.Schedule) *waterclockv1.Schedule {
	if s.Kind == schedule.Once {
		return &waterclockv1.Schedule{Kind: &waterclockv1.Schedule_Once{Once: &waterclockv1.Once{At: timestamppb.New(s.At)}}}
	}
	out := &waterclockv1.Schedule{
		Kind: &waterclockv1.Schedule_Every{Every: &waterclockv1.Every{Period: durationpb.New(s.Period), Anchor: timestamppb.New(s.Anchor)}},
		End:  timestamppb.New(s.End),
	}
	if s.Kind == schedule.Cron {
		out.Kind = &waterclockv1.Schedule_Cron{Cron: &waterclockv1.Cron{Spec: s.Spec, Zone: s.Zone}}
	}
	if s.Jitter > 0 {
		out.Jitter = durationpb.New(s.Jitter)
	}
	return out
}
