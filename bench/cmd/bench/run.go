package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/bench/floor"
	"github.com/waterclock-io/waterclock/bench/report"
	"github.com/waterclock-io/waterclock/bench/scan"
	"github.com/waterclock-io/waterclock/bench/work"
	"github.com/waterclock-io/waterclock/bench/world"
)

// bench is a run under way.
type bench struct {
	plan     plan
	postgres *world.Postgres
	redis    *world.Redis // nil: not to be had
	report   report.Report
}

// task is one measure to be made.
type task struct {
	workload, contender string
	postgres, redis     bool
}

func run(ctx context.Context, args []string) (err error) {
	p, err := parse(args)
	if err != nil {
		return err
	}
	if p.from != "" {
		return show(p)
	}
	b := &bench{plan: p, report: report.Report{Begun: time.Now(), Machine: report.ThisMachine(), Versions: map[string]string{}}}
	defer func() { err = errors.Join(err, b.stop()) }()
	if err := b.start(ctx); err != nil {
		return err
	}
	b.describe()
	// What was measured before something ended it is worth showing too.
	err = b.measure(ctx)
	b.report.Took, b.report.Machine.LoadAfter = time.Since(b.report.Begun), report.Load()
	return errors.Join(err, write(&b.report, p))
}

// measure measures everything, in turns.
func (b *bench) measure(ctx context.Context) error {
	tasks := b.tasks()
	for repetition := 1; repetition <= b.plan.repeat; repetition++ {
		for _, w := range b.plan.workloads {
			if repetition > 1 && slices.Contains(b.plan.once, w) {
				continue
			}
			turn := slices.DeleteFunc(slices.Clone(tasks), func(t task) bool { return t.workload != w })
			for i := range turn {
				// Each time another one is the first.
				if err := b.one(ctx, turn[(i+repetition-1)%len(turn)], repetition); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// start starts the servers that somebody needs.
func (b *bench) start(ctx context.Context) (err error) {
	tasks := b.tasks()
	if slices.ContainsFunc(tasks, func(t task) bool { return t.postgres }) {
		if b.postgres, err = world.StartPostgres(ctx); err != nil {
			return err
		}
		b.report.Versions["PostgreSQL"] = b.postgres.Version + " (" + strings.Join(world.PostgresSettings, ", ") + ")"
	}
	if slices.ContainsFunc(tasks, func(t task) bool { return t.redis }) {
		b.redis, err = world.StartRedis(ctx)
		switch {
		case errors.Is(err, world.ErrNoRedis):
			fmt.Fprintf(os.Stderr, "\nbench: ASYNQ IS NOT MEASURED: %v\n\n", err)
			b.report.Missing = append(b.report.Missing, "Asynq: "+err.Error())
			b.plan.contenders = slices.DeleteFunc(b.plan.contenders, func(name string) bool { k, err := contend.Find(name); return err == nil && k.Redis })
		case err != nil:
			return err
		default:
			b.report.Versions["Redis"] = b.redis.Version
		}
	}
	for _, t := range tasks {
		if k, err := contend.Find(t.contender); err == nil && k.SubmitsOnly {
			if _, err := os.Stat(b.plan.binary); err != nil {
				return fmt.Errorf("-binary: %w; `make build` makes it", err)
			}
		}
	}
	return nil
}

func (b *bench) stop() error {
	var errs []error
	if b.postgres != nil {
		errs = append(errs, b.postgres.Stop())
	}
	if b.redis != nil {
		errs = append(errs, b.redis.Stop())
	}
	return errors.Join(errs...)
}

// tasks are what is measured in each repetition.
func (b *bench) tasks() []task {
	var out []task
	for _, name := range b.plan.workloads {
		if name == floor.Workload {
			for _, f := range floor.Floors {
				if slices.Contains(b.plan.contenders, f.Name) {
					out = append(out, task{workload: name, contender: f.Name, postgres: f.Postgres})
				}
			}
			continue
		}
		if name == scan.Workload || name == scan.PagesWorkload {
			for _, s := range scan.Stores {
				if slices.Contains(b.plan.contenders, s.Name) {
					out = append(out, task{workload: name, contender: s.Name, postgres: s.Postgres})
				}
			}
			continue
		}
		for _, w := range work.Workloads {
			for _, k := range contend.Kinds {
				if w.Name == name && slices.Contains(b.plan.contenders, k.Name) && (w.SubmitsMatter || !k.SubmitsOnly) &&
					(k.Recurring || !w.Recurring) && (k.Reads || !w.Reads) {
					out = append(out, task{name, k.Name, k.Postgres, k.Redis})
				}
			}
		}
	}
	return out
}

// describe says in the report who and what takes part.
func (b *bench) describe() {
	b.report.Versions["Go"] = strings.TrimPrefix(runtime.Version(), "go")
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			switch m.Path {
			case "github.com/riverqueue/river", "github.com/hibiken/asynq", "github.com/nats-io/nats-server/v2", "github.com/nats-io/nats.go",
				"github.com/jackc/pgx/v5", "modernc.org/sqlite":
				b.report.Versions[m.Path] = strings.TrimPrefix(m.Version, "v")
			}
		}
	}
	s := b.plan.sizes
	b.report.Settings = []string{
		fmt.Sprintf("%d repetitions, contenders in turns, each measure in a process and on a database of its own; medians (lowest–highest)", b.plan.repeat),
		fmt.Sprintf("W1 %d single submits and %d batches · W2 %d jobs · W3 %d starts over %s · W4 %d jobs · W5 rates of a ladder with steps of a tenth, held for %s · "+
			"W6 %d jobs, watched for %s · W7 %d schedules every %s, %d fires each · L %d jobs",
			s.Singles, s.Batches, s.Drain, s.Spread, s.Over, s.Instant, s.Hold, s.Idle, s.Watch, s.Series, s.Period, s.Fires, s.Lone),
		"CPU is that of all processes: client, server, and database with all its processes",
	}
	for _, k := range contend.Kinds {
		if slices.Contains(b.plan.contenders, k.Name) {
			b.report.Contenders = append(b.report.Contenders, report.Contender{Name: k.Name, Title: k.Title, Settings: k.Settings})
		}
	}
	for _, f := range floor.Floors {
		if slices.Contains(b.plan.contenders, f.Name) {
			b.report.Contenders = append(b.report.Contenders, report.Contender{Name: f.Name, Title: f.Title})
		}
	}
	for _, w := range work.Workloads {
		if slices.Contains(b.plan.workloads, w.Name) {
			b.report.Workloads = append(b.report.Workloads, report.Workload{Name: w.Name, Title: w.Title})
		}
	}
	for _, w := range []report.Workload{{Name: scan.PagesWorkload, Title: scan.PagesTitle}, {Name: scan.Workload, Title: scan.Title}, {Name: floor.Workload, Title: floor.Title}} {
		if slices.Contains(b.plan.workloads, w.Name) {
			b.report.Workloads = append(b.report.Workloads, w)
		}
	}
}

// one makes one measure. What goes wrong in it is noted in the report; an error means that nothing more can be measured.
func (b *bench) one(ctx context.Context, t task, repetition int) (err error) {
	r := request{Workload: t.workload, Contender: t.contender, Sizes: b.plan.sizes, FloorJobs: b.plan.floorJobs, Timers: b.plan.timers, History: b.plan.history}
	r.Env.Binary = b.plan.binary
	if r.Env.Dir, err = os.MkdirTemp("", "waterclock-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.Env.Dir)) }()
	if t.postgres {
		dsn, drop, err := b.postgres.NewDatabase(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, drop(context.WithoutCancel(ctx))) }()
		r.Env.PostgresDSN, r.Database = dsn, append(r.Database, b.postgres.PID())
	}
	if t.redis {
		if err := b.redis.Clear(); err != nil {
			return err
		}
		r.Env.RedisAddr, r.Database = b.redis.Addr(), append(r.Database, b.redis.PID())
	}
	if b.plan.profiles != "" {
		if r.Profile, err = filepath.Abs(filepath.Join(b.plan.profiles, fmt.Sprintf("%s-%s-%d.pprof", t.workload, t.contender, repetition))); err != nil {
			return err
		}
	}
	began := time.Now()
	values, err := b.ask(ctx, &r)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	m := report.Measure{Workload: t.workload, Contender: t.contender, Repetition: repetition, Values: values}
	said := inShort(values)
	if err != nil {
		m.Error = err.Error()
		said = m.Error
	}
	b.report.Measures = append(b.report.Measures, m)
	fmt.Fprintf(os.Stderr, "bench: %d/%d %s %s (%s): %s\n", repetition, b.plan.repeat, t.workload, t.contender, time.Since(began).Round(100*time.Millisecond), said)
	return nil
}

// inShort shows what there is of the values that most measures have.
func inShort(v work.Values) string {
	var out []string
	for _, one := range []struct{ value, format string }{
		{"rate", "%.0f/s"}, {"cpu", "CPU %.3f s per 1,000"}, {"core", "%.1f %% of a core"}, {"p50", "p50 %.1f ms"}, {"p99", "p99 %.1f ms"}, {"max", "max %.1f ms"},
		{"list_max", "max %.1f ms of a page"}, {"growth", "grew by %.2f"},
	} {
		if n, ok := v[one.value]; ok {
			out = append(out, fmt.Sprintf(one.format, n))
		}
	}
	return strings.Join(out, ", ")
}

// ask has a process of its own measure.
func (b *bench) ask(ctx context.Context, r *request) (work.Values, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.plan.limit, fmt.Errorf("not done within %s", b.plan.limit))
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	in, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, measureCommand)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 90 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, io.MultiWriter(os.Stderr, &said)
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w: %s", err, lastLine(said.String()))
	}
	var v work.Values
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		return nil, fmt.Errorf("read what was measured: %w", err)
	}
	return v, nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
