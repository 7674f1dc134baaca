package cli

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waterclock-io/waterclock/job/fielderr"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

// specFlags are the flags that submit and job update share: all that the owner of a job chooses.
type specFlags struct {
	workFlags
	whenFlags
	name, queue              string
	priority                 choice
	labels                   []string
	maxAttempts              int32
	backoff, maxBackoff      span
	multiplier               float64
	timeout, total, deadline span // of an attempt, of the run, for its start
	catchUp, overlap         choice
}

func (f *specFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.SortFlags = false
	f.workFlags.add(flags)
	f.whenFlags.add(flags)
	f.priority.allowed = []string{"critical", "high", "normal", "low"}
	f.catchUp.allowed = []string{"latest", "all", "none"}
	f.overlap.allowed = []string{"forbid", "allow"}
	flags.StringVar(&f.name, "name", "", "name of the job, unique among the live jobs of the namespace")
	flags.StringVar(&f.queue, "queue", "", "queue that the runs wait in (default \"default\")")
	flags.Var(&f.priority, "priority", "order among the due runs of a queue: critical, high, normal or low (default normal)")
	flags.StringArrayVar(&f.labels, "label", nil, "label KEY=VALUE (repeatable); all that are given replace those the job had")
	flags.Int32Var(&f.maxAttempts, "max-attempts", 0, "attempts in all, from 1 to 1000 (default 3)")
	flags.Var(&f.backoff, "backoff", "wait before the second attempt; it grows with each (default 1s)")
	flags.Var(&f.maxBackoff, "max-backoff", "longest wait between two attempts (default 1h)")
	flags.Float64Var(&f.multiplier, "multiplier", 0, "factor from one wait to the next, 1 to 10 (default 2)")
	flags.Var(&f.timeout, "timeout", "an attempt that runs longer is stopped (default 1h)")
	flags.Var(&f.total, "deadline", "a run that has not ended this long after its scheduled time fails (default none)")
	flags.Var(&f.deadline, "start-deadline", "a run that could not start this long after its scheduled time is skipped (default none)")
	flags.Var(&f.catchUp, "catch-up", "missed occurrences: run the latest, all or none of them (default latest)")
	flags.Var(&f.overlap, "overlap", "an occurrence during an earlier run of the job: forbid skips it, allow runs it (default forbid)")
	completeChoice(c, "priority", f.priority.allowed...)
	completeChoice(c, "catch-up", f.catchUp.allowed...)
	completeChoice(c, "overlap", f.overlap.allowed...)
	completeChoice(c, "http", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
}

// apply changes the spec as the flags and arguments say and returns the names of the fields it set, for an update mask. Command is what stands
// after --, nil where there is no --; urls is what stands before it.
func (f *specFlags) apply(spec *waterclockv1.JobSpec, flags *pflag.FlagSet, urls, command []string, stdin io.Reader) ([]string, error) {
	fields, err := f.workFlags.apply(spec, flags, urls, command, stdin)
	if err != nil {
		return nil, err
	}
	schedule, err := f.whenFlags.apply(spec.GetSchedule(), flags)
	if err != nil {
		return nil, err
	}
	if schedule != nil {
		spec.Schedule = schedule
		fields = append(fields, "schedule")
	}
	if len(given(flags, "label")) > 0 {
		if spec.Labels, err = labelPairs("--label", f.labels); err != nil {
			return nil, err
		}
		fields = append(fields, "labels")
	}
	if f.applyRetry(spec, flags) {
		fields = append(fields, "retry")
	}
	for _, simple := range []struct {
		flag, field string
		set         func()
	}{
		{"name", "name", func() { spec.Name = f.name }},
		{"queue", "queue", func() { spec.Queue = f.queue }},
		{"priority", "priority", func() { spec.Priority = priorityOf(f.priority.value) }},
		{"timeout", "attempt_timeout", func() { spec.AttemptTimeout = duration(f.timeout) }},
		{"deadline", "total_deadline", func() { spec.TotalDeadline = duration(f.total) }},
		{"start-deadline", "start_deadline", func() { spec.StartDeadline = duration(f.deadline) }},
		{"catch-up", "catch_up", func() { spec.CatchUp = catchUpOf(f.catchUp.value) }},
		{"overlap", "overlap", func() { spec.Overlap = overlapOf(f.overlap.value) }},
	} {
		if len(given(flags, simple.flag)) > 0 {
			simple.set()
			fields = append(fields, simple.field)
		}
	}
	return fields, nil
}

// applyRetry changes only what was given of the retry policy; the rest of it stays.
func (f *specFlags) applyRetry(spec *waterclockv1.JobSpec, flags *pflag.FlagSet) bool {
	names := given(flags, "max-attempts", "backoff", "max-backoff", "multiplier")
	if len(names) == 0 {
		return false
	}
	if spec.Retry == nil {
		spec.Retry = &waterclockv1.RetryPolicy{}
	}
	for _, name := range names {
		switch name {
		case "--max-attempts":
			spec.Retry.MaxAttempts = f.maxAttempts
		case "--backoff":
			spec.Retry.InitialBackoff = duration(f.backoff)
		case "--max-backoff":
			spec.Retry.MaxBackoff = duration(f.maxBackoff)
		case "--multiplier":
			spec.Retry.Multiplier = f.multiplier
		}
	}
	return true
}

func labelPairs(flag string, texts []string) (map[string]string, error) {
	m := make(map[string]string, len(texts))
	for _, text := range texts {
		key, value, found := strings.Cut(text, "=")
		if !found || key == "" {
			return nil, &fielderr.FieldError{Field: flag, Given: text, Allowed: "KEY=VALUE"}
		}
		m[key] = value
	}
	return m, nil
}

// split parts the arguments at --. Command is nil where there is none.
func split(c *cobra.Command, args []string) (before, command []string) {
	dash := c.ArgsLenAtDash()
	if dash < 0 {
		return args, nil
	}
	return args[:dash], append([]string{}, args[dash:]...)
}

func priorityOf(name string) waterclockv1.Priority {
	return waterclockv1.Priority(waterclockv1.Priority_value["PRIORITY_"+strings.ToUpper(name)])
}

func catchUpOf(name string) waterclockv1.CatchUp {
	return waterclockv1.CatchUp(waterclockv1.CatchUp_value["CATCH_UP_"+strings.ToUpper(name)])
}

func overlapOf(name string) waterclockv1.Overlap {
	return waterclockv1.Overlap(waterclockv1.Overlap_value["OVERLAP_"+strings.ToUpper(name)])
}
