package harness

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/waterclock-io/waterclock/chaos/checker"
)

// aliveEvery is how often a command says that it lives: so finely is seen how long one that was killed went on.
const aliveEvery = 50 * time.Millisecond

// outliving counts the commands, and guards of them, that are still there: processes that have the file among their arguments.
func outliving(file string) (int, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	n := 0
	for _, path := range paths {
		args, err := os.ReadFile(path)
		if err == nil && slices.Contains(strings.Split(string(args), "\x00"), file) { // else it has gone meanwhile
			n++
		}
	}
	return n, nil
}

// Child is the command of the jobs of a fault run. It appends its lines to a file, works for a while, and fails in its first attempts where it is told to.
func Child(args []string) error {
	flags := flag.NewFlagSet("child", flag.ContinueOnError)
	file := flags.String("file", "", "the file that all commands append to")
	number := flags.Int("number", 0, "the number of the job")
	work := flags.Duration("work", 0, "how long it works")
	fails := flags.Int("fails", 0, "how many attempts fail")
	murders := flags.Bool("murder", false, "kill the executor that it works for when the work is done, and wait for what comes of it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	l := checker.Line{RunID: os.Getenv("WATERCLOCK_RUN_ID"), Number: *number, Group: syscall.Getpgrp()}
	attempt, errAttempt := strconv.ParseInt(os.Getenv("WATERCLOCK_ATTEMPT"), 10, 32)
	dispatch, errDispatch := strconv.ParseInt(os.Getenv("WATERCLOCK_DISPATCH"), 10, 64)
	if err := errors.Join(errAttempt, errDispatch); err != nil || l.RunID == "" {
		return fmt.Errorf("WATERCLOCK_RUN_ID, WATERCLOCK_ATTEMPT and WATERCLOCK_DISPATCH are needed: %w", err)
	}
	l.Attempt, l.Dispatch = int32(attempt), dispatch
	out, err := os.OpenFile(*file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	write := func(kind checker.LineKind) error {
		l.Kind, l.At = kind, time.Now()
		_, err := out.WriteString(l.String() + "\n") // one write: appends do not mix
		return err
	}
	if err := write(checker.Start); err != nil {
		return err
	}
	over := time.NewTimer(*work)
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for working := true; working; {
		select {
		case <-alive.C:
			if err := write(checker.Alive); err != nil {
				return err
			}
		case <-over.C:
			working = *murders
			if working {
				if err := murder(); err != nil {
					return errors.Join(err, write(checker.End))
				}
				*murders = false
				over.Reset(time.Minute) // whoever sees to it ends this process long before
			}
		}
	}
	if err := write(checker.End); err != nil {
		return err
	}
	if int(attempt) <= *fails {
		return fmt.Errorf("attempt %d fails as it was told to", attempt)
	}
	return out.Close()
}
