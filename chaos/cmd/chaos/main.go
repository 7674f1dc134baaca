// Chaos brings faults upon a single host of Waterclock while clients use it, and holds what came of it against what must always hold.
//
//	chaos -binary bin/waterclock [-seed N] [-for 60s] [-kills 20]
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

func run() int {
	binary := flag.String("binary", "bin/waterclock", "the waterclock `file` to try")
	seed := flag.Uint64("seed", 0, "what everything random is drawn from; 0: drawn and printed")
	long := flag.Duration("for", 60*time.Second, "how long load and faults go on")
	kills := flag.Int("kills", 20, "how often the process is killed")
	keep := flag.Bool("keep", false, "keep the artefacts of a run that passed too")
	without := flag.String("without", "", "changes that no client asks for, separated by commas: cancel, pause, update, delete")
	flag.Parse()
	o := harness.Options{For: *long, Kills: *kills}
	for kind := range strings.SplitSeq(*without, ",") {
		switch k := checker.ChangeKind(kind); k {
		case "":
		case checker.Cancel, checker.Pause, checker.Update, checker.Delete:
			o.Without = append(o.Without, k)
		default:
			fmt.Fprintf(os.Stderr, "-without: given %q, allowed: cancel, pause, update, delete\n", kind)
			return 2
		}
	}
	if flag.NArg() > 0 || *kills < 1 || *long < time.Second {
		fmt.Fprintln(os.Stderr, "no arguments beside flags are taken; -kills is 1 or more, -for is 1s or more")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	for *seed == 0 {
		*seed = rand.Uint64() //nolint:gosec // not a secret
	}
	fmt.Printf("seed %d\n", *seed)
	o.Seed = *seed
	failed, dir, err := try(ctx, *binary, o)
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "the run went wrong, so nothing is proved: %v\nartefacts: %s\n", err, dir)
		return 2
	case failed:
		fmt.Printf("FAILED; artefacts: %s\nagain: go run ./chaos/cmd/chaos -binary %s -seed %d -for %s -kills %d -without=%s\n", dir, *binary, *seed, *long, *kills, *without)
		return 1
	case *keep:
		fmt.Printf("passed; artefacts: %s\n", dir)
		return 0
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	fmt.Println("passed")
	return 0
}

func try(ctx context.Context, binary string, o harness.Options) (failed bool, dir string, err error) {
	path, errPath := filepath.Abs(binary)
	self, errSelf := os.Executable()
	dir, errDir := os.MkdirTemp("", "waterclock-chaos-")
	if err := errors.Join(errPath, errSelf, errDir); err != nil {
		return false, dir, err
	}
	o.Binary, o.Child, o.Dir = path, []string{self, "child"}, dir
	rep, err := harness.Run(ctx, o)
	if err != nil {
		return false, dir, err
	}
	return rep.Failed(), dir, rep.Print(os.Stdout)
}
