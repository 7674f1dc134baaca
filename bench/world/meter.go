package world

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Usage is what processes used between two moments.
type Usage struct {
	// CPU of all processes, and of those that are not this one or its children (the database).
	CPU, DatabaseCPU time.Duration
	// Written is how many bytes were caused to be written to the disk, whoever caused it; WAL is how many of PostgreSQL's log were made.
	Written, WAL int64
	// Memory of all processes at the end in bytes, and of the database's and of this process's children among them; shared pages count once.
	Memory, DatabaseMemory, ChildMemory int64
	// Transactions is how many PostgreSQL says have ended in the database of the meter; its statistics lag by up to a second.
	Transactions int64
}

// Meter reads what this process, its children and the database's processes use.
type Meter struct {
	database []int
	wal      *pgx.Conn // nil: no PostgreSQL

	// OnMark, where not nil, is called when a measure begins.
	OnMark func()
}

// NewMeter returns a meter over this process and its children and the processes below the given ones. Where dsn is not empty, it reads the position of
// PostgreSQL's log too. Close ends it.
func NewMeter(ctx context.Context, database []int, dsn string) (*Meter, error) {
	m := &Meter{database: database}
	if dsn != "" {
		var err error
		if m.wal, err = pgx.Connect(ctx, dsn); err != nil {
			return nil, fmt.Errorf("meter: %w", err)
		}
	}
	return m, nil
}

// Close ends the meter's own connection.
func (m *Meter) Close(ctx context.Context) error {
	if m.wal == nil {
		return nil
	}
	return m.wal.Close(ctx)
}

// Mark is a moment from which usage counts.
type Mark struct {
	own, database totals
	lsn           int64
	transactions  int64
}

type totals struct {
	cpu     time.Duration
	written int64
	pids    []int
}

// Mark reads the counters now, where a measure begins.
func (m *Meter) Mark(ctx context.Context) (Mark, error) {
	if m.OnMark != nil {
		m.OnMark()
	}
	return m.read(ctx)
}

func (m *Meter) read(ctx context.Context) (Mark, error) {
	var k Mark
	all, err := processes()
	if err != nil {
		return k, fmt.Errorf("meter: %w", err)
	}
	if k.own, err = total(all, []int{os.Getpid()}); err != nil {
		return k, err
	}
	if k.database, err = total(all, m.database); err != nil {
		return k, err
	}
	if m.wal != nil {
		// The position is a number of 64 bits; the difference to 0/0 is that number in decimal.
		err = m.wal.QueryRow(ctx, "SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::int8, xact_commit + xact_rollback FROM pg_stat_database "+
			"WHERE datname = current_database()").Scan(&k.lsn, &k.transactions)
	}
	return k, err
}

// Since returns what was used since a mark.
func (m *Meter) Since(ctx context.Context, from Mark) (Usage, error) {
	now, err := m.read(ctx)
	if err != nil {
		return Usage{}, err
	}
	u := Usage{DatabaseCPU: now.database.cpu - from.database.cpu, WAL: now.lsn - from.lsn, Transactions: now.transactions - from.transactions}
	u.CPU = u.DatabaseCPU + now.own.cpu - from.own.cpu
	u.Written = now.own.written - from.own.written + now.database.written - from.database.written
	self, err := memory([]int{os.Getpid()})
	if err != nil {
		return u, err
	}
	if u.ChildMemory, err = memory(slices.DeleteFunc(now.own.pids, func(pid int) bool { return pid == os.Getpid() })); err != nil {
		return u, err
	}
	u.DatabaseMemory, err = memory(now.database.pids)
	u.Memory = self + u.ChildMemory + u.DatabaseMemory
	return u, err
}

func total(all map[int]stat, roots []int) (totals, error) {
	parents := make(map[int]int, len(all))
	for pid, s := range all {
		parents[pid] = s.parent
	}
	t := totals{pids: family(parents, roots)}
	for _, pid := range t.pids {
		t.cpu += all[pid].cpu
		text, err := readOf(pid, "io")
		if gone(err) {
			continue
		}
		if err != nil {
			return t, err
		}
		n, err := parseWritten(text)
		if err != nil {
			return t, fmt.Errorf("process %d: %w", pid, err)
		}
		t.written += n
	}
	return t, nil
}

func memory(pids []int) (int64, error) {
	var sum int64
	for _, pid := range pids {
		text, err := readOf(pid, "smaps_rollup")
		if gone(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		n, err := parsePSS(text)
		if err != nil {
			return 0, fmt.Errorf("process %d: %w", pid, err)
		}
		sum += n
	}
	return sum, nil
}
