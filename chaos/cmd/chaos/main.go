// Chaos brings faults upon Waterclock while clients use it, and holds what came of it against what must always hold. It builds what it runs.
//
//	chaos [-store sqlite|postgres] [-seed N] [-for 60s] [-faults GROUPS] [-most N]
//	chaos -measure 'kill -9 planner,kill -9 executor' [-store …] [-lease 10s] [-times 5]
//	chaos -outage 10m -store postgres
//
// It ends with 1 where anything did not hold, and then says where its artefacts are; with 2 where the run itself went wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/waterclock-io/waterclock/chaos/build"
	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/chaos/harness"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		if err := harness.Child(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(run())
}

// asked is what the command line asks for.
type asked struct {
	harness.Options
	bin, old, measure string
	times             int
	outage            time.Duration
	keep              bool
}

func parse() (*asked, error) {
	a := new(asked)
	flag.StringVar(&a.Store, "store", "sqlite", "sqlite: a single host; postgres: a cluster of processes")
	flag.Uint64Var(&a.Seed, "seed", 0, "what everything random is drawn from; 0: drawn and printed")
	flag.DurationVar(&a.For, "for", 60*time.Second, "how long load and faults go on")
	flag.DurationVar(&a.Lease, "lease", 3*time.Second, "the lease (ack wait) of executors")
	groups := flag.String("faults", "", "`groups` of faults, separated by commas; all where empty")
	flag.IntVar(&a.Most, "most", 0, "how many faults may land before the run ends; 0: no bound")
	without := flag.String("without", "", "changes that no client asks for, separated by commas: cancel, pause, update, delete")
	flag.BoolVar(&a.TrueClock, "true-clock", false, "bring no wrong clocks: saves building the standard library anew")
	flag.StringVar(&a.bin, "bin", "", "a `folder` to keep what is built in, for further runs; what is there is taken")
	flag.StringVar(&a.old, "old", "", "an older waterclock `file`, for rolling deploys")
	flag.BoolVar(&a.keep, "keep", false, "keep the artefacts of a run that passed too")
	flag.StringVar(&a.measure, "measure", "", "bring these `kinds` of faults alone, one by one, and tell how long it takes until work goes on")
	flag.IntVar(&a.Nodes, "nats", 3, "with -measure and -store postgres: how many NATS servers there are, 3 or 1")
	flag.IntVar(&a.times, "times", 5, "with -measure: how often each is brought")
	flag.DurationVar(&a.outage, "outage", 0, "take SQL away for so long, alone, and tell what becomes of runs and submits")
	flag.Parse()
	if *groups != "" {
		a.Faults = strings.Split(*groups, ",")
	}
	for kind := range strings.SplitSeq(*without, ",") {
		switch k := checker.ChangeKind(kind); k {
		case "":
		case checker.Cancel, checker.Pause, checker.Update, checker.Delete:
			a.Without = append(a.Without, k)
		default:
			return nil, fmt.Errorf("-without: given %q, allowed: cancel, pause, update, delete", kind)
		}
	}
	if a.Nodes != 3 && (a.Nodes != 1 || a.measure == "") {
		return nil, fmt.Errorf("-nats: given %d, allowed: 3, and 1 with -measure", a.Nodes)
	}
	if flag.NArg() > 0 || a.Most < 0 || a.times < 1 || a.For < time.Second || a.Lease < 2*time.Second {
		return nil, errors.New("no arguments beside flags are taken; -most is 0 or more, -times 1 or more, -for 1s or more, -lease 2s or more")
	}
	for a.Seed == 0 {
		a.Seed = rand.Uint64() //nolint:gosec // not a secret
	}
	return a, nil
}

func run() int {
	a, err := parse()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	fmt.Printf("seed %d\n", a.Seed)
	failed, err := a.try(ctx)
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "the run went wrong, so nothing is proved: %v\nartefacts: %s\n", err, a.Dir)
		return 2
	case failed:
		fmt.Printf("FAILED; artefacts: %s\nagain: go run ./chaos/cmd/chaos -store %s -seed %d -for %s -faults=%s -most %d -true-clock=%t%s\n",
			a.Dir, a.Store, a.Seed, a.For, strings.Join(a.Faults, ","), a.Most, a.TrueClock, others())
		return 1
	case a.keep:
		fmt.Printf("passed; artefacts: %s\n", a.Dir)
		return 0
	}
	if err := os.RemoveAll(a.Dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	fmt.Println("passed")
	return 0
}

// others are the flags that were given beside those that are always told, and bear on the run.
func others() string {
	out := ""
	flag.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "lease", "without", "old", "outage":
			out += fmt.Sprintf(" -%s=%s", f.Name, f.Value)
		}
	})
	return out
}

func (a *asked) try(ctx context.Context) (failed bool, err error) {
	if a.Dir, err = os.MkdirTemp("", "waterclock-chaos-"); err != nil {
		return false, err
	}
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	a.Child = []string{self, "child"}
	if err := a.build(ctx); err != nil {
		return false, err
	}
	if a.measure != "" {
		all, err := harness.Measure(ctx, a.Options, strings.Split(a.measure, ","), a.times)
		if err != nil {
			return false, err
		}
		return false, harness.PrintRecoveries(os.Stdout, all)
	}
	if a.outage > 0 {
		out, err := harness.TakeSQLAway(ctx, a.Options, a.outage)
		if err != nil {
			return false, err
		}
		return out.Failed(), out.Print(os.Stdout)
	}
	rep, err := harness.Run(ctx, a.Options)
	if err != nil {
		return false, err
	}
	return rep.Failed(), rep.Print(os.Stdout)
}

// build makes the binaries that are not there yet.
func (a *asked) build(ctx context.Context) error {
	folder := a.Dir
	if a.bin != "" {
		folder = a.bin
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	var opts []build.Option
	if a.TrueClock || a.Store == "sqlite" { // which has no fault of that sort
		opts = append(opts, build.TrueClock())
	}
	made := func(name string, with func(context.Context, string, ...build.Option) error) (string, error) {
		path := filepath.Join(folder, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		return path, with(ctx, path, opts...)
	}
	if a.Binary, err = made("waterclock", build.Waterclock); err != nil {
		return err
	}
	if a.Store != "sqlite" {
		if a.NATSServer, err = made("nats-server", build.NATSServer); err != nil {
			return err
		}
	}
	if a.old != "" {
		a.Old, err = filepath.Abs(a.old)
	}
	return err
}
