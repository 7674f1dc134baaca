// Package harness brings faults upon real processes of Waterclock while clients put load on it, and gathers what package checker needs to judge the outcome.
//
// It runs a single host (`waterclock dev`) or a cluster, with real processes, real signals and real commands; everything random is drawn from one seed, though what
// the processes make of it is theirs. It judges nothing itself. Command chaos/cmd/chaos calls it; it is no test, because it takes as long as it is told to.
package harness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/chaos/fault"
)

const (
	// quiet is how long after the faults everything may take to come to its end.
	quiet   = 30 * time.Second
	clients = 5 // of which one speaks NATS
	pace    = 250 * time.Millisecond
	// burstSize is more than the executor has slots, so that a kill finds runs in every step.
	burstSize = 24
)

// Options are what a fault run is asked for.
type Options struct {
	// Binary is the path of waterclock, built with its failpoints.
	Binary string
	// NATSServer is the path of nats-server, for a cluster; Old that of an older waterclock, for rolling deploys, where there is one.
	NATSServer, Old string
	// Child is the argument vector that runs Child.
	Child []string
	Seed  uint64
	// Store is sqlite (the single host) or postgres (the cluster).
	Store string
	// Nodes is how many NATS servers a cluster has; 0: 3.
	Nodes int
	// Lease is the AckWait of executors; 0: 3 s, so that a minute has room for many losses.
	Lease time.Duration
	// For is how long load and faults go on.
	For time.Duration
	// TrueClock tells that the binaries cannot be given a wrong clock.
	TrueClock bool
	// Faults are the groups of faults to draw from; none: all there are.
	Faults []string
	// Most is how many faults may land before the run ends; 0: no bound.
	Most int
	// Without are changes that no client asks for, to look behind what they bring to light.
	Without []checker.ChangeKind
	// Dir is where the artefacts go; it exists.
	Dir string
}

// Run brings faults upon a world and returns what came of it. An error means that the run itself went wrong, and nothing is proved.
func Run(ctx context.Context, o Options) (*Report, error) {
	r, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	var rep *Report
	if err = r.faults(ctx); err == nil {
		rep, err = r.judge(ctx)
	}
	return rep, errors.Join(err, r.close())
}

// open starts the world and makes the clients.
func open(ctx context.Context, o Options) (_ *rig, err error) {
	if o.Lease == 0 {
		o.Lease = 3 * time.Second
	}
	r := &rig{o: o, file: filepath.Join(o.Dir, "lines"), transport: &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: 10 * time.Second}}
	if r.logFile, err = os.Create(filepath.Join(o.Dir, "clients.log")); err != nil {
		return nil, fmt.Errorf("log of the clients: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	r.log = slog.New(slog.NewTextHandler(r.logFile, nil))
	if r.world, err = newWorld(o); err != nil {
		return nil, err
	}
	if err := r.world.start(ctx); err != nil {
		return nil, err
	}
	r.nc, err = nats.Connect(r.world.natsURL(), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.ReconnectBufSize(-1), nats.Timeout(2*time.Second))
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	r.end = time.Now().Add(r.o.For)
	if r.traffic, err = newTraffic(ctx, trafficOptions{
		Source: r.source, Transport: r.transport, APIs: r.world.apis(), Keys: r.world.keys(), NATS: r.nc, Queues: slices.Collect(maps.Keys(r.world.slots())),
		File: r.file, Child: o.Child, End: r.end, Murders: r.world.murders(), Without: o.Without, StoreURL: r.world.storeURL(), Log: r.log,
	}); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *rig) close() error {
	var err error
	if r.traffic != nil {
		err = r.traffic.close()
	}
	if r.nc != nil {
		r.nc.Close()
	}
	if r.world != nil {
		err = errors.Join(err, r.world.close())
	}
	r.transport.CloseIdleConnections()
	return errors.Join(err, r.logFile.Close())
}

func newWorld(o Options) (world, error) {
	switch o.Store {
	case "sqlite":
		h, err := newHost(o)
		if err != nil {
			return nil, err // and no world that is a nil pointer
		}
		return h, nil
	case "postgres":
		d, err := newDeployment(o)
		if err != nil {
			return nil, err
		}
		return d, nil
	default:
		return nil, fmt.Errorf("store: given %q, allowed: sqlite, postgres", o.Store)
	}
}

type rig struct {
	o         Options
	file      string
	log       *slog.Logger
	logFile   *os.File
	end       time.Time // of the load
	transport *http.Transport
	world     world
	nc        *nats.Conn
	nemesis   *nemesis
	traffic   *traffic
	// bursting is held by whoever uses the client of bursts.
	bursting sync.Mutex
	stirring sync.WaitGroup
	calls    context.Context // of what is asked for: it outlives the faults
}

// source gives each part its own stream of numbers, so that none depends on how the parts are interleaved.
func (r *rig) source(part uint64) *rand.Rand { return rand.New(rand.NewPCG(r.o.Seed, part)) } //nolint:gosec // not a secret

// faults runs load and faults until both are over.
func (r *rig) faults(ctx context.Context) error {
	offered, err := choose(aimed(r.offered(), r), r.o.Faults)
	if err != nil {
		return err
	}
	// Clients ask until they are answered, unless the run has gone wrong: nobody brings the world back then.
	calls, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	r.calls = calls
	r.nemesis = newNemesis(offered, r.lanes(), r.world.note, r.source)
	r.nemesis.most = r.o.Most

	load, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	var loadErr error
	wg.Go(func() { loadErr = r.traffic.work(load, calls) })
	if err = r.nemesis.work(calls, r.end.Add(-r.o.For/10)); err != nil {
		giveUp(err)
	}
	stop(errors.New("the load is over"))
	r.stirring.Wait()
	wg.Wait()
	return errors.Join(err, loadErr)
}

// offered are the faults that the world can bring with these binaries.
func (r *rig) offered() []fault.Fault {
	all := r.world.faults()
	if r.o.TrueClock {
		all = slices.DeleteFunc(all, func(f fault.Fault) bool { return f.Group == fault.Clock })
	}
	return all
}

// unavailable are the faults that it cannot bring, each with the reason.
func (r *rig) unavailable() []string {
	out := r.world.unavailable()
	if r.o.TrueClock {
		out = append(out, "clocks: the binaries were built with the true one")
	}
	return out
}

// lanes is how many faults may go on at the same time: what hits the one process of a single host hits everything.
func (r *rig) lanes() int {
	if r.o.Store == "sqlite" {
		return 1
	}
	return 2
}
