package crdb

import (
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/waterclock-io/waterclock/job"
)

// jobCols are the columns of a job as addJob fills them.
var jobCols = []column{
	{"job_id", uuidKind, ""}, {"namespace", textKind, ""}, {"name", textKind, "NULLIF(u.name, '')"}, {"shard", int4Kind, ""},
	{"version", int8Kind, ""}, {"state", textKind, ""}, {"kind", textKind, ""}, {"queue", textKind, ""}, {"queue_namespace", textKind, ""},
	{"priority", int4Kind, ""}, {"spec", textKind, ""}, {"body_hash", byteaKind, ""}, {"due_at", int8Kind, ""}, {"paused_by", textKind, ""},
	{"paused_at", int8Kind, ""}, {"pause_note", textKind, ""}, {"created_at", int8Kind, ""}, {"updated_at", int8Kind, ""},
	{"labels", textKind, "u.labels::jsonb"}, {"recurring", boolKind, ""},
}

// jobColumns are what scanJob reads: all but the last two, which are in the spec.
var jobColumns = selected("j", jobCols[:18])

func addJob(b *batch, j *job.Job) error {
	spec, err := json.Marshal(&j.Spec)
	if err != nil {
		return fmt.Errorf("write spec of job %s: %w", j.ID, err)
	}
	labels, err := labelsJSON(j.Spec.Labels)
	if err != nil {
		return fmt.Errorf("job %s: %w", j.ID, err)
	}
	var p job.Pause
	if j.Pause != nil {
		p = *j.Pause
	}
	b.uuid(j.ID)
	b.text(j.Namespace)
	b.text(j.Name)
	b.int4(j.Shard)
	b.int8(j.Version)
	b.text(string(j.State))
	b.text(j.Kind)
	b.text(j.Queue)
	b.text(j.QueueNamespace)
	b.int4(int32(j.Priority))
	b.bytes(spec)
	b.bytes(j.BodyHash)
	b.time(j.DueAt)
	b.text(p.By)
	b.time(p.At)
	b.text(p.Note)
	b.time(j.CreatedAt)
	b.time(j.UpdatedAt)
	b.bytes(labels)
	b.bool(j.Spec.Recurring())
	return nil
}

// labelsJSON is labels as they are filtered by.
func labelsJSON(labels map[string]string) ([]byte, error) {
	if len(labels) == 0 {
		return []byte("{}"), nil
	}
	cleaned := make(map[string]string, len(labels))
	for k, v := range labels {
		cleaned[clean(k)] = clean(v) // JSONB refuses an escaped NUL
	}
	b, err := json.Marshal(cleaned)
	if err != nil {
		return nil, fmt.Errorf("write labels: %w", err)
	}
	return b, nil
}

func scanJob(r *row) (*job.Job, error) {
	j := &job.Job{
		ID: r.uuid(), Namespace: r.name(), Name: r.string(), Shard: r.int32(), Version: r.int64(), State: job.State(r.name()), Kind: r.name(),
		Queue: r.name(), QueueNamespace: r.name(), Priority: job.Priority(r.int32()),
	}
	if err := readSpec(r, &j.Spec); err != nil {
		return nil, fmt.Errorf("job %s: %w", j.ID, err)
	}
	j.BodyHash = r.bytes()
	j.DueAt = r.time()
	if p := (job.Pause{By: r.string(), At: r.time(), Note: r.string()}); p != (job.Pause{}) {
		j.Pause = &p
	}
	j.CreatedAt, j.UpdatedAt = r.time(), r.time()
	return j, nil
}

func scanFullJob(r *row) (*job.Job, error) {
	j, err := scanJob(r)
	if err == nil {
		j.Payload = r.bytes()
	}
	return j, err
}

func readSpec(r *row, s *job.Spec) error {
	if err := json.Unmarshal(r.take(), s); err != nil {
		return fmt.Errorf("read spec: %w", err)
	}
	return nil
}

// storedJob is a job as it would be read back.
func storedJob(j *job.Job) *job.Job {
	k := *j
	k.DueAt, k.CreatedAt, k.UpdatedAt = truncate(k.DueAt), truncate(k.CreatedAt), truncate(k.UpdatedAt)
	if k.Pause != nil {
		k.Pause = &job.Pause{By: k.Pause.By, At: truncate(k.Pause.At), Note: k.Pause.Note}
	}
	return &k
}

// setJobs replaces the rows of jobs; they stay in their namespaces.
var setJobs = "UPDATE jobs AS j SET " + assign(jobCols[2:]) + " FROM " + unnest(1, jobCols) + " WHERE j.job_id = ANY (ARRAY[u.job_id])"

var payloadCols = []column{{"job_id", uuidKind, ""}, {"version", int8Kind, ""}, {"body", byteaKind, ""}}

var setPayloads = insert("payloads", 1, payloadCols, "ON CONFLICT (job_id) DO UPDATE SET version = excluded.version, body = excluded.body")

func addPayload(b *batch, j *job.Job) {
	b.uuid(j.ID)
	b.int8(j.Version)
	b.bytes(j.Payload)
}

// writeJobs are the statements that replace rows of jobs, sorted by id, and the payloads of those for which that is asked.
func writeJobs(jobs []*job.Job, payload func(*job.Job) bool) ([]statement, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	rows, bodies := newBatch(jobCols, len(jobs)), newBatch(payloadCols, 1)
	empty := &array{elem: pgtype.UUIDOID}
	for _, j := range jobs {
		if err := addJob(rows, j); err != nil {
			return nil, err
		}
		switch {
		case !payload(j):
		case len(j.Payload) == 0:
			empty.uuid(j.ID)
		default:
			addPayload(bodies, j)
		}
	}
	list := []statement{{text: setJobs, args: rows.args()}}
	if empty.n > 0 {
		list = append(list, statement{text: "DELETE FROM payloads WHERE job_id = ANY ($1::uuid[])", args: []any{empty}})
	}
	if bodies.rows() > 0 {
		list = append(list, statement{text: setPayloads, args: bodies.args()})
	}
	return list, nil
}
