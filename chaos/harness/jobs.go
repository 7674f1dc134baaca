package harness

import (
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/job/schedule"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

// work is what a job's command does.
type work struct {
	file  string
	child []string // argv of the child mode
	long  time.Duration
	fails int
}

// maker makes the jobs of one client.
type maker struct {
	rng   *rand.Rand
	file  string
	child []string
	// end is when the load ends; no series goes on for long after it.
	end time.Time
}

func (m *maker) between(low, high time.Duration) time.Duration {
	return low + time.Duration(m.rng.Int64N(int64(high-low)))
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
	// A job of which nothing is known but that its process was killed must come to its end by succeeding: enough attempts for every fault of a run.
	if w.fails == 0 {
		j.MaxAttempts = 50
	}
	j.Schedule.At = j.Schedule.At.UTC().Truncate(time.Microsecond)
	return m.spec(j, w), j
}

// series makes a recurring job.
func (m *maker) series(number int, now time.Time) (*waterclockv1.JobSpec, checker.Job) {
	period := m.between(time.Second, 3*time.Second).Truncate(time.Millisecond)
	j := checker.Job{
		Number: number, MaxAttempts: 50, Overlap: []string{"forbid", "allow"}[m.rng.IntN(2)], CatchUp: []string{"latest", "all"}[m.rng.IntN(2)],
		Schedule: m.every(period, now.Add(m.between(0, time.Second)), m.between(5*time.Second, 25*time.Second)),
	}
	w := work{file: m.file, child: m.child, long: m.between(0, 200*time.Millisecond)}
	if m.rng.IntN(3) == 0 { // now and then longer than its period
		w.long = m.between(period/2, period*3/2)
	}
	return m.spec(j, w), j
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
	argv := []any{}
	for _, arg := range w.child {
		argv = append(argv, arg)
	}
	for _, arg := range []string{"--file", w.file, "--number", fmt.Sprint(j.Number), "--work", w.long.String(), "--fails", fmt.Sprint(w.fails)} {
		argv = append(argv, arg)
	}
	input, err := structpb.NewValue(map[string]any{"argv": argv})
	if err != nil {
		panic(err) // of strings
	}
	s := &waterclockv1.JobSpec{
		Kind: "exec", Input: &waterclockv1.JobSpec_Json{Json: input}, Schedule: protoSchedule(j.Schedule),
		Priority: waterclockv1.Priority(1 + m.rng.IntN(4)),
		Retry:    &waterclockv1.RetryPolicy{MaxAttempts: j.MaxAttempts, InitialBackoff: durationpb.New(200 * time.Millisecond), MaxBackoff: durationpb.New(time.Second)},
	}
	if j.Overlap == "allow" {
		s.Overlap = waterclockv1.Overlap_OVERLAP_ALLOW
	}
	if j.CatchUp == "all" {
		s.CatchUp = waterclockv1.CatchUp_CATCH_UP_ALL
	}
	return s
}

func protoSchedule(s schedule.Schedule) *waterclockv1.Schedule {
	if s.Kind == schedule.Once {
		return &waterclockv1.Schedule{Kind: &waterclockv1.Schedule_Once{Once: &waterclockv1.Once{At: timestamppb.New(s.At)}}}
	}
	return &waterclockv1.Schedule{
		Kind: &waterclockv1.Schedule_Every{Every: &waterclockv1.Every{Period: durationpb.New(s.Period), Anchor: timestamppb.New(s.Anchor)}},
		End:  timestamppb.New(s.End),
	}
}
