package crdb

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/internal/failpoint"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// startCols are itemCols with what a start sets.
var startCols = append(slices.Clone(itemCols), column{"started_at", int8Kind, ""}, column{"executor", textKind, ""})

const atDispatch = sameKey + " AND t.dispatch = u.dispatch"

var (
	// Who needs a job may write it, so the lock is the strong one: two that share a weak one and then write wait for each other.
	lockJobs = "SELECT " + jobColumns + " FROM jobs AS j WHERE j.job_id = ANY ($1::uuid[]) ORDER BY j.job_id FOR UPDATE"
	lockRows = "SELECT u.item, " + timerColumns + " FROM " + unnest(1, itemCols) + " JOIN timers AS t ON " + atDispatch +
		" ORDER BY u.shard, u.bucket, u.due_at, u.run_id FOR UPDATE OF t"
	startRows = "UPDATE timers AS t SET step = 4, started_at = u.started_at, executor = u.executor FROM " + unnest(1, startCols) +
		" WHERE " + atDispatch + " AND t.step = 3"
	followRows = "UPDATE timers AS t SET followed = true FROM " + unnest(1, itemCols) + " WHERE " + atDispatch + " AND NOT t.followed"
	endRows    = "DELETE FROM timers AS t USING " + unnest(1, itemCols) + " WHERE " + atDispatch + " RETURNING u.item, " + timerColumns
)

