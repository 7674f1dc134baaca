// Command bench measures Waterclock side by side with its peers, and with what its parts cost at least, on this machine and in one run.
//
// It starts PostgreSQL and Redis by itself, measures each contender at each workload in a fresh process, several times and in turns, and prints tables of
// the medians; the same as JSON goes into a file. It judges nothing. What it starts listens on 127.0.0.1 and is gone at its end. Linux only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/bench/floor"
	"github.com/waterclock-io/waterclock/bench/scan"
	"github.com/waterclock-io/waterclock/bench/work"
)

// measureCommand is the first argument of the processes that measure.
const measureCommand = "measure"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if len(os.Args) == 2 && os.Args[1] == measureCommand {
		err = measure(ctx, os.Stdin, os.Stdout)
	} else {
		err = run(ctx, os.Args[1:])
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// plan is what a run measures.
type plan struct {
	sizes      work.Sizes
	floorJobs  int
	timers     int // of W9
	history    int // of W8b
	workloads  []string
	contenders []string
	repeat     int
	once       []string // workloads that are not repeated
	binary     string
	out        string
	profiles   string
	page       string        // of the documentation, to be made from the results
	from       string        // JSON of an earlier run, in place of measuring
	limit      time.Duration // of one measure
}

// The sizes of the three forms.
var (
	fullSizes = plan{repeat: 3, floorJobs: 50_000, timers: 10_000_000, history: 10_000_000, once: []string{scan.Workload, scan.PagesWorkload}, limit: 5 * time.Minute, sizes: work.Sizes{
		Singles: 20_000, Batches: 50, Drain: 50_000, Spread: 10_000, Over: 20 * time.Second, Instant: 10_000, Probe: 5 * time.Second, Hold: 30 * time.Second,
		Lone: 500, Idle: 100_000, Watch: 20 * time.Second, Series: 10_000, Fires: 6, Period: 10 * time.Second,
	}}
	shortSizes = plan{repeat: 2, once: []string{"W6", "W7", scan.Workload, scan.PagesWorkload}, floorJobs: 20_000, timers: 1_000_000, history: 1_000_000, limit: 2 * time.Minute, sizes: work.Sizes{
		Singles: 10_000, Batches: 20, Drain: 25_000, Spread: 2000, Over: 4 * time.Second, Instant: 10_000, Probe: 1500 * time.Millisecond, Hold: 4 * time.Second,
		Lone: 100, Idle: 100_000, Watch: 10 * time.Second, Series: 2000, Fires: 3, Period: 2 * time.Second,
	}}
	tinySizes = plan{repeat: 1, floorJobs: 500, timers: 10_000, history: 10_000, limit: time.Minute, sizes: work.Sizes{
		Singles: 300, Batches: 2, Drain: 300, Spread: 200, Over: time.Second, Instant: 200, Probe: 300 * time.Millisecond, Hold: 500 * time.Millisecond,
		Lone: 20, Idle: 1000, Watch: time.Second, Series: 100, Fires: 2, Period: time.Second,
	}}
)

func parse(args []string) (plan, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	short := flags.Bool("short", false, "smaller sizes and two repetitions at most: ten minutes instead of an hour")
	tiny := flags.Bool("tiny", false, "the smallest sizes and no repetition: to see that it works; the numbers mean nothing")
	workloads := flags.String("workloads", strings.Join(workloadNames(), ","), "what to measure; "+floor.Workload+" are the floors")
	contenders := flags.String("contenders", strings.Join(contenderNames(), ","), "whom to measure")
	var given plan
	flags.IntVar(&given.repeat, "repeat", 0, "repetitions of each measure")
	flags.StringVar(&given.binary, "binary", "../bin/waterclock", "the product, for contenders over its API")
	flags.StringVar(&given.out, "out", "results", "folder for bench.json and bench.md; it is made where it is missing")
	flags.StringVar(&given.profiles, "profiles", "", "folder for profiles of CPU and allocations of the measuring processes; empty: none")
	flags.StringVar(&given.page, "page", "", "page of the documentation to put the tables into, such as ../docs/performance.md; pictures go into the folder of its name")
	flags.StringVar(&given.from, "from", "", "bench.json of an earlier run, to be shown anew; nothing is measured")
	flags.IntVar(&given.sizes.Singles, "singles", 0, "W1: single submits")
	flags.IntVar(&given.sizes.Batches, "batches", 0, "W1b: batches of 1,000")
	flags.IntVar(&given.sizes.Drain, "drain", 0, "W2: due jobs")
	flags.IntVar(&given.sizes.Spread, "spread", 0, "W3: starts")
	flags.DurationVar(&given.sizes.Over, "over", 0, "W3: time over which they are spread")
	flags.IntVar(&given.sizes.Instant, "instant", 0, "W4: jobs due at one instant")
	flags.DurationVar(&given.sizes.Probe, "probe", 0, "W5: time to look for a rate to begin with")
	flags.DurationVar(&given.sizes.Hold, "hold", 0, "W5: how long a rate must hold")
	flags.IntVar(&given.sizes.Lone, "lone", 0, "L: lone jobs")
	flags.IntVar(&given.sizes.Idle, "idle", 0, "W6: jobs of tomorrow")
	flags.DurationVar(&given.sizes.Watch, "watch", 0, "W6: how long the idle processes are watched")
	flags.IntVar(&given.sizes.Series, "series", 0, "W7: schedules")
	flags.IntVar(&given.sizes.Fires, "fires", 0, "W7: fires of each")
	flags.DurationVar(&given.sizes.Period, "period", 0, "W7: time between two fires of one")
	flags.IntVar(&given.timers, "timers", 0, "W9: timers at most, 10000 times a power of ten")
	flags.IntVar(&given.history, "history", 0, "W8b: runs in history")
	flags.IntVar(&given.floorJobs, "floor-jobs", 0, "floors: jobs")
	if err := flags.Parse(args); err != nil {
		return plan{}, err
	}
	p := fullSizes
	switch {
	case *tiny:
		p = tinySizes
	case *short:
		p = shortSizes
	}
	override(&p.repeat, given.repeat)
	override(&p.floorJobs, given.floorJobs)
	override(&p.timers, given.timers)
	override(&p.history, given.history)
	for to, by := range map[*int]int{
		&p.sizes.Singles: given.sizes.Singles, &p.sizes.Batches: given.sizes.Batches, &p.sizes.Drain: given.sizes.Drain, &p.sizes.Spread: given.sizes.Spread,
		&p.sizes.Instant: given.sizes.Instant, &p.sizes.Lone: given.sizes.Lone, &p.sizes.Idle: given.sizes.Idle, &p.sizes.Series: given.sizes.Series,
		&p.sizes.Fires: given.sizes.Fires,
	} {
		override(to, by)
	}
	for to, by := range map[*time.Duration]time.Duration{
		&p.sizes.Over: given.sizes.Over, &p.sizes.Probe: given.sizes.Probe, &p.sizes.Hold: given.sizes.Hold, &p.sizes.Watch: given.sizes.Watch,
		&p.sizes.Period: given.sizes.Period,
	} {
		override(to, by)
	}
	p.out, p.profiles, p.page, p.from = given.out, given.profiles, given.page, given.from
	var err error
	if p.binary, err = filepath.Abs(given.binary); err != nil {
		return plan{}, err
	}
	if p.workloads, err = chosen("workload", *workloads, workloadNames()); err != nil {
		return plan{}, err
	}
	p.contenders, err = chosen("contender", *contenders, contenderNames())
	return p, err
}

func override[T int | time.Duration](to *T, given T) {
	if given > 0 {
		*to = given
	}
}

// chosen splits a list and checks it; it keeps the order of what is known.
func chosen(what, list string, known []string) ([]string, error) {
	want := map[string]bool{}
	for _, name := range strings.Split(list, ",") {
		want[name] = true
	}
	var out []string
	for _, name := range known {
		if want[name] {
			out = append(out, name)
			delete(want, name)
		}
	}
	for name := range want {
		return nil, fmt.Errorf("%s %q is not known; allowed: %s", what, name, strings.Join(known, ", "))
	}
	return out, nil
}

func workloadNames() []string {
	var out []string
	for _, w := range work.Workloads {
		out = append(out, w.Name)
	}
	return append(out, scan.PagesWorkload, scan.Workload, floor.Workload)
}

func contenderNames() []string {
	var out []string
	for _, k := range contend.Kinds {
		out = append(out, k.Name)
	}
	for _, f := range floor.Floors {
		out = append(out, f.Name)
	}
	return out
}
