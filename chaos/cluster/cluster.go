// Package cluster starts a whole deployment of Waterclock on this machine, for fault runs: three NATS servers that keep each stream three times, PostgreSQL, and
// two or three processes of each role, all on 127.0.0.1 and with a proxy (package chaos/proxy) on every link. It offers the faults that it can bring about.
//
// It puts no load on them and judges nothing: package chaos/harness does the one, chaos/checker the other. It is for Linux.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/chaos/process"
)

// OwnQueue is a queue of the namespace "default" that the executors serve beside the one that all namespaces share.
const OwnQueue = "own"

// Namespaces are those that Keys has a key for.
var Namespaces = []string{"default", "alpha", "beta"}

// Options say what a cluster is made of. Zero durations and numbers mean the defaults that stand beside them.
type Options struct {
	// Waterclock is the path of the binary that runs the roles, with its failpoints compiled in.
	Waterclock string
	// Old is the path of an older one, for rolling deploys; empty = none.
	Old string
	// NATSServer is the path of a nats-server: `go build github.com/nats-io/nats-server/v2`.
	NATSServer string
	// PostgresBin is the folder of initdb and postgres; empty = WATERCLOCK_PG_BIN, PATH, then Debian's folders.
	PostgresBin string
	// Child is the argument vector of the commands that executors may run; empty = they run none.
	Child []string
	// Dir is where logs and data go; it exists. Data is removed at the end, logs stay.
	Dir string

	// Nodes is how many NATS servers there are, each with a copy of every stream: 3, or 1.
	Nodes int

	AckWait, Heartbeat, Margin time.Duration // 3s, 500ms, 1s
	DrainGrace                 time.Duration // 3s
	Slots                      int           // 12
}

func (o Options) withDefaults() Options {
	def := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.AckWait, 3*time.Second)
	def(&o.Heartbeat, 500*time.Millisecond)
	def(&o.Margin, time.Second)
	def(&o.DrainGrace, 3*time.Second)
	if o.Slots == 0 {
		o.Slots = 12
	}
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	return o
}

// Cluster is a running deployment.
type Cluster struct {
	o       Options
	http    *http.Client
	nats    *natsCluster
	sql     *postgres
	members []*member
	keys    map[string]string
	// stopping is done by the first call of Stop alone, and stopErr what came of it.
	stopping sync.Once
	stopErr  error
	// unsupervised ends the supervision of executors; nil before it begins.
	unsupervised func() error
}

// Start starts everything and returns once every process is up and the streams exist with all their copies. On an error nothing is left running.
func Start(ctx context.Context, o Options) (_ *Cluster, err error) {
	o = o.withDefaults()
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, fmt.Errorf("folder of the cluster: %w", err)
	}
	c := &Cluster{o: o, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, keys: map[string]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
		}
	}()
	// What does not need each other starts at once: a start is mostly waiting.
	if c.nats, err = newNATS(o, c.http); err != nil {
		return nil, err
	}
	if c.sql, err = newPostgres(o); err != nil {
		return nil, err
	}
	if err := together(func() error { return c.nats.start(ctx) }, func() error { return c.startSQL(ctx) }); err != nil {
		return nil, err
	}
	if err := c.makeMembers(); err != nil {
		return nil, err
	}
	// One alone makes the streams: those who make them at once wait for each other, ten seconds at a time.
	if err := c.members[0].Start(ctx); err != nil {
		return nil, err
	}
	starts := make([]func() error, len(c.members)-1)
	for i, m := range c.members[1:] {
		starts[i] = func() error { return m.Start(ctx) }
	}
	if err := together(starts...); err != nil {
		return nil, err
	}
	if err := c.nats.awaitCurrent(ctx); err != nil {
		return nil, err
	}
	watch, end := context.WithCancel(context.WithoutCancel(ctx))
	over := make(chan error, 1)
	go func() { over <- c.supervise(watch) }()
	c.unsupervised = func() error {
		end()
		return <-over
	}
	return c, nil
}

// startSQL starts PostgreSQL and gives it schema and keys.
func (c *Cluster) startSQL(ctx context.Context) error {
	if err := c.sql.init(ctx); err != nil {
		return err
	}
	if _, err := c.command(ctx, "migrate", "up"); err != nil {
		return err
	}
	for _, ns := range Namespaces {
		key, err := c.command(ctx, "keys", "create", "--namespace", ns, "--note", "fault run")
		if err != nil {
			return err
		}
		c.keys[ns] = strings.TrimSpace(key)
	}
	return nil
}

// together calls all at once and joins what went wrong.
func together(calls ...func() error) error {
	errs := make([]error, len(calls))
	var all sync.WaitGroup
	for i, call := range calls {
		all.Go(func() { errs[i] = call() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// APIs are the addresses of the API, one of each process, without a proxy.
func (c *Cluster) APIs() []string {
	var out []string
	for _, m := range c.of("api") {
		out = append(out, m.url)
	}
	return out
}

// NATSURLs are the addresses of the NATS servers, separated by commas, without a proxy.
func (c *Cluster) NATSURLs() string { return c.nats.urls() }

// DSN is the address of the database, as its superuser and without a proxy: connections are left for it when the roles find none.
func (c *Cluster) DSN() string { return c.sql.dsn(superuser, database) }

// Keys has an API key of each of Namespaces.
func (c *Cluster) Keys() map[string]string { return c.keys }

// Slots are how many runs all executors together may work on at once.
func (c *Cluster) Slots() int { return len(c.of("executor")) * c.o.Slots }

// BlobDir is the folder of the blob store that the processes share.
func (c *Cluster) BlobDir() string { return filepath.Join(c.o.Dir, "blobs") }

// Processes are all of the deployment.
func (c *Cluster) Processes() []*process.Process {
	out := processesOf(c.members)
	if c.nats != nil {
		for _, n := range c.nats.nodes {
			out = append(out, n.Process)
		}
	}
	if c.sql != nil {
		out = append(out, c.sql.Process)
	}
	return out
}

// Process finds one by its name, "api-1" to "executor-3", "nats-1" to "nats-3" or "sql"; nil where there is none.
func (c *Cluster) Process(name string) *process.Process {
	all := c.Processes()
	if i := slices.IndexFunc(all, func(p *process.Process) bool { return p.Name() == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// LogFiles are the logs of all processes.
func (c *Cluster) LogFiles() []string {
	var out []string
	for _, p := range c.Processes() {
		out = append(out, p.LogFile())
	}
	return out
}

// Faults are those that this cluster can bring about. Each may be called at any time while the cluster runs; those that hit the same process, or NATS or SQL as a
// whole, wait for each other.
func (c *Cluster) Faults() []fault.Fault {
	return slices.Concat(c.processFaults(), c.deployFaults(), c.linkFaults(), c.natsFaults(), c.streamFaults(), c.sqlFaults(), c.armedFaults())
}

// Unavailable are faults that this cluster cannot bring about, each with the reason.
func (c *Cluster) Unavailable() []string {
	var out []string
	if c.sql.full != nil {
		out = append(out, fmt.Sprintf("sql disk full: %v", c.sql.full))
	}
	if c.o.Old == "" {
		out = append(out, "rolling deploy old and new: no older binary was given")
	}
	return out
}
