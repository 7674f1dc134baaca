// Package contend puts the systems that are measured behind one small interface: Waterclock on its two stores, in process and over its API, and its peers
// River and Asynq, each at the settings that are written down beside it.
//
// It measures nothing itself; package work does, through this interface, so that each contender is asked for the same. The contender runs in the calling
// process, together with whatever it starts.
package contend

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Job is what is asked for: a job that does nothing and knows its number.
type Job struct {
	Number uint64
	// Due is when it is to start; zero means now.
	Due time.Time
	// Level is its priority, 0 the most urgent to Levels-1. Most workloads use one level for all.
	Level int
	// Every, where not zero, makes it a series that begins at Due and ends before Until. Only kinds that are Recurring are asked for that.
	Every time.Duration
	Until time.Time
}

// Started is called by contenders at the start of each job, from any goroutine. Scheduled is when it was to start, zero where the contender does not tell.
type Started func(number uint64, scheduled time.Time)

// Levels is how many priorities every contender has. Ordinary is the one that it gives to a job for which none is said.
const (
	Levels   = 4
	Ordinary = 2
)

// BatchSize is how many jobs SubmitMany takes at most.
const BatchSize = 1000

// Contender is a system at work. Submit, SubmitMany and Done may be called by several goroutines at once.
type Contender interface {
	// Submit stores a job and returns when the contender calls it stored.
	Submit(ctx context.Context, j Job) error
	// SubmitMany stores up to BatchSize jobs in the quickest way that the contender offers for that, and returns when it calls all of them stored.
	SubmitMany(ctx context.Context, jobs []Job) error
	// Work begins to execute what is due; started is called at the start of each job. It may be called once; jobs wait until then.
	Work(ctx context.Context, started Started) error
	// Done tells whether every job that was submitted has ended and the contender has stored that. It is asked when all have started.
	Done(ctx context.Context) (bool, error)
	// Close ends everything. It may be called more than once.
	Close(ctx context.Context) error
}

// Reader is a contender that tells what became of jobs.
type Reader interface {
	// Read asks for the state of the run of the i-th job of those that were submitted one by one, counted round.
	Read(ctx context.Context, i int) error
}

// Env is what there is for contenders.
type Env struct {
	// PostgresDSN is that of an empty database, RedisAddr host:port of an empty Redis; empty where the contender does not ask for it.
	PostgresDSN, RedisAddr string
	// Dir is an empty folder.
	Dir string
	// Binary is the path of the product, for contenders that start it.
	Binary string
}

// Kind is a contender that can be opened.
type Kind struct {
	// Name is what flags and results call it; Title is for people.
	Name, Title string
	// Settings says at which settings it runs.
	Settings string
	// Postgres and Redis say which servers it needs.
	Postgres, Redis bool
	// SubmitsOnly are contenders that differ from another one only in the way in; workloads where that does not matter leave them out.
	SubmitsOnly bool
	// Reads are contenders that are Readers too.
	Reads bool
	// Recurring are contenders that store series of their own.
	Recurring bool

	open func(ctx context.Context, env Env) (Contender, error)
}

// GCPercent is by how much the heap of a measuring process may grow before garbage is collected: what `waterclock server` sets for itself, and what its peers gain by
// too.
const GCPercent = 300

// Kinds are all contenders, in the order of tables.
var Kinds = []Kind{
	{
		Name: "waterclock-postgres", Title: "Waterclock, PostgreSQL", Settings: "defaults, all roles and NATS in one process, submits in process",
		Postgres: true, Recurring: true, open: openPostgresNode,
	},
	{
		Name: "waterclock-sqlite", Title: "Waterclock, SQLite", Settings: "defaults, all roles and NATS in one process, submits in process",
		Recurring: true, open: openSQLiteNode,
	},
	{
		Name: "waterclock-postgres-rpc", Title: "Waterclock, PostgreSQL, over Connect",
		Settings: "defaults, `waterclock server`; submits over Connect (HTTP/1.1, kept alive), jobs in a Go worker of the client's process",
		Postgres: true, SubmitsOnly: true, Reads: true, open: openPostgresServer,
	},
	{
		Name: "waterclock-sqlite-rpc", Title: "Waterclock, SQLite, over Connect",
		Settings:    "defaults, `waterclock dev`; submits over Connect (HTTP/1.1, kept alive), jobs in a Go worker of the client's process",
		SubmitsOnly: true, Reads: true, open: openSQLiteServer,
	},
	{
		Name: "river", Title: "River 0.51, PostgreSQL", Settings: riverSettings,
		Postgres: true, open: openRiver,
	},
	{
		Name: "asynq", Title: "Asynq 0.26, Redis", Settings: asynqSettings,
		Redis: true, open: openAsynq,
	},
}

// Find returns the kind of a name.
func Find(name string) (Kind, error) {
	for _, k := range Kinds {
		if k.Name == name {
			return k, nil
		}
	}
	return Kind{}, fmt.Errorf("contender %q is not known", name)
}

// Open starts the contender so far that it takes jobs; it executes none before Work.
func (k *Kind) Open(ctx context.Context, env Env) (Contender, error) {
	c, err := k.open(ctx, env)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", k.Name, err)
	}
	return c, nil
}

// closers are what a contender has opened, closed in the reverse order.
type closers []func(context.Context) error

func (c *closers) add(f func(context.Context) error) { *c = append(*c, f) }

func (c *closers) close(ctx context.Context) error {
	var errs []error
	for len(*c) > 0 {
		last := len(*c) - 1
		errs = append(errs, (*c)[last](ctx))
		*c = (*c)[:last]
	}
	return errors.Join(errs...)
}
