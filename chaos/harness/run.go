// Package harness brings faults upon a real `waterclock dev` while clients put load on it, and gathers what package checker needs to judge the outcome.
//
// It runs one host with real processes, real signals and real commands; everything random is drawn from one seed, though what the processes make of it is
// theirs. It judges nothing itself. Command chaos/cmd/chaos calls it; it is no test, because it takes as long as it is told to.
package harness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/proto/waterclock/v1/waterclockv1connect"
)

const (
	// lease is the AckWait of the host: short, so that a minute has room for many losses.
	lease = 3 * time.Second
	// quiet is how long after the faults everything may take to come to its end.
	quiet   = 30 * time.Second
	clients = 5 // of which one speaks NATS
	pace    = 250 * time.Millisecond
	// burstSize is more than the executor has slots, so that a kill finds runs in every step.
	burstSize = 24
)

// Options are what a fault run is asked for.
type Options struct {
	// Binary is the path of waterclock.
	Binary string
	// Child is the argument vector that runs Child.
	Child []string
	Seed  uint64
	// For is how long load and faults go on.
	For   time.Duration
	Kills int
	// Without are changes that no client asks for, to look behind what they bring to light.
	Without []checker.ChangeKind
	// Dir is where the artefacts go; it exists.
	Dir string
}

// Run brings faults upon a host and returns what came of it. An error means that the run itself went wrong, and nothing is proved.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	r := &rig{o: o, file: filepath.Join(o.Dir, "lines")}
	logFile, err := os.Create(filepath.Join(o.Dir, "clients.log"))
	if err != nil {
		return nil, fmt.Errorf("log of the clients: %w", err)
	}
	r.log = slog.New(slog.NewTextHandler(logFile, nil))
	defer func() { err = errors.Join(err, logFile.Close()) }()
	if r.host, err = newHost(o, o.Dir); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.host.close()) }()
	if err := r.host.start(ctx); err != nil {
		return nil, err
	}
	r.nc, err = nats.Connect(r.host.nats, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.ReconnectBufSize(-1), nats.Timeout(2*time.Second))
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	defer r.nc.Close()
	if err := r.faults(ctx); err != nil {
		return nil, err
	}
	return r.judge(ctx)
}

type rig struct {
	o       Options
	file    string
	log     *slog.Logger
	host    *host
	nc      *nats.Conn
	nemesis *nemesis
	clients []*client
	asked   []Fault
	seen    []checker.Attempt
}

// source gives each part its own stream of numbers, so that none depends on how the parts are interleaved.
func (r *rig) source(part uint64) *rand.Rand { return rand.New(rand.NewPCG(r.o.Seed, part)) } //nolint:gosec // not a secret

// faults runs load and faults until both are over.
func (r *rig) faults(ctx context.Context) error {
	var number atomic.Int64
	next := func() int { return int(number.Add(1)) }
	end := time.Now().Add(r.o.For)
	// Clients ask until they are answered, unless the run has gone wrong: nobody brings the host back then.
	calls, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	for i := range clients + 1 {
		rng := r.source(uint64(10 + i)) //nolint:gosec // small
		m := &maker{rng: rng, file: r.file, child: r.o.Child, end: end}
		c := newClient(fmt.Sprintf("client%d", i), rng, m, r.host.client, r.host.url, r.log, next)
		c.without = map[checker.ChangeKind]bool{}
		for _, kind := range r.o.Without {
			c.without[kind] = true
		}
		if i == 1 {
			c.nats = r.nc
		}
		r.clients = append(r.clients, c)
	}
	bursts := r.clients[clients] // does nothing else
	r.nemesis = &nemesis{
		host: r.host, rng: r.source(1), landed: map[Fault]int{},
		burst:   func() { bursts.burst(calls, burstSize) },
		cancels: func() { bursts.cancelLast(calls, burstSize) },
	}
	r.asked = plan(r.source(2), r.o.Kills)

	load, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	for _, c := range r.clients[:clients] {
		wg.Go(func() { c.work(load, calls, pace) })
	}
	wg.Go(func() { r.probe(load) })
	err := r.nemesis.work(ctx, r.asked, time.Until(end)*9/10)
	if err == nil {
		err = wait(ctx, time.Until(end))
	}
	if err != nil {
		giveUp(err)
	}
	stop(errors.New("the load is over"))
	wg.Wait()
	bursts.asking.Wait()
	return err
}

