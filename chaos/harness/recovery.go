package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"connectrpc.com/connect"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/job/schedule"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

const (
	// flowEvery is the time between two jobs of the steady flow; each is due flowAhead after it was submitted.
	flowEvery = 40 * time.Millisecond
	flowAhead = 3 * time.Second
	// longWork is how long each tenth of them works, so that a kill of an executor finds some at work.
	longWork = 2 * time.Second
	// settled is how long after a fault the next comes: what was late because of the first has been seen by then.
	settled = 20 * time.Second
)

// Recovery is how long it took until work went on after faults of one kind, each brought alone.
type Recovery struct {
	Kind string
	// Starts is the worst lateness of a start after each fault: of jobs that fell due during it, counted from its end, and after it, counted from their time.
	Starts []time.Duration
	// Again is how long the interrupted runs of each fault waited for their next start, from the beginning of the fault; empty where none was interrupted.
	Again []time.Duration
	// Submits is the longest submit around each fault, counted from its end where it began before.
	Submits []time.Duration
}

// Measure brings each kind of fault several times, alone, upon a world with a steady flow of jobs, and returns how long it took until work went on.
func Measure(ctx context.Context, o Options, kinds []string, times int) ([]Recovery, error) {
	r, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	out, err := r.measure(ctx, kinds, times)
	return out, errors.Join(err, r.close())
}

// sent is a job of the steady flow.
type sent struct {
	number       int
	due          time.Time
	asked, given time.Time // of its submit
}

func (r *rig) measure(ctx context.Context, kinds []string, times int) ([]Recovery, error) {
	byKind := map[string][]fault.Fault{}
	for _, f := range r.offered() {
		byKind[f.Kind] = append(byKind[f.Kind], f)
	}
	for _, k := range kinds {
		if len(byKind[k]) == 0 {
			return nil, fmt.Errorf("kind of fault: given %q, allowed: %v", k, slices.Sorted(maps.Keys(byKind)))
		}
	}
	flow, stop := context.WithCancel(ctx)
	defer stop()
	var jobs []sent
	var wg sync.WaitGroup
	wg.Go(func() { jobs = r.flow(flow) })
	windows := map[string][]checker.Window{}
	rng := r.source(7)
	err := fault.Wait(ctx, settled)
	for n := 0; n < times && err == nil; n++ {
		for _, k := range kinds {
			from := time.Now()
			if err = byKind[k][n%len(byKind[k])].Bring(ctx, rng); err != nil {
				break
			}
			windows[k] = append(windows[k], checker.Window{From: from, Till: time.Now()})
			r.world.note("measured: %s", k)
			if err = fault.Wait(ctx, settled); err != nil {
				break
			}
		}
	}
	stop()
	wg.Wait()
	if err != nil {
		return nil, err
	}
	lines, err := r.lines()
	if err != nil {
		return nil, err
	}
	var out []Recovery
	for _, k := range kinds {
		rec := Recovery{Kind: k}
		for _, w := range windows[k] {
			rec.add(w, jobs, lines)
		}
		out = append(out, rec)
	}
	return out, nil
}

// flow submits a job every so often, each in a goroutine of its own so that one that waits holds up no other, until it is told to stop.
func (r *rig) flow(ctx context.Context) []sent {
	m := &maker{rng: r.source(8), file: r.file, child: r.o.Child}
	var mu sync.Mutex
	var out []sent
	var wg sync.WaitGroup
	tick := time.NewTicker(flowEvery)
	defer tick.Stop()
	for number := 1; ; number++ {
		select {
		case <-ctx.Done():
			wg.Wait()
			return out
		case <-tick.C:
		}
		s := sent{number: number, asked: time.Now()}
		s.due = s.asked.Add(flowAhead).UTC().Truncate(time.Microsecond)
		w := work{file: r.file, child: r.o.Child}
		if number%10 == 0 {
			w.long = longWork
		}
		spec := m.spec(checker.Job{Number: number, MaxAttempts: 50, Schedule: schedule.Schedule{Kind: schedule.Once, At: s.due}}, w)
		c := r.traffic.clients[number%len(r.traffic.clients)]
		wg.Go(func() {
			if c.submitFlow(ctx, spec, fmt.Sprintf("flow-%d", number)) {
				s.given = time.Now()
			}
			mu.Lock()
			defer mu.Unlock()
			out = append(out, s)
		})
	}
}

// add takes what one fault did to the flow.
func (rec *Recovery) add(w checker.Window, jobs []sent, lines []checker.Line) {
	first := map[int]time.Time{}
	last := map[string]checker.Line{} // of each session that is not over
	var starts, submits, again time.Duration
	for _, l := range lines {
		if _, known := first[l.Number]; !known && l.Kind == checker.Start {
			first[l.Number] = l.At
		}
		if before, open := last[l.RunID]; open && l.Kind == checker.Start && l.Dispatch > before.Dispatch && before.At.After(w.From.Add(-time.Second)) && before.At.Before(w.Till.Add(settled)) {
			again = max(again, l.At.Sub(w.From))
		}
		if last[l.RunID] = l; l.Kind == checker.End {
			delete(last, l.RunID)
		}
	}
	end := w.Till.Add(settled - flowAhead)
	for _, s := range jobs {
		if s.due.After(w.From) && s.due.Before(end) {
			from := s.due
			if w.Till.After(from) {
				from = w.Till
			}
			if at, began := first[s.number]; began {
				starts = max(starts, at.Sub(from))
			} else if !s.given.IsZero() {
				starts = max(starts, end.Sub(from)) // at least
			}
		}
		if s.given.After(w.From) && s.asked.Before(end) {
			from := s.asked
			if w.Till.After(from) {
				from = w.Till
			}
			submits = max(submits, s.given.Sub(from))
		}
	}
	rec.Starts, rec.Submits = append(rec.Starts, starts), append(rec.Submits, submits)
	if again > 0 {
		rec.Again = append(rec.Again, again)
	}
}

// PrintRecoveries writes a table in Markdown.
func PrintRecoveries(w io.Writer, all []Recovery) error {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(t, "| fault\t| times\t| starts: median\t| worst\t| interrupted runs start again: median\t| worst\t| submits: median\t| worst\t|") // errors come with Flush
	fmt.Fprintln(t, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	two := func(d []time.Duration) string {
		if len(d) == 0 {
			return "–\t| –"
		}
		d = slices.Sorted(slices.Values(d))
		return fmt.Sprintf("%s\t| %s", d[len(d)/2].Round(time.Millisecond), d[len(d)-1].Round(time.Millisecond))
	}
	for _, rec := range all {
		fmt.Fprintf(t, "| %s\t| %d\t| %s\t| %s\t| %s\t|\n", rec.Kind, len(rec.Starts), two(rec.Starts), two(rec.Again), two(rec.Submits))
	}
	return t.Flush()
}

// submitFlow submits until it is answered, and tells whether it was.
func (c *client) submitFlow(ctx context.Context, spec *waterclockv1.JobSpec, key string) bool {
	return c.insistent(ctx, "submit", func(ctx context.Context) error {
		_, err := c.jobs.SubmitJob(ctx, connect.NewRequest(&waterclockv1.SubmitJobRequest{Spec: spec, IdempotencyKey: key}))
		return err
	}).ok
}
