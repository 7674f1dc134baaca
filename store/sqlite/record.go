package sqlite

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/internal/failpoint"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// Record implements store.Recording.
func (s *Store) Record(
	ctx context.Context, reports []store.Report, decide func(i int, t *store.Timer, j *job.Job, now time.Time) store.Change,
) ([]store.ReportResult, error) {
	if len(reports) == 0 {
		return nil, nil
	}
	var results []store.ReportResult
	err := s.write(ctx, 3*len(reports), func(c *conn) error {
		results = make([]store.ReportResult, len(reports))
		b := recording{conn: c, reports: reports, results: results, decide: decide, now: s.clock(), jobs: map[uuid.UUID]*job.Job{}}
		for _, i := range recordOrder(reports) {
			if err := b.record(i); err != nil {
				return err
			}
		}
		failpoint.Here(failpoint.RecorderCommitting)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// recordOrder sorts by key; of one row the end comes last, and else what was told first.
func recordOrder(reports []store.Report) []int {
	order := make([]int, len(reports))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		ra, rb := &reports[a], &reports[b]
		if c := ra.Key.Compare(rb.Key); c != 0 {
			return c
		}
		return int(flag(ra.Kind == store.ReportEnd)) - int(flag(rb.Kind == store.ReportEnd))
	})
	return order
}

// recording is one batch of reports under way.
type recording struct {
	conn    *conn
	reports []store.Report
	results []store.ReportResult
	decide  func(i int, t *store.Timer, j *job.Job, now time.Time) store.Change
	now     time.Time
	jobs    map[uuid.UUID]*job.Job // those read so far, as this batch has left them
}

func (b *recording) record(i int) error {
	rep, res := &b.reports[i], &b.results[i]
	t, err := b.conn.timer(&rep.Key)
	if err != nil || t == nil || t.Dispatch != rep.Dispatch {
		return err
	}
	k := &rep.Key
	switch rep.Kind {
	case store.ReportStart:
		// Answered also where it does not apply: a cancelled run is to be told so.
		res.Timer, res.Applied = t, t.Step == job.StepDispatched
		if res.Applied {
			_, err = b.conn.exec("UPDATE timers SET step = 4, started_at = ?, executor = ? WHERE "+timerKey,
				micros(rep.StartedAt), rep.Executor, int64(k.Shard), store.Bucket(k.DueAt), micros(k.DueAt), k.RunID[:])
		}
		return err
	case store.ReportFollow:
		if t.Followed {
			return nil
		}
		_, err = b.conn.exec("UPDATE timers SET followed = 1 WHERE "+timerKey, int64(k.Shard), store.Bucket(k.DueAt), micros(k.DueAt), k.RunID[:])
	case store.ReportEnd:
		err = b.conn.deleteTimer(k)
	default:
		err = fmt.Errorf("report %d is of the unknown kind %d", i, rep.Kind)
	}
	if err != nil {
		return err
	}
	res.Timer, res.Applied = t, true
	j, err := b.job(rep)
	if err != nil {
		return err
	}
	own := *t // so that decide cannot change what is answered
	change := b.decide(i, &own, j, b.now)
	if change.Job != nil {
		b.jobs[change.Job.ID] = storedJob(change.Job)
	}
	res.Put, err = b.conn.apply(&change)
	return err
}

// job returns the job of a report that asks for it: a copy, as decide may change it.
func (b *recording) job(rep *store.Report) (*job.Job, error) {
	if !rep.NeedJob {
		return nil, nil
	}
	j, known := b.jobs[rep.JobID]
	if !known {
		var err error
		if j, err = b.conn.job(rep.JobID); err != nil {
			return nil, err
		}
		b.jobs[rep.JobID] = j
	}
	if j == nil {
		return nil, nil
	}
	own := *j
	return &own, nil
}
