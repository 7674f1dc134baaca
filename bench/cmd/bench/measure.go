package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/bench/floor"
	"github.com/waterclock-io/waterclock/bench/scan"
	"github.com/waterclock-io/waterclock/bench/work"
	"github.com/waterclock-io/waterclock/bench/world"
)

// request is what a measuring process is asked for, on its standard input.
type request struct {
	Workload  string      `json:"workload"`
	Contender string      `json:"contender"`
	Env       contend.Env `json:"env"`
	Sizes     work.Sizes  `json:"sizes"`
	FloorJobs int         `json:"floor_jobs"`
	Timers    int         `json:"timers"`
	History   int         `json:"history"`
	// Database are the processes of the servers that the contender uses.
	Database []int  `json:"database"`
	Profile  string `json:"profile"`
}

// measure measures once and writes the values.
func measure(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	var r request
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	meter, err := world.NewMeter(ctx, r.Database, r.Env.PostgresDSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, meter.Close(context.WithoutCancel(ctx))) }()
	if r.Profile != "" {
		p := &profile{path: r.Profile}
		meter.OnMark = p.begin
		defer func() { err = errors.Join(err, p.end()) }()
	}
	values, err := r.values(ctx, meter)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(values)
}

func (r *request) values(ctx context.Context, meter *world.Meter) (work.Values, error) {
	debug.SetGCPercent(contend.GCPercent)
	if r.Workload == floor.Workload {
		f, err := floor.Find(r.Contender)
		if err != nil {
			return nil, err
		}
		return f.Do(ctx, r.Env, meter, r.FloorJobs)
	}
	if r.Workload == scan.Workload || r.Workload == scan.PagesWorkload {
		s, err := scan.Find(r.Contender)
		if err != nil {
			return nil, err
		}
		if r.Workload == scan.PagesWorkload {
			return s.Pages(ctx, r.Env, meter, r.History)
		}
		return s.Do(ctx, r.Env, meter, r.Timers)
	}
	w, err := work.Find(r.Workload)
	if err != nil {
		return nil, err
	}
	k, err := contend.Find(r.Contender)
	if err != nil {
		return nil, err
	}
	return w.Do(ctx, &work.Task{Kind: k, Env: r.Env, Meter: meter, Sizes: r.Sizes})
}

// profile is a CPU profile of the time from the beginning of the last measure on: what prepares it is not of interest. Beside it comes one of what was allocated
// since the process began.
type profile struct {
	path string
	file *os.File
	err  error
}

func (p *profile) begin() {
	p.err = p.end()
	if p.err == nil {
		p.err = os.MkdirAll(filepath.Dir(p.path), 0o755)
	}
	if p.err == nil {
		p.file, p.err = os.Create(p.path)
	}
	if p.err == nil {
		p.err = pprof.StartCPUProfile(p.file)
	}
}

// end also tells what was wrong before.
func (p *profile) end() error {
	if p.file == nil || p.err != nil {
		return p.err
	}
	pprof.StopCPUProfile()
	err := p.file.Close()
	p.file = nil
	allocs, create := os.Create(p.path + ".allocs")
	if create != nil {
		return errors.Join(err, create)
	}
	return errors.Join(err, pprof.Lookup("allocs").WriteTo(allocs, 0), allocs.Close())
}
