package crdb

import (
	"context"
	"slices"

	"github.com/waterclock-io/waterclock/store"
)

// markCols ask for rows to be handed out: the key, what the row must still be, and the place of the item in the batch.
var markCols = append(slices.Clone(keyCols), column{"version", int8Kind, ""}, column{"dispatch", int8Kind, ""}, column{"item", int4Kind, ""})

const markGuard = sameKey + " AND t.step = 2 AND t.version = u.version AND t.dispatch = u.dispatch"

var (
	markAny = "UPDATE timers AS t SET step = 3, dispatch = t.dispatch + 1, dispatched_at = " + sqlNow + ", generation = $8, mark_id = $9 FROM " +
		unnest(1, markCols) + " WHERE " + markGuard
	mark = markAny + " RETURNING u.item"
	// OFFSET 0 keeps PostgreSQL from making a join of it, and so from a walk along all listed rows.
	markAlone = markAny + " AND NOT EXISTS (SELECT 1 FROM timers AS o WHERE o.job_id = ANY (ARRAY[t.job_id]) AND o.listed AND o.scheduled_at < t.scheduled_at OFFSET 0) RETURNING u.item"
	asRead    = "SELECT u.item FROM " + unnest(1, markCols) + " JOIN timers AS t ON " + markGuard
	marked    = "SELECT u.item FROM " + unnest(1, itemCols) + " JOIN timers AS t ON " + sameKey + " AND t.mark_id = $7"
)

// MarkDispatched implements store.Planning.
//
// An earlier run that appears while the statement runs is not seen by it; that is the same as if it had appeared after the mark. One that is there is
// seen even while its row moves to another key, as both are in one snapshot.
func (s *Store) MarkDispatched(ctx context.Context, m store.Mark) ([]store.MarkResult, error) {
	if len(m.Items) == 0 {
		return nil, nil
	}
	results := make([]store.MarkResult, len(m.Items))
	var free, alone []int
	for i := range m.Items {
		if m.Items[i].Forbid {
			alone = append(alone, i)
		} else {
			free = append(free, i)
		}
	}
	var list []statement
	for _, part := range []struct {
		text  string
		items []int
	}{{mark, free}, {markAlone, alone}} {
		if len(part.items) == 0 {
			continue
		}
		list = append(list, statement{
			text: part.text, args: append(markArgs(&m, part.items), m.Generation, m.ID),
			begin: func() {
				for _, i := range part.items {
					results[i] = store.MarkStale
				}
			},
			each: func(r *row) error { results[r.int32()] = store.MarkDone; return nil },
		})
	}
	if err := s.write(ctx, list...); err != nil {
		return nil, err
	}
	s.findOverlaps(ctx, &m, results, alone)
	return results, nil
}

// findOverlaps tells, of the rows that were not handed out, those that still are as they were read. The marks are committed by now, so a failure may not
// become that of the call: the rows are called stale then, and a new read finds them.
func (s *Store) findOverlaps(ctx context.Context, m *store.Mark, results []store.MarkResult, alone []int) {
	alone = slices.DeleteFunc(alone, func(i int) bool { return results[i] == store.MarkDone })
	if len(alone) == 0 {
		return
	}
	var overlaps []int32
	err := s.read(ctx, s.hot, collect(&overlaps, func(r *row) (int32, error) { return r.int32(), nil }, asRead, markArgs(m, alone)...))
	if err != nil {
		s.log.WarnContext(ctx, "cannot tell overlapping runs from changed ones; they are read again", "rows", len(alone), "error", err)
		return
	}
	for _, i := range overlaps {
		results[i] = store.MarkOverlaps
	}
}

// markArgs are the rows of a statement over markCols, sorted by key.
func markArgs(m *store.Mark, items []int) []any {
	slices.SortFunc(items, func(x, y int) int { return m.Items[x].Key.Compare(m.Items[y].Key) })
	b := newBatch(markCols, len(items))
	for _, i := range items {
		it := &m.Items[i]
		addKey(b, &it.Key)
		b.int8(it.Version)
		b.int8(it.Dispatch)
		b.int4(int32(i)) //nolint:gosec // batches are small
	}
	return b.args()
}

// Marked implements store.Planning.
func (s *Store) Marked(ctx context.Context, m store.Mark) ([]bool, error) {
	found := make([]bool, len(m.Items))
	if len(found) == 0 {
		return found, nil
	}
	b := newBatch(itemCols, len(m.Items))
	for i := range m.Items {
		addItem(b, &m.Items[i].Key, m.Items[i].Dispatch, i)
	}
	err := s.read(ctx, s.hot, statement{text: marked, args: b.args(m.ID), each: func(r *row) error { found[r.int32()] = true; return nil }})
	if err != nil {
		return nil, err
	}
	return found, nil
}
