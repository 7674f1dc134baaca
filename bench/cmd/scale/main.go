// Command scale renders the model of package scale for docs/scale.md, and measures the facts that it stands on.
//
// Linux only where it measures: it starts PostgreSQL and NATS for itself, on 127.0.0.1, and ends them.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/waterclock-io/waterclock/bench/report"
	"github.com/waterclock-io/waterclock/bench/scale"
	"github.com/waterclock-io/waterclock/bench/scale/measure"
	"github.com/waterclock-io/waterclock/bench/world"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	into := flags.String("measure", "", "measure the facts and write them into this file, such as scale/facts.json; nothing is rendered")
	jobs := flags.Int("jobs", 50_000, "with -measure: jobs")
	runs := flags.Int("runs", 4000, "with -measure: runs that wait in RUNS, up to 8192")
	payload := flags.Int("payload", 128, "with -measure: bytes of a payload")
	from := flags.String("from", "", "bench.json of a run of cmd/bench, for the CPU of whole processes; empty: it is shown as not measured")
	page := flags.String("page", "", "page of the documentation to put the tables into, such as ../docs/scale.md")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *into != "" {
		return facts(ctx, *into, *jobs, *runs, *payload)
	}
	f, err := scale.Measured()
	if err != nil {
		return err
	}
	var bench *report.Report
	if *from != "" {
		if bench, err = readReport(*from); err != nil {
			return err
		}
	}
	var b bytes.Buffer
	if err := scale.Write(&b, f, scale.DefaultPlan, scale.Assumptions(), bench); err != nil {
		return err
	}
	if *page == "" {
		_, err := b.WriteTo(out)
		return err
	}
	return scale.ModelPart.Update(*page, b.Bytes())
}

func readReport(path string) (*report.Report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r report.Report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &r, nil
}

// facts measures on a PostgreSQL of its own, on a database each for rows and for messages.
func facts(ctx context.Context, path string, jobs, runs, payload int) (err error) {
	machine := report.ThisMachine()
	pg, err := world.StartPostgres(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	dsn, drop, err := pg.NewDatabase(ctx)
	if err != nil {
		return err
	}
	f, err := measure.SQL(ctx, dsn, []int{pg.PID()}, jobs, payload)
	if err != nil {
		return err
	}
	if err := drop(ctx); err != nil {
		return err
	}
	if dsn, _, err = pg.NewDatabase(ctx); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "waterclock-scale-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if f.Messages, f.Costs.Publish, err = measure.Streams(ctx, dsn, dir, runs, payload); err != nil {
		return err
	}
	machine.LoadAfter = report.Load()
	f.Machine = machine.String()
	text, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644) //nolint:gosec // no secret
}
