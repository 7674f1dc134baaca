package harness

import (
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/job/schedule"
)

// Report is what came of a fault run.
type Report struct {
	Seed uint64
	// Brought and Landed count faults by kind; Unavailable are those that cannot be brought here, with the reason.
	Brought     map[string]int
	Landed      map[string]int
	Unavailable []string
	// NotReached are failpoints that no process passed while it was armed.
	NotReached []string
	Jobs       int
	Series     int
	Changes    int
	Runs       int
	Skips      int64
	Starts     int
	Seen       int
	QuietAfter time.Duration
	// WentOn is how long the process had to be there after faults until a command began.
	WentOn     []time.Duration
	Handovers  checker.Handovers
	Excused    map[checker.ChangeKind]int
	Violations []checker.Violation
	// Failures are reasons why the run failed beside violations.
	Failures []string
	// Odd are answers that no client should get, and errors in the log of the process, by text.
	Odd map[string]int
}

// Failed tells whether anything is wrong.
func (r *Report) Failed() bool { return len(r.Violations)+len(r.Failures) > 0 }

func (r *rig) report(h *checker.History, quietAfter time.Duration) *Report {
	rep := &Report{
		Seed: r.o.Seed, Brought: r.nemesis.brought, Landed: r.nemesis.landed, Unavailable: r.unavailable(), Jobs: len(h.Jobs), Seen: len(h.Seen),
		QuietAfter: quietAfter, Odd: map[string]int{}, Violations: checker.Check(h),
	}
	if len(rep.Landed) == 0 {
		rep.Failures = append(rep.Failures, "no fault landed")
	}
	for _, kind := range r.nemesis.never() {
		// Whether one of several processes passes a point within some seconds is up to chance; not so where the point was asked for by name.
		if strings.HasPrefix(kind, "failpoint ") && !slices.Contains(r.o.Faults, kind) {
			rep.NotReached = append(rep.NotReached, kind)
			continue
		}
		rep.Failures = append(rep.Failures, fmt.Sprintf("brought %d times and never landed: %s", rep.Brought[kind], kind))
	}
	for i := range h.Jobs {
		j := &h.Jobs[i]
		if j.Schedule.Kind != schedule.Once {
			rep.Series++
		}
		rep.Changes += len(j.Changes)
		for k := range j.Runs {
			if j.Runs[k].State == "skipped" {
				rep.Skips += j.Runs[k].Count
			} else {
				rep.Runs++
			}
		}
	}
	for what, n := range r.traffic.odd() {
		rep.Odd["client: "+what] += n
	}
	var starts []time.Time
	for _, l := range h.Work {
		if l.Kind == checker.Start {
			starts = append(starts, l.At)
		}
	}
	rep.Starts = len(starts)
	slices.SortFunc(starts, time.Time.Compare)
	rep.Handovers, rep.Excused = checker.HandoversOf(h), checker.Excused(h)
	if r.lanes() == 1 { // else there is hardly a moment without a fault
		rep.WentOn = wentOn(r.nemesis.windows, starts)
		slices.Sort(rep.WentOn)
	}
	for _, path := range r.world.logs() {
		rep.scanLog(path)
	}
	return rep
}

// wentOn measures from the end of an outage to the next start of a command. Where another outage comes before one, only the time between them counts, and
// goes on counting after it. The starts are in order.
func wentOn(outages []window, starts []time.Time) []time.Duration {
	var out []time.Duration
	var waited time.Duration
	outages = slices.SortedFunc(slices.Values(outages), func(a, b window) int { return a.From.Compare(b.From) })
	for n, o := range outages {
		i, _ := slices.BinarySearchFunc(starts, o.Till, time.Time.Compare)
		last := n+1 == len(outages)
		switch {
		case i < len(starts) && (last || starts[i].Before(outages[n+1].From)):
			out = append(out, waited+starts[i].Sub(o.Till))
			waited = 0
		case !last:
			waited += max(outages[n+1].From.Sub(o.Till), 0)
		}
	}
	return out
}

var message = regexp.MustCompile(`level=(ERROR|WARN) msg=("(?:[^"\\]|\\.)*"|\S+)`)

// scanLog counts what the process complained of; a panic is a failure whatever else held.
func (r *Report) scanLog(path string) {
	b, err := os.ReadFile(path)
	if err != nil {
		r.Failures = append(r.Failures, err.Error())
		return
	}
	for line := range strings.Lines(string(b)) { // of any length
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			r.Failures = append(r.Failures, "the process died by itself: "+line)
		}
		if strings.Contains(line, "address already in use") {
			r.Odd["log: a start found its address in use"]++
		}
		if m := message.FindStringSubmatch(line); m != nil {
			r.Odd["log: "+m[1]+" "+m[2]]++
		}
	}
}

// Print writes the report as a table.
func (r *Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) } // errors come with Flush
	row("seed", "%d", r.Seed)
	total, most := 0, 0
	for _, n := range r.Landed {
		total, most = total+n, max(most, n)
	}
	row("faults", "%d landed, of %d kinds, %d of the most frequent", total, len(r.Landed), most)
	for _, kind := range slices.Sorted(maps.Keys(r.Brought)) {
		row("", "%d of %d: %s", r.Landed[kind], r.Brought[kind], kind)
	}
	for _, kind := range r.NotReached {
		row("NOT REACHED", "%s", kind)
	}
	for _, why := range r.Unavailable {
		row("NOT BROUGHT HERE", "%s", why)
	}
	row("jobs", "%d, of which %d recurring; %d changes acknowledged", r.Jobs, r.Series, r.Changes)
	row("occurrences", "%d run, %d skipped; %d commands started", r.Runs, r.Skips, r.Starts)
	row("history rows read under way", "%d", r.Seen)
	row("quiet", "%s after the last was due", r.QuietAfter.Round(10*time.Millisecond))
	if n := len(r.WentOn); n > 0 {
		row("work went on", "median %s, worst %s of the process being there after %d outages",
			r.WentOn[n/2].Round(time.Millisecond), r.WentOn[n-1].Round(time.Millisecond), n)
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Excused)) {
		row("starts after a "+string(kind), "%d, of runs that were handed out before, as NATS had lost what took them back", r.Excused[kind])
	}
	if o := r.Handovers; o.Cut > 0 {
		row("commands after one another", "%d pairs of one run, of which %d after one that was killed: the next began %s after its last line at least",
			o.Pairs, o.Cut, o.SmallestCut.Round(time.Millisecond))
	}
	for _, what := range slices.Sorted(maps.Keys(r.Odd)) {
		row("noted", "%d × %s", r.Odd[what], what)
	}
	row("violations", "%d", len(r.Violations))
	if err := t.Flush(); err != nil {
		return err
	}
	return printWrong(w, r.Violations, r.Failures)
}

// printWrong writes what is wrong below a table.
func printWrong(w io.Writer, violations []checker.Violation, failures []string) error {
	var out strings.Builder
	for _, v := range violations {
		fmt.Fprintf(&out, "  %s\n", v)
	}
	for _, f := range failures {
		fmt.Fprintf(&out, "  FAILED: %s\n", f)
	}
	_, err := io.WriteString(w, out.String())
	return err
}
