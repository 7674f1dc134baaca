package harness

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib" // to look at what is left, as well as
	"github.com/nats-io/nats.go/jetstream"
	_ "modernc.org/sqlite" // here

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/streams"
)

// clusterKey reads the key that tickets are sealed with.
func clusterKey(ctx context.Context, store string) (_ []byte, err error) {
	db, err := openStore(store)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var key []byte
	if err := db.QueryRowContext(ctx, "SELECT key FROM cluster").Scan(&key); err != nil {
		return nil, fmt.Errorf("read the key of the cluster: %w", err)
	}
	return key, nil
}

// openStore opens the database at sqlite:PATH or postgres://… beside the processes, to look at it.
func openStore(store string) (*sql.DB, error) {
	driver, source := "pgx", store
	if path, is := strings.CutPrefix(store, "sqlite:"); is {
		// Readers of a write-ahead log hold nobody up.
		driver, source = "sqlite", "file:"+path+"?mode=ro&_pragma=busy_timeout(5000)"
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	db.SetMaxOpenConns(2)
	return db, nil
}

// left reads what SQL and JetStream still hold.
type left struct {
	db *sql.DB
	js jetstream.JetStream
}

func (l *left) read(ctx context.Context) (out checker.Left, err error) {
	if out.Timers, err = l.timers(ctx); err != nil {
		return out, fmt.Errorf("read timers: %w", err)
	}
	if out.Endless, err = l.endless(ctx); err != nil {
		return out, fmt.Errorf("read series: %w", err)
	}
	if out.Streams, err = l.streams(ctx); err != nil {
		return out, fmt.Errorf("read streams: %w", err)
	}
	return out, nil
}

func (l *left) timers(ctx context.Context) (out []checker.Timer, err error) {
	rows, err := l.db.QueryContext(ctx, "SELECT job_id, run_id, step, due_at, attempt, dispatch FROM timers")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var jobID, runID rowID
		var step job.Step
		var due int64
		var t checker.Timer
		if err := rows.Scan(&jobID, &runID, &step, &due, &t.Attempt, &t.Dispatch); err != nil {
			return nil, err
		}
		t.JobID, t.RunID, t.Step, t.DueAt = string(jobID), string(runID), step.String(), time.UnixMicro(due).UTC()
		out = append(out, t)
	}
	return out, rows.Err()
}

// endless are the active series that have no timer.
func (l *left) endless(ctx context.Context) (out []string, err error) {
	rows, err := l.db.QueryContext(ctx,
		"SELECT job_id FROM jobs WHERE recurring AND state = 'active' AND NOT EXISTS (SELECT 1 FROM timers WHERE timers.job_id = jobs.job_id)")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id rowID
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		out = append(out, string(id))
	}
	return out, rows.Err()
}

// rowID is an id as SQL has it: 16 bytes in SQLite, text from PostgreSQL.
type rowID string

// Scan implements sql.Scanner.
func (r *rowID) Scan(from any) error {
	var id uuid.UUID
	if err := id.Scan(from); err != nil {
		return fmt.Errorf("id %v: %w", from, err)
	}
	*r = rowID(id.String())
	return nil
}

// streams are those that must drain; the dead letters are looked at by what they say.
func (l *left) streams(ctx context.Context) ([]checker.Stream, error) {
	var out []checker.Stream
	list := l.js.ListStreams(ctx)
	for info := range list.Info() {
		name := info.Config.Name
		switch {
		case strings.HasPrefix(name, streams.RunsStream+"-"), name == streams.SubmitStream:
			out = append(out, checker.Stream{Name: name, Messages: info.State.Msgs})
		case name == streams.StatusStream:
			c, err := l.js.Consumer(ctx, name, streams.RecorderConsumer)
			if err != nil {
				return nil, err
			}
			ci, err := c.Info(ctx)
			if err != nil {
				return nil, err
			}
			out = append(out, checker.Stream{Name: name + " (not recorded)", Messages: ci.NumPending + uint64(ci.NumAckPending)}) //nolint:gosec // a count
		}
	}
	return out, list.Err()
}

func drained(l checker.Left) bool {
	for _, s := range l.Streams {
		if s.Messages > 0 {
			return false
		}
	}
	return len(l.Timers) == 0
}