// probe reads history while the faults go on.
func (r *rig) probe(ctx context.Context) {
	rng, rd := r.source(3), r.reader()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		jobs := r.clients[rng.IntN(len(r.clients))].told()
		if len(jobs) == 0 {
			continue
		}
		j := jobs[rng.IntN(len(jobs))]
		if rd.one(ctx, &j) != nil {
			continue // it is being killed
		}
		for i := range j.Runs {
			r.seen = append(r.seen, j.Runs[i].Attempts...)
		}
	}
}

func (r *rig) reader() *reader {
	return &reader{
		jobs: waterclockv1connect.NewJobServiceClient(r.host.client, r.host.url), runs: waterclockv1connect.NewRunServiceClient(r.host.client, r.host.url),
	}
}

// judge waits for everything to end, and hands what is known to the checker.
func (r *rig) judge(ctx context.Context) (*Report, error) {
	h := &checker.History{Seen: r.seen}
	for _, c := range r.clients {
		h.Jobs = append(h.Jobs, c.told()...)
	}
	healed := time.Now()
	if due := lastDue(h.Jobs); due.After(healed) {
		healed = due
	}
	var err error
	var quietAfter time.Duration
	if h.Left, quietAfter, err = r.settle(ctx, healed); err != nil {
		return nil, err
	}
	if err := r.reader().all(ctx, h.Jobs); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(r.file)
	if err != nil {
		return nil, fmt.Errorf("read what the commands wrote: %w", err)
	}
	if h.Work, err = checker.ParseLines(string(text)); err != nil {
		return nil, fmt.Errorf("read what the commands wrote: %w", err)
	}
	stopErr := r.host.stop(quiet)
	alive, err := outliving(r.file)
	if err != nil {
		return nil, err
	}
	rep := r.report(h, quietAfter)
	if stopErr != nil {
		rep.Failures = append(rep.Failures, stopErr.Error())
	}
	if alive > 0 {
		rep.Failures = append(rep.Failures, fmt.Sprintf("%d commands outlive the host", alive))
	}
	return rep, nil
}

// lastDue is when the last occurrence of all falls due.
func lastDue(jobs []checker.Job) time.Time {
	var last time.Time
	of := func(s schedule.Schedule) {
		at := s.At
		if s.Kind != schedule.Once {
			at = s.End
		}
		if at.After(last) {
			last = at
		}
	}
	for _, j := range jobs {
		of(j.Schedule)
		for _, ch := range j.Changes {
			if ch.Kind == checker.Update {
				of(ch.Schedule)
			}
		}
	}
	return last
}

// settle waits until nothing is left, or the time for it is over; it returns what is left and how long that took.
func (r *rig) settle(ctx context.Context, healed time.Time) (checker.Left, time.Duration, error) {
	if err := wait(ctx, time.Until(healed)); err != nil {
		return checker.Left{}, 0, err
	}
	l, err := openLeft(r.o.Dir, r.nc)
	if err != nil {
		return checker.Left{}, 0, err
	}
	defer func() { _ = l.db.Close() }() // read-only
	for {
		one, cancel := context.WithTimeout(ctx, 10*time.Second)
		now, err := l.read(one)
		cancel()
		since := time.Since(healed)
		switch {
		case err == nil && drained(now), err == nil && since > quiet:
			return now, since, nil
		case err != nil && since > quiet:
			return now, since, err
		}
		if err := wait(ctx, 200*time.Millisecond); err != nil {
			return now, since, err
		}
	}
}
