package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// Job implements store.Jobs.
func (s *Store) Job(ctx context.Context, namespace string, id uuid.UUID) (j *job.Job, err error) {
	err = s.read(ctx, func(c *conn) error {
		j, err = c.jobOf(namespace, id)
		return err
	})
	return j, err
}

func (c *conn) jobOf(namespace string, id uuid.UUID) (*job.Job, error) {
	j, err := c.fullJob(id)
	if err != nil {
		return nil, err
	}
	if j == nil || j.Namespace != namespace {
		return nil, jobNotFound(id)
	}
	return j, nil
}

// JobsByID implements store.Jobs.
func (s *Store) JobsByID(ctx context.Context, refs []store.JobRef) (map[store.JobRef]*job.Job, error) {
	all := make(map[store.JobRef]*job.Job, len(refs))
	err := s.read(ctx, func(c *conn) error {
		for _, r := range refs {
			j, err := c.job(r.ID)
			if err != nil {
				return err
			}
			if j != nil && j.Namespace == r.Namespace {
				all[r] = j
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func jobNotFound(id uuid.UUID) error { return fmt.Errorf("job %s: %w", id, store.ErrNotFound) }

// JobNamespace implements store.Jobs.
func (s *Store) JobNamespace(ctx context.Context, id uuid.UUID) (namespace string, err error) {
	err = s.read(ctx, func(c *conn) error {
		err := c.query("SELECT namespace FROM jobs WHERE job_id = ?", func(r *row) error { namespace = r.string(); return nil }, id[:])
		if err == nil && namespace == "" {
			err = jobNotFound(id)
		}
		return err
	})
	return namespace, err
}

// ChangeJob implements store.Jobs.
func (s *Store) ChangeJob(
	ctx context.Context, namespace string, id uuid.UUID, decide func(j *job.Job, timers []store.Timer, now time.Time) (store.Change, error),
) (j *job.Job, timers []store.Timer, err error) {
	err = s.write(ctx, 4, func(c *conn) error {
		if j, err = c.jobOf(namespace, id); err != nil {
			return err
		}
		if timers, err = c.timersOf(j); err != nil {
			return err
		}
		change, err := decide(j, timers, s.clock())
		if err != nil {
			return err
		}
		if err := c.applyAll(&change); err != nil {
			return err
		}
		// Read again rather than worked out: what was asked for and what is there may differ where a row was there already.
		if j, err = c.jobOf(namespace, id); err != nil {
			return err
		}
		timers, err = c.timersOf(j)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return j, timers, nil
}

const listJobs = "SELECT " + jobColumns + " FROM jobs j INDEXED BY jobs_list WHERE j.namespace = ?1 AND (j.created_at, j.job_id) < (?2, ?3) " +
	"AND CASE ?4 WHEN '' THEN j.state <> 'deleted' WHEN 'active' THEN j.state IN ('active', 'completed') WHEN 'completed' THEN j.state = 'completed' OR (j.state = 'active' AND NOT j.recurring) ELSE j.state = ?4 END " +
	"AND (?5 = '' OR j.queue = ?5) AND (?6 = '' OR j.kind = ?6) AND (?7 = '' OR substr(j.name, 1, length(?7)) = ?7) " +
	"AND (?8 = '' OR NOT EXISTS (SELECT 1 FROM json_each(?8) w WHERE NOT EXISTS " +
	"(SELECT 1 FROM json_each(j.labels) l WHERE l.key = w.key AND l.value = w.value))) " +
	"ORDER BY j.created_at DESC, j.job_id DESC LIMIT ?9"

// ListJobs implements store.Jobs. Whether the last run of a job has come to its end is seen from its timers, so pages are read on until enough of them fit.
func (s *Store) ListJobs(ctx context.Context, q store.JobQuery) ([]*job.Job, error) {
	labels := ""
	if len(q.Labels) > 0 {
		b, err := json.Marshal(q.Labels)
		if err != nil {
			return nil, fmt.Errorf("write labels: %w", err)
		}
		labels = string(b)
	}
	created, id := startOf(q.BeforeCreated), q.BeforeID
	var list []*job.Job
	page := max(q.Limit, 100)
	for len(list) < q.Limit {
		var found []*job.Job
		err := s.read(ctx, func(c *conn) error {
			err := c.query(listJobs, func(r *row) error {
				j, err := scanJob(r)
				found = append(found, j)
				return err
			}, q.Namespace, created, id[:], string(q.State), q.Queue, q.Kind, q.NamePrefix, labels, int64(page))
			if err != nil {
				return err
			}
			for _, j := range found {
				fits, err := c.fits(j, q.State)
				if err != nil {
					return err
				}
				if fits && len(list) < q.Limit {
					list = append(list, j)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if len(found) < page {
			break
		}
		last := found[len(found)-1]
		created, id = micros(last.CreatedAt), last.ID
	}
	return list, nil
}

// fits tells whether a job whose row fits a filter is in that state for the user.
func (c *conn) fits(j *job.Job, state job.State) (bool, error) {
	if (state != job.Active && state != job.Completed) || (j.State == job.Active && j.Spec.Recurring()) {
		return true, nil
	}
	live, err := c.live(j)
	return live == (state == job.Active), err
}