// Record implements store.Recording. It takes two round trips: one that locks, guards and takes rows away, and one that writes what was decided.
func (s *Store) Record(
	ctx context.Context, reports []store.Report, decide func(i int, t *store.Timer, j *job.Job, now time.Time) store.Change,
) ([]store.ReportResult, error) {
	if len(reports) == 0 {
		return nil, nil
	}
	rec, err := newRecording(reports)
	if err != nil {
		return nil, err
	}
	err = s.transact(ctx, func(ctx context.Context, t *tx) error {
		rec.reset()
		t.queue(rec.guard()...)
		if err := t.flush(ctx); err != nil {
			return err
		}
		rec.apply()
		w := decisions{made: map[store.TimerKey]bool{}}
		for _, i := range rec.order {
			if rec.results[i].Applied && reports[i].Kind != store.ReportStart {
				w.add(i, decide(i, own(rec.results[i].Timer), rec.job(i), rec.now), rec.jobs)
			}
		}
		list, err := w.statements()
		if err != nil {
			return err
		}
		t.queue(list...)
		failpoint.Here(failpoint.RecorderCommitting)
		if err := t.commit(ctx); err != nil {
			return err
		}
		w.answer(rec.results)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return rec.results, nil
}

// recording is one batch of reports under way: which rows its guards hold for.
type recording struct {
	reports []store.Report
	order   []int       // by key; of one row ends come last, and else what came first
	rows    []int       // of these, the first for each row and dispatch
	ends    []int       // the first end for each row and dispatch
	starts  []int       // all
	follows []int       // all
	needed  []uuid.UUID // sorted

	results []store.ReportResult
	found   map[int]*store.Timer // by the first report for the row, as it was before the batch
	jobs    map[uuid.UUID]*job.Job
	now     time.Time
}

func newRecording(reports []store.Report) (*recording, error) {
	rec := &recording{reports: reports, order: make([]int, len(reports))}
	for i := range rec.order {
		rec.order[i] = i
	}
	slices.SortStableFunc(rec.order, func(a, b int) int {
		if c := reports[a].Key.Compare(reports[b].Key); c != 0 {
			return c
		}
		return endsLast(reports[a].Kind) - endsLast(reports[b].Kind)
	})
	for at, i := range rec.order {
		r := &reports[i]
		if r.NeedJob {
			rec.needed = append(rec.needed, r.JobID)
		}
		if rec.first(at, false) == i {
			rec.rows = append(rec.rows, i)
		}
		switch r.Kind {
		case store.ReportStart:
			rec.starts = append(rec.starts, i)
		case store.ReportFollow:
			rec.follows = append(rec.follows, i)
		case store.ReportEnd:
			if rec.first(at, true) == i {
				rec.ends = append(rec.ends, i)
			}
		default:
			return nil, fmt.Errorf("report %d is of the unknown kind %d", i, r.Kind)
		}
	}
	slices.SortFunc(rec.needed, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	rec.needed = slices.Compact(rec.needed)
	return rec, nil
}

func endsLast(k store.ReportKind) int {
	if k == store.ReportEnd {
		return 1
	}
	return 0
}

// first is the first report in the order for the same row and dispatch as the one at a place, and of the same kind where that counts.
func (rec *recording) first(at int, sameKind bool) int {
	first := rec.order[at]
	r := &rec.reports[first]
	for ; at > 0; at-- {
		o := &rec.reports[rec.order[at-1]]
		if o.Key.Compare(r.Key) != 0 {
			break
		}
		if o.Dispatch == r.Dispatch && (!sameKind || o.Kind == r.Kind) {
			first = rec.order[at-1]
		}
	}
	return first
}

// reset forgets an attempt.
func (rec *recording) reset() {
	rec.results = make([]store.ReportResult, len(rec.reports))
	rec.found = make(map[int]*store.Timer, len(rec.rows))
	rec.jobs = make(map[uuid.UUID]*job.Job, len(rec.needed))
}

// guard are the statements that lock the jobs, then find, change and take away the rows whose dispatch is that of their report. Where rows are changed as
// well as taken away, all are locked first, so that there is one order of locks.
func (rec *recording) guard() []statement {
	var list []statement
	if len(rec.needed) > 0 {
		list = append(list, statement{text: lockJobs, args: []any{uuids(rec.needed)}, each: func(r *row) error {
			j, err := scanJob(r)
			if err == nil {
				rec.jobs[j.ID] = j
			}
			return err
		}})
	}
	if len(rec.starts)+len(rec.follows) > 0 {
		list = append(list, statement{text: lockRows, args: rec.items(rec.rows), each: func(r *row) error {
			i := int(r.int32())
			t, err := scanTimer(r)
			rec.found[i] = &t
			return err
		}})
	}
	if len(rec.starts) > 0 {
		b := newBatch(startCols, len(rec.starts))
		for _, i := range rec.starts {
			r := &rec.reports[i]
			addItem(b, &r.Key, r.Dispatch, i)
			b.time(r.StartedAt)
			b.text(r.Executor)
		}
		list = append(list, statement{text: startRows, args: b.args()})
	}
	if len(rec.follows) > 0 {
		list = append(list, statement{text: followRows, args: rec.items(rec.follows)})
	}
	if len(rec.ends) > 0 {
		list = append(list, statement{text: endRows, args: rec.items(rec.ends), each: func(r *row) error {
			i := r.int32()
			t, err := scanTimer(r)
			rec.results[i] = store.ReportResult{Applied: true, Timer: &t}
			return err
		}})
	}
	return append(list, readNow(&rec.now))
}

func (rec *recording) items(items []int) []any {
	b := newBatch(itemCols, len(items))
	for _, i := range items {
		addItem(b, &rec.reports[i].Key, rec.reports[i].Dispatch, i)
	}
	return b.args()
}

// apply follows the rows that were found through their starts and follows, to tell each what the guards did for it.
func (rec *recording) apply() {
	for at, i := range rec.order {
		r, res := &rec.reports[i], &rec.results[i]
		t := rec.found[rec.first(at, false)]
		if t == nil || r.Kind == store.ReportEnd {
			continue
		}
		switch {
		case r.Kind == store.ReportFollow && !t.Followed:
			*res = store.ReportResult{Applied: true, Timer: own(t)}
			t.Followed = true
		case r.Kind == store.ReportStart:
			*res = store.ReportResult{Applied: t.Step == job.StepDispatched, Timer: own(t)}
			if res.Applied {
				t.Step, t.StartedAt, t.Executor = job.StepRunning, truncate(r.StartedAt), r.Executor
			}
		}
	}
}

// job is the job of a report that asks for it: a copy, as decide may change it.
func (rec *recording) job(i int) *job.Job {
	r := &rec.reports[i]
	j := rec.jobs[r.JobID]
	if j == nil || !r.NeedJob {
		return nil
	}
	k := *j
	return &k
}

// own is a copy that decide may change without changing what is answered.
func own(t *store.Timer) *store.Timer {
	c := *t
	return &c
}
