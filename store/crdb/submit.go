package crdb

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// A submit is one statement: only jobs that are new get a payload and a timer. The comparison with true keeps PostgreSQL from joining with nested loops:
// what is left is a look-up in a hash table of the new ids.
const ofNewJobs = "WHERE (u.job_id IN (SELECT job_id FROM made)) = true ON CONFLICT DO NOTHING RETURNING job_id"

var (
	submitJobs = "WITH made AS (" + insert("jobs", 1, jobCols, "ON CONFLICT DO NOTHING RETURNING job_id") + "), runs_made AS (" +
		insert("timers", 1+len(jobCols), timerCols, ofNewJobs) + ")"
	submitPlain = submitJobs + " SELECT job_id FROM made"
	submitFull  = submitJobs + ", bodies AS (" + insert("payloads", 1+len(jobCols)+len(timerCols), payloadCols, ofNewJobs) + ") SELECT job_id FROM made"
)

// Submit implements store.Submitter.
func (s *Store) Submit(ctx context.Context, subs []store.Submission) ([]store.SubmitResult, error) {
	if len(subs) == 0 {
		return nil, nil
	}
	b := &submit{subs: subs}
	b.reset()
	if !b.alike() {
		// One statement does it, and what it left out is looked up when all is done.
		insert := b.insert(b.pass)
		if b.err != nil {
			return nil, b.err
		}
		if err := s.write(ctx, insert); err != nil {
			return nil, err
		}
		if err := b.settle(ctx, func(ctx context.Context, st statement) error { return s.read(ctx, s.hot, st) }); err != nil {
			return nil, fmt.Errorf("look up what was there: %w: %w", store.ErrUnknownOutcome, err)
		}
		if len(b.pending) == 0 {
			return b.results, nil
		}
		// What stood in the way of some has gone in between: try those again.
		b.keep()
	}
	err := s.transact(ctx, func(ctx context.Context, t *tx) error {
		b.retry()
		for len(b.pending) > 0 {
			b.choose()
			t.queue(b.insert(b.pass))
			if b.err != nil {
				return b.err
			}
			if err := t.flush(ctx); err != nil {
				return err
			}
			err := b.settle(ctx, func(ctx context.Context, st statement) error {
				t.queue(st)
				return t.flush(ctx)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return b.results, nil
}

// submit is a call under way.
type submit struct {
	subs    []store.Submission
	results []store.SubmitResult
	settled []bool // before the transaction that may be repeated
	pending []int  // no result yet, in the order of the arguments
	pass    []int  // of those, what the next statement inserts, sorted by id
	made    map[uuid.UUID]bool
	err     error
}

func (b *submit) reset() {
	b.results = make([]store.SubmitResult, len(b.subs))
	b.settled = make([]bool, len(b.subs))
	b.pending = make([]int, len(b.subs))
	for i := range b.pending {
		b.pending[i] = i
	}
	b.choose()
}

// keep makes the results so far final.
func (b *submit) keep() {
	for i := range b.settled {
		b.settled[i] = !slices.Contains(b.pending, i)
	}
}

// retry takes back what an attempt has found.
func (b *submit) retry() {
	b.pending = b.pending[:0]
	for i := range b.subs {
		if !b.settled[i] {
			b.pending = append(b.pending, i)
		}
	}
}

// alike tells whether two of the call have an id or a name in common, so that one statement cannot hold them all.
func (b *submit) alike() bool { return len(b.pass) < len(b.pending) }

type fullName struct{ namespace, name string }

// choose takes of those that wait the first with each id and each name.
func (b *submit) choose() {
	b.pass = b.pass[:0]
	ids := make(map[uuid.UUID]bool, len(b.pending))
	names := map[fullName]bool{}
	for _, i := range b.pending {
		j := b.subs[i].Job
		name := fullName{j.Namespace, j.Name}
		// What is left for later holds back those after it that it has something in common with: the order of the arguments decides.
		if !ids[j.ID] && !names[name] {
			b.pass = append(b.pass, i)
		}
		ids[j.ID] = true
		if j.Name != "" {
			names[name] = true
		}
	}
	slices.SortFunc(b.pass, func(x, y int) int { return bytes.Compare(b.subs[x].Job.ID[:], b.subs[y].Job.ID[:]) })
}

// insert is the statement for some of the submissions.
func (b *submit) insert(items []int) statement {
	jobs, bodies := newBatch(jobCols, len(items)), newBatch(payloadCols, 1)
	timers := make([]store.Timer, 0, len(items))
	for _, i := range items {
		sub := &b.subs[i]
		if err := addJob(jobs, sub.Job); err != nil {
			b.err = err
		}
		if len(sub.Job.Payload) > 0 {
			addPayload(bodies, sub.Job)
		}
		if sub.Timer != nil {
			timers = append(timers, *sub.Timer)
		}
	}
	st := statement{
		text: submitPlain, args: append(jobs.args(), timersArgs(timers)...),
		begin: func() { b.made = make(map[uuid.UUID]bool, len(items)) },
		each:  func(r *row) error { b.made[r.uuid()] = true; return nil },
	}
	if bodies.rows() > 0 {
		st.text, st.args = submitFull, append(st.args, bodies.args()...)
	}
	return st
}

// settle gives a result to those of the pass that were made or refused. What is neither waits for another pass.
func (b *submit) settle(ctx context.Context, read func(context.Context, statement) error) error {
	var refused []int
	done := make(map[int]bool, len(b.pass))
	for _, i := range b.pass {
		j := b.subs[i].Job
		if !b.made[j.ID] {
			refused = append(refused, i)
			continue
		}
		b.results[i] = store.SubmitResult{Job: storedJob(j)}
		done[i] = true
	}
	if len(refused) > 0 {
		there, err := b.lookup(ctx, refused, read)
		if err != nil {
			return err
		}
		for _, i := range refused {
			b.results[i], done[i] = there.fate(b.subs[i].Job)
		}
	}
	b.pending = slices.DeleteFunc(b.pending, func(i int) bool { return done[i] })
	return nil
}

// lookup reads the jobs that have the ids of those that were refused, or the names.
func (b *submit) lookup(ctx context.Context, refused []int, read func(context.Context, statement) error) (*existing, error) {
	ids := make([]uuid.UUID, len(refused))
	namespaces, names := &array{elem: textKind.oid}, &array{elem: textKind.oid}
	for n, i := range refused {
		j := b.subs[i].Job
		ids[n] = j.ID
		namespaces.text(j.Namespace)
		names.text(j.Name)
	}
	var jobs []*job.Job
	if err := read(ctx, collect(&jobs, scanFullJob, lookupJobs, uuids(ids), namespaces, names)); err != nil {
		return nil, err
	}
	e := &existing{byID: make(map[uuid.UUID]*job.Job, len(jobs)), names: make(map[fullName]bool, len(jobs))}
	for _, j := range jobs {
		e.byID[j.ID] = j
		if j.State != job.Deleted && j.Name != "" {
			e.names[fullName{j.Namespace, j.Name}] = true
		}
	}
	return e, nil
}

var lookupJobs = "SELECT " + jobColumns + ", p.body FROM jobs AS j LEFT JOIN payloads AS p ON p.job_id = ANY (ARRAY[j.job_id]) WHERE j.job_id = ANY ($1::uuid[]) " +
	"UNION ALL SELECT " + jobColumns + ", NULL FROM unnest($2::text[], $3::text[]) AS u(namespace, name) CROSS JOIN LATERAL " +
	"(SELECT * FROM jobs AS n WHERE n.namespace = u.namespace AND n.name = u.name AND n.name IS NOT NULL AND n.state <> 'deleted' LIMIT 1) AS j WHERE NOT j.job_id = ANY ($1::uuid[])"

type existing struct {
	byID  map[uuid.UUID]*job.Job
	names map[fullName]bool
}

// fate tells why a job could not be made, and false where nothing stands in its way any more. Its id counts before its name: who repeats a submit finds
// the job that he made.
func (e *existing) fate(j *job.Job) (store.SubmitResult, bool) {
	there := e.byID[j.ID]
	switch {
	case there != nil && (there.Namespace != j.Namespace || !bytes.Equal(there.BodyHash, j.BodyHash)):
		return store.SubmitResult{Err: store.ErrKeyReused}, true
	case there != nil:
		return store.SubmitResult{Job: there, Existed: true}, true
	case j.Name != "" && e.names[fullName{j.Namespace, clean(j.Name)}]:
		return store.SubmitResult{Err: store.ErrNameTaken}, true
	}
	return store.SubmitResult{}, false
}
