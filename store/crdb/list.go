package crdb

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// The size of a page that is read to fill one of a list.
const (
	smallestPage = 100
	largestPage  = 1000
)

// ListJobs implements store.Jobs. Whether the last run of a job has come to its end is seen from its timers, so pages are read on until enough of them fit.
func (s *Store) ListJobs(ctx context.Context, q store.JobQuery) ([]*job.Job, error) {
	created, id := startOf(q.BeforeCreated), q.BeforeID
	page := min(max(q.Limit, smallestPage), largestPage)
	var list []*job.Job
	for len(list) < q.Limit {
		text, args, err := listQuery(&q, created, id, page)
		if err != nil {
			return nil, err
		}
		var found []*job.Job
		if err := s.read(ctx, s.lists, collect(&found, scanJob, text, args...)); err != nil {
			return nil, err
		}
		fitting, err := s.fitting(ctx, found, q.State)
		if err != nil {
			return nil, err
		}
		list = append(list, fitting...)
		if len(found) < page {
			break
		}
		last := found[len(found)-1]
		created, id = micros(last.CreatedAt), last.ID
	}
	return list[:min(len(list), max(q.Limit, 0))], nil
}

// listQuery asks for a page by the filters that are set: a text for each set of filters, so that each is planned for itself.
func listQuery(q *store.JobQuery, created int64, id uuid.UUID, limit int) (string, []any, error) {
	text := "SELECT " + jobColumns + " FROM jobs AS j WHERE j.namespace = $1 AND j.created_at <= $2 AND (j.created_at, j.job_id) < ($2, $3)"
	args := []any{clean(q.Namespace), created, [16]byte(id)}
	add := func(condition string, arg any) {
		args = append(args, arg)
		text += " AND " + condition + "$" + strconv.Itoa(len(args))
	}
	switch q.State {
	case "":
		text += " AND j.state <> 'deleted'"
	case job.Active:
		text += " AND j.state IN ('active', 'completed')"
	case job.Completed:
		text += " AND (j.state = 'completed' OR (j.state = 'active' AND NOT j.recurring))"
	default:
		add("j.state = ", string(q.State))
	}
	if q.Queue != "" {
		add("j.queue = ", clean(q.Queue))
	}
	if q.Kind != "" {
		add("j.kind = ", clean(q.Kind))
	}
	if len(q.Labels) > 0 {
		labels, err := labelsJSON(q.Labels)
		if err != nil {
			return "", nil, err
		}
		args = append(args, string(labels))
		text += " AND j.labels @> $" + strconv.Itoa(len(args)) + "::text::jsonb"
	}
	if q.NamePrefix != "" {
		args = append(args, clean(q.NamePrefix))
		n := "$" + strconv.Itoa(len(args)) + "::text"
		text += " AND left(j.name, char_length(" + n + ")) = " + n
	}
	args = append(args, int64(limit))
	return text + " ORDER BY j.created_at DESC, j.job_id DESC LIMIT $" + strconv.Itoa(len(args)) + "::int8", args, nil
}

// fitting leaves those of which the user would say that they are in the state that was asked for.
func (s *Store) fitting(ctx context.Context, found []*job.Job, state job.State) ([]*job.Job, error) {
	if state != job.Active && state != job.Completed {
		return found, nil
	}
	going := func(j *job.Job) bool { return j.State == job.Active && j.Spec.Recurring() }
	live, err := s.live(ctx, slices.DeleteFunc(slices.Clone(found), going))
	if err != nil {
		return nil, err
	}
	fit := found[:0]
	for _, j := range found {
		if going(j) || live[j.ID] == (state == job.Active) {
			fit = append(fit, j)
		}
	}
	return fit, nil
}

const (
	liveListed = "SELECT t.job_id FROM timers AS t WHERE t.job_id = ANY ($1::uuid[]) AND t.listed"
)

var liveProbed = "SELECT t.job_id FROM " + unnest(1, keyCols) + " JOIN timers AS t ON " + sameKey

// live tells which of the jobs have a timer.
func (s *Store) live(ctx context.Context, jobs []*job.Job) (map[uuid.UUID]bool, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	ids, keys := idsAndKeys(jobs)
	found := make(map[uuid.UUID]bool, len(jobs))
	each := func(r *row) error { found[r.uuid()] = true; return nil }
	// In this order, as in jobChange.readTimers.
	err := s.read(ctx, s.lists, statement{text: liveProbed, args: keysArgs(keys), each: each}, statement{text: liveListed, args: []any{uuids(ids)}, each: each})
	return found, err
}

// idsAndKeys are the ids of jobs and the keys of the first runs of those that are one-time.
func idsAndKeys(jobs []*job.Job) ([]uuid.UUID, []store.TimerKey) {
	ids, keys := make([]uuid.UUID, len(jobs)), make([]store.TimerKey, 0, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
		if k, ok := firstRun(j); ok {
			keys = append(keys, k)
		}
	}
	return ids, keys
}

// startOf is where a list that runs downwards goes on; the zero time is its beginning.
func startOf(before time.Time) int64 {
	if before.IsZero() {
		return math.MaxInt64
	}
	return micros(before)
}
