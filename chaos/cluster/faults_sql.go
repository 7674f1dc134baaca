package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/chaos/process"
)

// sqlFaults hit the database itself.
func (c *Cluster) sqlFaults() []fault.Fault {
	p := c.sql
	on := func(kind string, bring fault.Bringer) fault.Fault {
		return newFault(kind, fault.SQL, p.target, bring)
	}
	out := []fault.Fault{
		on("sql restarted", func(ctx context.Context, rng *rand.Rand) error {
			// At once: sessions are broken off, and the next start recovers from the log. A kill -9 of the postmaster alone would leave backends behind.
			if err := p.Signal(syscall.SIGQUIT); err != nil {
				return err
			}
			<-p.Ended()
			if err := fault.Wait(ctx, fault.Between(rng, 0, downFor)); err != nil {
				return err
			}
			return p.Start(ctx)
		}),
		on("sql stopped", func(ctx context.Context, rng *rand.Rand) error {
			return fault.Lasting(ctx, fault.Between(rng, time.Second, 5*time.Second), func() error { return p.all(syscall.SIGSTOP) }, func() error { return p.all(syscall.SIGCONT) })
		}),
		on("sql out of connections", p.takeConnections),
	}
	if p.full == nil {
		out = append(out, on("sql disk full", p.fillDisk))
	}
	return out
}

const (
	// hoarder is the application name of the sessions that take the connections.
	hoarder  = "chaos hoarder"
	tooMany  = "53300"
	diskFull = "53100"
)

// takeConnections ends the roles' sessions and takes every place for one, over and over for a while.
func (p *postgres) takeConnections(ctx context.Context, rng *rand.Rand) (err error) {
	var taken []*pgx.Conn
	defer func() {
		for _, conn := range taken {
			_ = conn.Close(context.WithoutCancel(ctx)) // ended by the server, at worst
		}
	}()
	landed := false
	for over := time.Now().Add(fault.Between(rng, time.Second, 5*time.Second)); time.Now().Before(over); {
		err := p.exec(ctx, "postgres", fmt.Sprintf("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '%s' AND application_name <> '%s'", owner, hoarder))
		var full *pgconn.PgError
		if errors.As(err, &full) && full.Code == tooMany {
			landed = true // even the places for superusers are taken, by those who are about to be refused
			continue
		}
		if err != nil {
			return err
		}
		for {
			conn, err := pgx.Connect(ctx, p.dsn(owner, database)+"&application_name="+strings.ReplaceAll(hoarder, " ", "%20"))
			var refused *pgconn.PgError
			if errors.As(err, &refused) && refused.Code == tooMany {
				landed = true
				break
			}
			if err != nil {
				return fmt.Errorf("take a connection: %w", err)
			}
			taken = append(taken, conn)
		}
		if err := fault.Wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	if !landed {
		return fault.ErrNotLanded
	}
	return nil
}

// fillDisk fills the disk until PostgreSQL is refused room, for a while. It may give up over that; then it is started again.
func (p *postgres) fillDisk(ctx context.Context, rng *rand.Rand) error {
	landed := false
	err := fault.Lasting(ctx, fault.Between(rng, time.Second, 5*time.Second), func() error {
		if err := p.folder.fill(); err != nil {
			return fmt.Errorf("fill the disk: %w", err)
		}
		err := p.exec(ctx, database, "CREATE TABLE chaos_full AS SELECT repeat('x', 1000) FROM generate_series(1, 20000)")
		var refused *pgconn.PgError
		landed = errors.As(err, &refused) && refused.Code == diskFull || err != nil && refused == nil // the latter: it went down over it
		return nil
	}, p.folder.empty)
	if err != nil {
		return err
	}
	select {
	case <-p.Ended():
		err = p.Start(ctx)
	default:
		err = p.recovered(ctx)
	}
	if err != nil {
		return err
	}
	if err := p.exec(ctx, database, "DROP TABLE IF EXISTS chaos_full"); err != nil {
		return err
	}
	if !landed {
		return fault.ErrNotLanded
	}
	return nil
}

// recovered waits until PostgreSQL takes connections again, and starts it where it gives up over its recovery.
func (p *postgres) recovered(ctx context.Context) error {
	up, cancel := context.WithTimeoutCause(ctx, process.UpLimit, fmt.Errorf("it does not take connections %s after its disk was full", process.UpLimit))
	defer cancel()
	err := p.AwaitUp(up)
	if errors.Is(err, process.ErrEnded) {
		return p.Start(ctx)
	}
	return err
}
