// Command smoke measures one running waterclock in under two minutes: how late runs start, how long a lone job takes from submit to start, and what an idle
// process with many jobs scheduled for later costs. It prints a Markdown table.
//
// It judges nothing but early starts: one of them makes it end with 1. It is not a load test. scripts/bench-smoke calls it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/waterclock-io/waterclock/proto/waterclock/v1/waterclockv1connect"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-smoke:", err)
		os.Exit(1)
	}
}

type sizes struct{ workers, execs, lone, later int }

func run(ctx context.Context, args []string) error {
	var n sizes
	flags := flag.NewFlagSet("smoke", flag.ContinueOnError)
	binary := flags.String("binary", "bin/waterclock", "the waterclock to measure")
	flags.IntVar(&n.workers, "worker-jobs", 200, "one-time jobs of a Go worker")
	flags.IntVar(&n.execs, "exec-jobs", 50, "one-time jobs of kind exec")
	flags.IntVar(&n.lone, "lone-jobs", 200, "jobs that are submitted one after the other")
	flags.IntVar(&n.later, "later-jobs", 100_000, "jobs that are scheduled for later while the process is idle")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	s, err := startServer(ctx, *binary)
	if err != nil {
		return err
	}
	defer s.stop()
	b := &bench{
		jobs: waterclockv1connect.NewJobServiceClient(http.DefaultClient, s.http),
		runs: waterclockv1connect.NewRunServiceClient(http.DefaultClient, s.http),
	}
	w, err := startWorker(ctx, s.nats)
	if err != nil {
		return err
	}
	defer w.stop()
	b.worker = w

	var r results
	for _, step := range []struct {
		what string
		run  func() error
	}{
		{"first runs", func() error { return b.warmUp(ctx) }},
		{"start lag of a Go worker", func() error { r.worker, err = b.workerLag(ctx, n.workers); return err }},
		{"start lag of commands", func() error { r.exec, err = b.execLag(ctx, n.execs); return err }},
		{"submit to start", func() error { r.lone, err = b.loneJobs(ctx, n.lone); return err }},
		{"jobs for later", func() error { r.submitted, err = b.submitLater(ctx, n.later); return err }},
		{"idle process", func() error { r.idle, err = s.watchIdle(ctx, 20*time.Second); return err }},
	} {
		fmt.Fprintln(os.Stderr, "bench-smoke:", step.what)
		if err := step.run(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	r.print(os.Stdout, n, *binary)
	if early := r.worker.early + r.exec.early; early > 0 {
		return fmt.Errorf("%d runs started before their time", early)
	}
	return nil
}
