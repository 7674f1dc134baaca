package sqlite

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
)

// jobColumns are the columns of a job in the order of scanJob.
const jobColumns = "j.job_id, j.namespace, j.name, j.shard, j.version, j.state, j.kind, j.queue, j.queue_namespace, j.priority, j.spec, j.body_hash, " +
	"j.due_at, j.paused_by, j.paused_at, j.pause_note, j.created_at, j.updated_at"

func scanJob(r *row) (*job.Job, error) {
	j := &job.Job{
		ID:             r.uuid(),
		Namespace:      r.string(),
		Name:           r.string(),
		Shard:          r.int32(),
		Version:        r.int64(),
		State:          job.State(r.string()),
		Kind:           r.string(),
		Queue:          r.string(),
		QueueNamespace: r.string(),
		Priority:       job.Priority(r.int32()),
	}
	if err := unmarshalSpec(r.string(), &j.Spec); err != nil {
		return nil, fmt.Errorf("job %s: %w", j.ID, err)
	}
	j.BodyHash = r.bytes()
	j.DueAt = r.time()
	p := job.Pause{By: r.string(), At: r.time(), Note: r.string()}
	if p != (job.Pause{}) {
		j.Pause = &p
	}
	j.CreatedAt, j.UpdatedAt = r.time(), r.time()
	return j, nil
}

func unmarshalSpec(text string, s *job.Spec) error {
	if err := json.Unmarshal([]byte(text), s); err != nil {
		return fmt.Errorf("read spec: %w", err)
	}
	return nil
}

// jobValues are the values of a job in the order of the columns of insertJob and setJob.
func jobValues(j *job.Job) ([]any, error) {
	spec, err := json.Marshal(&j.Spec)
	if err != nil {
		return nil, fmt.Errorf("write spec of job %s: %w", j.ID, err)
	}
	labels := "{}"
	if len(j.Spec.Labels) > 0 {
		b, err := json.Marshal(j.Spec.Labels)
		if err != nil {
			return nil, fmt.Errorf("write labels of job %s: %w", j.ID, err)
		}
		labels = string(b)
	}
	var p job.Pause
	if j.Pause != nil {
		p = *j.Pause
	}
	return []any{
		null(j.Name), int64(j.Shard), j.Version, string(j.State), j.Kind, j.Queue, j.QueueNamespace, int64(j.Priority), string(spec), labels,
		flag(j.Spec.Recurring()), blob(j.BodyHash), micros(j.DueAt), p.By, micros(p.At), p.Note, micros(j.CreatedAt), micros(j.UpdatedAt), j.ID[:],
	}, nil
}

// insertJob tells whether the row could be made: not where its id or its name is there already.
func (c *conn) insertJob(j *job.Job) (bool, error) {
	values, err := jobValues(j)
	if err != nil {
		return false, err
	}
	n, err := c.exec("INSERT INTO jobs (name, shard, version, state, kind, queue, queue_namespace, priority, spec, labels, recurring, body_hash, due_at, "+
		"paused_by, paused_at, pause_note, created_at, updated_at, job_id, namespace) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) "+
		"ON CONFLICT DO NOTHING", append(values, j.Namespace)...)
	return n > 0, err
}

// setJob replaces the row of a job; it stays in its namespace.
func (c *conn) setJob(j *job.Job) error {
	values, err := jobValues(j)
	if err != nil {
		return err
	}
	_, err = c.exec("UPDATE jobs SET name = ?, shard = ?, version = ?, state = ?, kind = ?, queue = ?, queue_namespace = ?, priority = ?, spec = ?, "+
		"labels = ?, recurring = ?, body_hash = ?, due_at = ?, paused_by = ?, paused_at = ?, pause_note = ?, created_at = ?, updated_at = ? "+
		"WHERE job_id = ?", values...)
	return err
}

func (c *conn) setPayload(j *job.Job) error {
	var err error
	if len(j.Payload) == 0 {
		_, err = c.exec("DELETE FROM payloads WHERE job_id = ?", j.ID[:])
	} else {
		_, err = c.exec("INSERT INTO payloads (job_id, version, body) VALUES (?, ?, ?) "+
			"ON CONFLICT (job_id) DO UPDATE SET version = excluded.version, body = excluded.body", j.ID[:], j.Version, j.Payload)
	}
	return err
}

// job returns a job without its payload, nil where there is none.
func (c *conn) job(id uuid.UUID) (j *job.Job, err error) {
	err = c.query("SELECT "+jobColumns+" FROM jobs j WHERE j.job_id = ?", func(r *row) (err error) {
		j, err = scanJob(r)
		return err
	}, id[:])
	return j, err
}

// fullJob returns a job with its payload, nil where there is none.
func (c *conn) fullJob(id uuid.UUID) (*job.Job, error) {
	j, err := c.job(id)
	if j == nil || err != nil {
		return nil, err
	}
	return j, c.query("SELECT body FROM payloads WHERE job_id = ?", func(r *row) error { j.Payload = r.bytes(); return nil }, id[:])
}

// storedJob is a job as it would be read back: a copy where its times are finer than what is stored.
func storedJob(j *job.Job) *job.Job {
	k := *j
	k.DueAt, k.CreatedAt, k.UpdatedAt = truncate(k.DueAt), truncate(k.CreatedAt), truncate(k.UpdatedAt)
	if k.Pause != nil {
		k.Pause = &job.Pause{By: k.Pause.By, At: truncate(k.Pause.At), Note: k.Pause.Note}
	}
	return &k
}
