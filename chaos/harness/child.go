package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/waterclock-io/waterclock/chaos/checker"
)

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
	w := &worker{out: out, line: l}
	if err := w.begin(context.Background(), *work); err != nil {
		return err
	}
	if *murders {
		if err := murder(); err != nil {
			return errors.Join(err, w.write(checker.End))
		}
		if err := w.live(context.Background(), time.Minute); err != nil { // whoever sees to it ends this process long before
			return err
		}
	}
	if err := w.write(checker.End); err != nil {
		return err
	}
	if int(attempt) <= *fails {
		return fmt.Errorf("attempt %d fails as it was told to", attempt)
	}
	return out.Close()
}

// aliveEvery is how often a worker says that it lives: so finely is seen how long one that was killed went on.
const aliveEvery = 50 * time.Millisecond

// worker writes the lines of one attempt.
type worker struct {
	out  *os.File
	line checker.Line
}

func (w *worker) write(kind checker.LineKind) error {
	w.line.Kind, w.line.At = kind, time.Now()
	_, err := w.out.WriteString(w.line.String() + "\n") // one write: appends do not mix
	return err
}

// begin says that the work begins, and works.
func (w *worker) begin(ctx context.Context, long time.Duration) error {
	if err := w.write(checker.Start); err != nil {
		return err
	}
	return w.live(ctx, long)
}

// live works for a while.
func (w *worker) live(ctx context.Context, long time.Duration) error {
	over := time.NewTimer(long)
	defer over.Stop()
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-over.C:
			return nil
		case <-alive.C:
			if err := w.write(checker.Alive); err != nil {
				return err
			}
		}
	}
}
