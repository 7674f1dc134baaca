package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/store"
)

const readDue = "SELECT " + timerColumns + ", j.name, j.created_at, j.spec, p.body " +
	"FROM timers t JOIN jobs j ON j.job_id = t.job_id LEFT JOIN payloads p ON p.job_id = t.job_id " +
	"WHERE t.shard = ? AND (t.bucket, t.due_at, t.run_id) > (?, ?, ?) AND t.bucket <= ? AND t.due_at < ? AND t.step = 2 " +
	"ORDER BY t.bucket, t.due_at, t.run_id LIMIT ?"

// ReadDue implements store.Planning.
func (s *Store) ReadDue(ctx context.Context, from []store.ShardCursor, until time.Time, limit int) ([]*store.DueRow, error) {
	var due []*store.DueRow
	err := s.read(ctx, func(c *conn) error {
		for _, cur := range from {
			err := c.query(readDue, func(r *row) error {
				d := &store.DueRow{Timer: scanTimer(r), Name: r.string(), JobCreatedAt: r.time()}
				if err := unmarshalSpec(r.string(), &d.Spec); err != nil {
					return fmt.Errorf("job %s: %w", d.JobID, err)
				}
				d.Payload = r.bytes()
				due = append(due, d)
				return nil
			}, int64(cur.Shard), store.Bucket(cur.From.DueAt), micros(cur.From.DueAt), cur.From.RunID[:], store.Bucket(until), micros(until), int64(limit))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(due, func(a, b *store.DueRow) int {
		return cmp.Or(a.DueAt.Compare(b.DueAt), cmp.Compare(a.Priority, b.Priority), a.Compare(b.TimerKey))
	})
	return due, nil
}

const (
	mark = "UPDATE timers SET step = 3, dispatch = dispatch + 1, dispatched_at = ?, generation = ?, mark_id = ? " +
		"WHERE " + timerKey + " AND step = 2 AND version = ? AND dispatch = ?"
	markAlone = mark + " AND NOT EXISTS (SELECT 1 FROM timers o INDEXED BY timers_listed WHERE o.job_id = ? AND o.listed AND o.scheduled_at < ?)"
	asRead    = "SELECT 1 FROM timers WHERE " + timerKey + " AND step = 2 AND version = ? AND dispatch = ?"
)

// MarkDispatched implements store.Planning.
func (s *Store) MarkDispatched(ctx context.Context, m store.Mark) ([]store.MarkResult, error) {
	if len(m.Items) == 0 {
		return nil, nil
	}
	results := make([]store.MarkResult, len(m.Items))
	// In key order each page of the table is met once.
	order := make([]int, len(m.Items))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return m.Items[a].Key.Compare(m.Items[b].Key) })
	err := s.write(ctx, len(m.Items), func(c *conn) error {
		now := micros(s.clock())
		for _, i := range order {
			var err error
			if results[i], err = c.mark(&m, &m.Items[i], now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

func (c *conn) mark(m *store.Mark, it *store.MarkItem, now int64) (store.MarkResult, error) {
	args := []any{
		now, m.Generation, m.ID,
		int64(it.Key.Shard), store.Bucket(it.Key.DueAt), micros(it.Key.DueAt), it.Key.RunID[:], it.Version, it.Dispatch,
		it.JobID[:], micros(it.ScheduledAt),
	}
	text, n := markAlone, len(args)
	if !it.Forbid {
		text, n = mark, n-2
	}
	changed, err := c.exec(text, args[:n]...)
	switch {
	case err != nil:
		return store.MarkStale, err
	case changed > 0:
		return store.MarkDone, nil
	case !it.Forbid:
		return store.MarkStale, nil
	}
	there, err := c.has(asRead, args[3:9]...)
	if there {
		return store.MarkOverlaps, err
	}
	return store.MarkStale, err
}

// Marked implements store.Planning.
func (s *Store) Marked(ctx context.Context, m store.Mark) ([]bool, error) {
	marked := make([]bool, len(m.Items))
	err := s.read(ctx, func(c *conn) error {
		for i := range m.Items {
			k := &m.Items[i].Key
			var err error
			marked[i], err = c.has("SELECT 1 FROM timers WHERE "+timerKey+" AND mark_id = ?",
				int64(k.Shard), store.Bucket(k.DueAt), micros(k.DueAt), k.RunID[:], m.ID)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return marked, err
}

const readInFlight = "SELECT " + timerColumns + " FROM timers t WHERE t.shard = ? AND (t.bucket, t.due_at, t.run_id) > (?, ?, ?) " +
	"AND t.bucket <= ? AND t.due_at < ? AND t.step IN (3, 4, 5) ORDER BY t.bucket, t.due_at, t.run_id LIMIT ?"

// ReadInFlight implements store.Planning.
func (s *Store) ReadInFlight(ctx context.Context, from []store.ShardCursor, until time.Time, limit int) (ts []store.Timer, err error) {
	err = s.read(ctx, func(c *conn) error {
		for i := range from {
			k := &from[i].From
			err := c.query(readInFlight, func(r *row) error { ts = append(ts, scanTimer(r)); return nil },
				int64(from[i].Shard), store.Bucket(k.DueAt), micros(k.DueAt), k.RunID[:], store.Bucket(until), micros(until), int64(limit))
			if err != nil {
				return err
			}
		}
		return nil
	})
	return ts, err
}

// ReadTimers implements store.Planning.
func (s *Store) ReadTimers(ctx context.Context, keys []store.TimerKey) ([]store.Timer, error) {
	var ts []store.Timer
	err := s.read(ctx, func(c *conn) error {
		for i := range keys {
			t, err := c.timer(&keys[i])
			if err != nil {
				return err
			}
			if t != nil {
				ts = append(ts, *t)
			}
		}
		return nil
	})
	return ts, err
}

const brokenSeries = "SELECT j.job_id FROM jobs j INDEXED BY jobs_sweep WHERE j.shard = ? AND j.recurring AND j.state = 'active' AND j.job_id > ? " +
	"AND NOT EXISTS (SELECT 1 FROM timers t INDEXED BY timers_listed " +
	"WHERE t.job_id = j.job_id AND t.listed AND t.scheduled_at >= ? AND t.origin = 'schedule') ORDER BY j.job_id LIMIT ?"

// BrokenSeries implements store.Planning.
func (s *Store) BrokenSeries(ctx context.Context, shard int32, from time.Time, after uuid.UUID, limit int) (ids []uuid.UUID, err error) {
	err = s.read(ctx, func(c *conn) error {
		return c.query(brokenSeries, func(r *row) error { ids = append(ids, r.uuid()); return nil },
			int64(shard), after[:], micros(from), int64(limit))
	})
	return ids, err
}
