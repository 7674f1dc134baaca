package crdb

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

var (
	// The namespace is no plain column there, so that no plan goes through all jobs of it.
	readJob = "SELECT " + jobColumns + ", p.body FROM jobs AS j LEFT JOIN payloads AS p ON p.job_id = ANY (ARRAY[j.job_id]) WHERE j.job_id = $1 AND j.namespace || '' = $2"
	lockJob = readJob + " FOR UPDATE OF j"

	readJobs = "SELECT " + jobColumns + " FROM jobs AS j WHERE j.job_id = ANY ($1::uuid[])"
)

// Job implements store.Jobs.
func (s *Store) Job(ctx context.Context, namespace string, id uuid.UUID) (*job.Job, error) {
	var found []*job.Job
	if err := s.read(ctx, s.hot, collect(&found, scanFullJob, readJob, [16]byte(id), clean(namespace))); err != nil {
		return nil, err
	}
	return only(found, id)
}

// JobsByID implements store.Jobs.
func (s *Store) JobsByID(ctx context.Context, refs []store.JobRef) (map[store.JobRef]*job.Job, error) {
	all := make(map[store.JobRef]*job.Job, len(refs))
	if len(refs) == 0 {
		return all, nil
	}
	ids, asked := make([]uuid.UUID, len(refs)), make(map[store.JobRef]bool, len(refs))
	for i, r := range refs {
		ids[i], asked[r] = r.ID, true
	}
	var found []*job.Job
	if err := s.read(ctx, s.hot, collect(&found, scanJob, readJobs, uuids(ids))); err != nil {
		return nil, err
	}
	for _, j := range found {
		if r := (store.JobRef{Namespace: j.Namespace, ID: j.ID}); asked[r] {
			all[r] = j
		}
	}
	return all, nil
}

// JobNamespace implements store.Jobs.
func (s *Store) JobNamespace(ctx context.Context, id uuid.UUID) (string, error) {
	var found []string
	err := s.read(ctx, s.hot, collect(&found, func(r *row) (string, error) { return r.string(), nil },
		"SELECT namespace FROM jobs WHERE job_id = $1", [16]byte(id)))
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", notFound(id)
	}
	return found[0], nil
}

func notFound(id uuid.UUID) error { return fmt.Errorf("job %s: %w", id, store.ErrNotFound) }

func only(found []*job.Job, id uuid.UUID) (*job.Job, error) {
	if len(found) == 0 {
		return nil, notFound(id)
	}
	return found[0], nil
}

// ChangeJob implements store.Jobs.
func (s *Store) ChangeJob(
	ctx context.Context, namespace string, id uuid.UUID, decide func(j *job.Job, timers []store.Timer, now time.Time) (store.Change, error),
) (*job.Job, []store.Timer, error) {
	c := jobChange{namespace: clean(namespace), id: id}
	err := s.transact(ctx, func(ctx context.Context, t *tx) error {
		now, err := c.lock(ctx, t)
		if err != nil {
			return err
		}
		change, err := decide(c.job, c.timers, now)
		if err != nil {
			return err
		}
		return c.apply(ctx, t, &change)
	})
	if err != nil {
		return nil, nil, err
	}
	j, err := only(c.jobs, id)
	return j, c.timers, err
}

// jobChange is one ChangeJob under way.
type jobChange struct {
	namespace string
	id        uuid.UUID
	jobs      []*job.Job
	job       *job.Job
	probed    []store.Timer // by the key of the first run
	listed    []store.Timer
	timers    []store.Timer // both
}

// readTimers are the statements that read the live rows of a job without a lock: first by key, then listed, so that a row that moves from the one to the
// other in between is seen twice and not missed.
func (c *jobChange) readTimers(j *job.Job) []statement {
	c.probed, c.listed = nil, nil
	list := []statement{collect(&c.listed, scanTimer, listedTimers, uuids([]uuid.UUID{j.ID}))}
	if k, ok := firstRun(j); ok {
		list = []statement{collect(&c.probed, scanTimer, readTimers, keysArgs([]store.TimerKey{k})...), list[0]}
	}
	return list
}

// lock locks the job and then its timers, sorted by key. What moves while it waits for a lock is not in what it got: it looks again until all that there
// is is locked. Then nothing moves any more, since who moves a row deletes it first.
func (c *jobChange) lock(ctx context.Context, t *tx) (now time.Time, err error) {
	t.queue(collect(&c.jobs, scanFullJob, lockJob, [16]byte(c.id), c.namespace))
	t.queue(collect(&c.listed, scanTimer, listedTimers, uuids([]uuid.UUID{c.id})))
	if err := t.flush(ctx); err != nil {
		return now, err
	}
	if c.job, err = only(c.jobs, c.id); err != nil {
		return now, err
	}
	keys := keysOf(c.listed)
	if k, ok := firstRun(c.job); ok {
		keys = append(keys, storedKey(k))
	}
	for {
		if len(keys) > 0 {
			t.queue(statement{text: lockTimers, args: keysArgs(keys)})
		}
		t.queue(c.readTimers(c.job)...)
		t.queue(readNow(&now))
		if err := t.flush(ctx); err != nil {
			return now, err
		}
		c.timers = merge(c.probed, c.listed)
		there := keysOf(c.timers)
		if !slices.ContainsFunc(there, func(k store.TimerKey) bool { return !slices.Contains(keys, k) }) {
			return now, nil
		}
		keys = there
	}
}

// apply writes the change and reads what there is then: what was asked for may differ from it where a row was there already.
func (c *jobChange) apply(ctx context.Context, t *tx, change *store.Change) error {
	after := c.job
	if change.Job != nil {
		after = storedJob(change.Job)
		list, err := writeJobs([]*job.Job{change.Job}, func(*job.Job) bool { return change.PayloadChanged })
		if err != nil {
			return err
		}
		t.queue(list...)
	}
	if len(change.Remove) > 0 {
		t.queue(statement{text: deleteTimers, args: keysArgs(change.Remove)})
	}
	if len(change.Set) > 0 {
		t.queue(statement{text: setTimers, args: timersArgs(change.Set)})
	}
	if len(change.Put) > 0 {
		t.queue(statement{text: insertTimers, args: timersArgs(change.Put)})
	}
	t.queue(writeRuns(change.Runs)...)
	t.queue(writeSkips(change.Skips)...)
	t.queue(collect(&c.jobs, scanFullJob, readJob, [16]byte(c.id), c.namespace))
	t.queue(c.readTimers(after)...)
	err := t.commit(ctx)
	if isUnique(err) {
		return fmt.Errorf("job %s: %w", c.id, store.ErrNameTaken)
	}
	c.timers = merge(c.probed, c.listed)
	return err
}

// merge joins the rows of one job found by key and by index, sorted by due time.
func merge(probed, listed []store.Timer) []store.Timer {
	all := slices.Clone(listed)
	for _, p := range probed {
		if !slices.ContainsFunc(listed, func(l store.Timer) bool { return l.RunID == p.RunID }) {
			all = append(all, p)
		}
	}
	sortTimers(all)
	return all
}

func sortTimers(ts []store.Timer) {
	slices.SortFunc(ts, func(a, b store.Timer) int {
		if c := a.DueAt.Compare(b.DueAt); c != 0 {
			return c
		}
		return a.Compare(b.TimerKey)
	})
}

func keysOf(ts []store.Timer) []store.TimerKey {
	keys := make([]store.TimerKey, len(ts))
	for i := range ts {
		keys[i] = ts[i].TimerKey
	}
	return keys
}
