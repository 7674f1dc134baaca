package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"

	"github.com/waterclock-io/waterclock/bench/contend"
	"github.com/waterclock-io/waterclock/bench/floor"
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
		stop, err := profile(r.Profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	values, err := r.values(ctx, meter)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(values)
}

func (r *request) values(ctx context.Context, meter *world.Meter) (work.Values, error) {
	if r.Workload == floor.Workload {
		f, err := floor.Find(r.Contender)
		if err != nil {
			return nil, err
		}
		return f.Do(ctx, r.Env, meter, r.FloorJobs)
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

func profile(path string) (stop func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close() // a profile that is cut short is seen when it is read
	}, nil
}
