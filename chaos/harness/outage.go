package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"connectrpc.com/connect"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/job/schedule"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

// Outage is what came of a time in which SQL was away.
type Outage struct {
	Away time.Duration
	// Long runs worked all the time, Short ones ended while SQL was away, and Backlog fell due meanwhile.
	Long, Short, Backlog int
	// Refused counts submits that were answered with an error, by its code, and RefusedWithin is the longest that one of them took.
	Refused       map[string]int
	RefusedWithin time.Duration
	// FirstStart is how long after its return the first run of the backlog began, and Drained when the last had.
	FirstStart, Drained time.Duration
	// FreshWorst is how late the jobs began that were submitted after the return, while the backlog drained.
	FreshWorst time.Duration
	Violations []checker.Violation
	Failures   []string
}

// Failed tells whether anything is wrong.
func (o *Outage) Failed() bool { return len(o.Violations)+len(o.Failures) > 0 }

const (
	longRuns    = 6
	shortRuns   = 12
	backlogRuns = 1000
	freshRuns   = 50
)

// TakeSQLAway kills the database of a cluster, lets it be away for a time, and holds what came of it against what is promised.
func TakeSQLAway(ctx context.Context, o Options, away time.Duration) (*Outage, error) {
	if o.Store != "postgres" {
		return nil, fmt.Errorf("store: given %q, allowed: postgres; the database of a single host goes with its process", o.Store)
	}
	o.For = away + time.Hour // no series is made here that could end
	r, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	out, err := r.takeSQLAway(ctx, away)
	return out, errors.Join(err, r.close())
}

func (r *rig) takeSQLAway(ctx context.Context, away time.Duration) (*Outage, error) {
	d, is := r.world.(*deployment)
	if !is {
		return nil, errors.New("there is no database to take away")
	}
	sql := d.cluster.Process("sql")
	out := &Outage{Away: away, Long: longRuns, Short: shortRuns, Backlog: backlogRuns, Refused: map[string]int{}}
	c := r.traffic.clients[0]
	now := time.Now()
	number := 0
	submit := func(n int, at func(i int) time.Time, long time.Duration) {
		for i := range n {
			number++
			j := checker.Job{Number: number, MaxAttempts: 1, Schedule: schedule.Schedule{Kind: schedule.Once, At: at(i).UTC().Truncate(time.Microsecond)}}
			spec := c.maker.spec(j, work{file: r.file, child: r.o.Child, long: long})
			spec.Priority = waterclockv1.Priority_PRIORITY_NORMAL // else what is submitted after the return waits for what is more urgent, as it should
			c.send(ctx, spec, j)
		}
	}
	// One attempt each: a run that is killed, or lost, fails for good and is seen.
	const lead = 12 * time.Second
	submit(backlogRuns, func(i int) time.Time { return now.Add(lead + 2*time.Second + away*time.Duration(i)/backlogRuns) }, 0)
	submit(longRuns, func(int) time.Time { return time.Now() }, away+lead)
	if err := fault.Wait(ctx, time.Until(now.Add(lead-time.Second))); err != nil {
		return nil, err
	}
	submit(shortRuns, func(int) time.Time { return time.Now() }, 4*time.Second)
	if err := fault.Wait(ctx, time.Second); err != nil {
		return nil, err
	}
	if err := sql.Kill(); err != nil {
		return nil, err
	}
	gone := time.Now()
	valid := checker.Job{Number: -1, MaxAttempts: 1, Schedule: schedule.Schedule{Kind: schedule.Once, At: gone.Add(time.Hour)}}
	for n := 0; time.Since(gone) < away; n++ {
		begun := time.Now()
		_, err := c.jobs.SubmitJob(ctx, connect.NewRequest(&waterclockv1.SubmitJobRequest{IdempotencyKey: fmt.Sprintf("refused-%d", n), Spec: c.maker.spec(valid, work{file: r.file, child: r.o.Child})}))
		took := time.Since(begun)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err == nil:
			out.Failures = append(out.Failures, "a submit was acknowledged while SQL was away")
		default:
			out.Refused[connect.CodeOf(err).String()]++
			out.RefusedWithin = max(out.RefusedWithin, took)
		}
		if err := fault.Wait(ctx, time.Second); err != nil {
			return nil, err
		}
	}
	if err := sql.Start(ctx); err != nil {
		return nil, err
	}
	back := time.Now()
	first := number + 1
	submit(freshRuns, func(int) time.Time { return time.Now() }, 0)
	return out, r.judgeOutage(ctx, out, checker.Window{From: gone, Till: back}, first)
}

// judgeOutage waits until all is over, and tells how it went.
func (r *rig) judgeOutage(ctx context.Context, out *Outage, w checker.Window, fresh int) error {
	h := &checker.History{}
	_, failures, err := r.gather(ctx, h, time.Now().Add(time.Minute))
	if err != nil {
		return err
	}
	out.Failures = append(out.Failures, failures...)
	out.Violations = checker.Check(h)
	due := map[int]time.Time{}
	for i := range h.Jobs {
		j := &h.Jobs[i]
		due[j.Number] = j.Schedule.At
		if at := j.Answered; j.Number >= fresh && at.After(due[j.Number]) {
			due[j.Number] = at
		}
		if !slices.ContainsFunc(j.Runs, func(run checker.Run) bool { return run.State == "succeeded" && len(run.Attempts) == 1 }) {
			out.Failures = append(out.Failures, fmt.Sprintf("job %d (%s) did not succeed at the first attempt: %+v", j.Number, j.ID, j.Runs))
		}
	}
	out.FirstStart = -1
	for _, l := range h.Work {
		if l.Kind != checker.Start || l.At.Before(w.Till) {
			continue
		}
		since := l.At.Sub(w.Till)
		if l.Number >= fresh {
			out.FreshWorst = max(out.FreshWorst, l.At.Sub(due[l.Number]))
			continue
		}
		if out.FirstStart < 0 || since < out.FirstStart {
			out.FirstStart = since
		}
		out.Drained = max(out.Drained, since)
	}
	return nil
}

// Print writes it as a table.
func (o *Outage) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "SQL away\t%s\n", o.Away) // errors come with Flush
	fmt.Fprintf(t, "runs\t%d worked all the time, %d ended meanwhile, %d fell due meanwhile\n", o.Long, o.Short, o.Backlog)
	fmt.Fprintf(t, "submits meanwhile\trefused %v, within %s\n", o.Refused, o.RefusedWithin.Round(time.Millisecond))
	fmt.Fprintf(t, "after its return\tfirst start %s, backlog started %s, a job submitted meanwhile began %s late at worst\n",
		o.FirstStart.Round(time.Millisecond), o.Drained.Round(time.Millisecond), o.FreshWorst.Round(time.Millisecond))
	fmt.Fprintf(t, "violations\t%d\n", len(o.Violations))
	if err := t.Flush(); err != nil {
		return err
	}
	return printWrong(w, o.Violations, o.Failures)
}
