package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// lags are how long after a moment things happened.
type lags struct {
	all   []time.Duration
	early int
}

func (l *lags) add(d time.Duration) {
	l.all = append(l.all, d)
	if d < 0 {
		l.early++
	}
}

// at returns a quantile: the smallest value that is not below the given part of all.
func (l *lags) at(part float64) time.Duration {
	if len(l.all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l.all))
	return sorted[min(int(part*float64(len(sorted))), len(sorted)-1)]
}

type results struct {
	worker, exec, lone lags
	submitted          time.Duration
	idle               idle
}

func (r *results) print(w io.Writer, n sizes, binary string) {
	version, err := exec.Command(binary, "--version").Output()
	if err != nil {
		version = []byte("unknown version")
	}
	p := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) } //nolint:errcheck // nobody to tell
	p("%s · %d cores · %s/%s · %s · %s · %s", machine(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, time.Now().UTC().Format("2006-01-02 15:04 MST"),
		strings.TrimSpace(strings.SplitN(string(version), "\n", 2)[0]), runtime.Version())
	p("")
	p("| what | min | p50 | p99 | max | early |")
	p("|---|---|---|---|---|---|")
	row := func(what string, l *lags, early string) {
		p("| %s | %s | %s | %s | %s | %s |", what, ms(l.at(0)), ms(l.at(.5)), ms(l.at(.99)), ms(l.at(1)), early)
	}
	row(fmt.Sprintf("start after the scheduled time, Go worker, %d jobs", n.workers), &r.worker, fmt.Sprint(r.worker.early))
	row(fmt.Sprintf("start after the scheduled time, commands, %d jobs (as in history)", n.execs), &r.exec, fmt.Sprint(r.exec.early))
	row(fmt.Sprintf("submit to start, %d lone jobs", n.lone), &r.lone, "–")
	p("")
	p("| one process with %d jobs scheduled for later | |", n.later)
	p("|---|---|")
	p("| submit of all, in batches of 1,000 | %.1f s (%.0f/s) |", r.submitted.Seconds(), float64(n.later)/r.submitted.Seconds())
	p("| resident memory | %.0f MiB |", float64(r.idle.resident)/(1<<20))
	p("| CPU while idle, over 20 s | %.2f %% of one core |", r.idle.cpuPercent)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000) }

// machine names the processor.
func machine() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown machine"
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown machine"
}
