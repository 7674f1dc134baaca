package crdb

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/store"
)

// fromCols are the places in shards from which due rows are read.
var fromCols = []column{{"shard", int4Kind, ""}, {"bucket", int8Kind, ""}, {"due_at", int8Kind, ""}, {"run_id", uuidKind, ""}}

// between reads a bounded range of each shard's keys; what follows joins to the rows t that are left.
func between(steps, columns, joins string) string {
	return "SELECT " + timerColumns + columns + " FROM " + unnest(1, fromCols) + " CROSS JOIN LATERAL (" +
		"SELECT " + selected("d", timerCols) + " FROM timers AS d WHERE d.shard = u.shard AND d.bucket >= u.bucket AND (d.bucket, d.due_at, d.run_id) > (u.bucket, u.due_at, u.run_id) " +
		"AND d.bucket <= $5 AND d.due_at < $6 AND " + steps + " ORDER BY d.bucket, d.due_at, d.run_id LIMIT $7::int8) AS t" + joins
}

func betweenArgs(from []store.ShardCursor, until time.Time, limit int) []any {
	b := newBatch(fromCols, len(from))
	for i := range from {
		b.int4(from[i].Shard)
		b.int8(store.Bucket(truncate(from[i].From.DueAt)))
		b.time(from[i].From.DueAt)
		b.uuid(from[i].From.RunID)
	}
	return b.args(store.Bucket(until), micros(until), int64(limit))
}

// readDue joins jobs and payloads only for the rows that are left.
var readDue = between("d.step = 2", ", j.name, j.created_at, j.spec, p.body",
	" JOIN jobs AS j ON j.job_id = ANY (ARRAY[t.job_id]) LEFT JOIN payloads AS p ON p.job_id = ANY (ARRAY[t.job_id])")

// ReadDue implements store.Planning.
func (s *Store) ReadDue(ctx context.Context, from []store.ShardCursor, until time.Time, limit int) ([]*store.DueRow, error) {
	if len(from) == 0 {
		return nil, nil
	}
	var due []*store.DueRow
	err := s.read(ctx, s.hot, collect(&due, scanDue, readDue, betweenArgs(from, until, limit)...))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(due, func(a, b *store.DueRow) int {
		return cmp.Or(a.DueAt.Compare(b.DueAt), cmp.Compare(a.Priority, b.Priority), a.Compare(b.TimerKey))
	})
	return due, nil
}

func scanDue(r *row) (d *store.DueRow, err error) {
	d = new(store.DueRow)
	if d.Timer, err = scanTimer(r); err != nil {
		return d, err
	}
	d.Name, d.JobCreatedAt = r.string(), r.time()
	if err := readSpec(r, &d.Spec); err != nil {
		return d, fmt.Errorf("job %s: %w", d.JobID, err)
	}
	d.Payload = r.bytes()
	return d, nil
}

var readInFlight = between("d.step IN (3, 4, 5)", "", "")

// ReadInFlight implements store.Planning.
func (s *Store) ReadInFlight(ctx context.Context, from []store.ShardCursor, until time.Time, limit int) (ts []store.Timer, err error) {
	if len(from) == 0 {
		return nil, nil
	}
	err = s.read(ctx, s.hot, collect(&ts, scanTimer, readInFlight, betweenArgs(from, until, limit)...))
	return ts, err
}

// ReadTimers implements store.Planning.
func (s *Store) ReadTimers(ctx context.Context, keys []store.TimerKey) (ts []store.Timer, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	err = s.read(ctx, s.hot, collect(&ts, scanTimer, readTimers, keysArgs(keys)...))
	return ts, err
}

const brokenSeries = "SELECT j.job_id FROM jobs AS j WHERE j.shard = $1 AND j.recurring AND j.state = 'active' AND j.job_id > $2 AND NOT EXISTS " +
	"(SELECT 1 FROM timers AS t WHERE t.job_id = ANY (ARRAY[j.job_id]) AND t.listed AND t.scheduled_at >= $3 AND t.origin = 'schedule' OFFSET 0) ORDER BY j.job_id LIMIT $4::int8"

// BrokenSeries implements store.Planning.
func (s *Store) BrokenSeries(ctx context.Context, shard int32, from time.Time, after uuid.UUID, limit int) (ids []uuid.UUID, err error) {
	err = s.read(ctx, s.lists, collect(&ids, func(r *row) (uuid.UUID, error) { return r.uuid(), nil }, brokenSeries,
		shard, [16]byte(after), micros(from), int64(limit)))
	return ids, err
}
