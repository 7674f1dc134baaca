package crdb

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/store"
)

var base = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

const namespace = "namespace"

func once(at time.Time) schedule.Schedule { return schedule.Schedule{Kind: schedule.Once, At: at} }

func series(at time.Time) schedule.Schedule {
	return schedule.Schedule{Kind: schedule.Every, Period: time.Hour, Anchor: at}
}

// world is the store and n jobs of one scenario, driven as the roles do. Ids and times are always the same, so the rows lie in the same places.
type world struct {
	t       *testing.T
	s       *Store
	n       int
	jobs    []*job.Job
	timers  []store.Timer // as last seen
	needJob bool          // of the ends
}

// got takes the answer of a call.
func (w *world) got(_ any, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// batches are the parts of n things that one call takes.
func batches(n int) (parts [][2]int) {
	for from := 0; from < n; from += batchSize {
		parts = append(parts, [2]int{from, min(from+batchSize, n)})
	}
	return parts
}

// submit is api/submit: one transaction for those that wait. Jobs are due in another order than they are submitted in.
func (w *world) submit(plan func(at time.Time) schedule.Schedule, payload bool) {
	w.t.Helper()
	subs := make([]store.Submission, w.n)
	for i := range subs {
		id := uuid.NewSHA1(uuid.NameSpaceOID, []byte(strconv.Itoa(i)))
		at := base.Add(time.Duration(i*7919%backlog) * time.Millisecond)
		j := &job.Job{
			ID: id, Namespace: namespace, Shard: job.ShardOf(id, w.s.shards), Version: 1, State: job.Active, Kind: "exec", Queue: job.DefaultQueue,
			QueueNamespace: job.SharedNamespace, Priority: job.Normal, Spec: job.Spec{Schedule: plan(at)}, BodyHash: make([]byte, 32), DueAt: at,
			CreatedAt: base.Add(time.Duration(i) * time.Microsecond), UpdatedAt: base,
		}
		if payload {
			j.Payload = make([]byte, 100)
		}
		t := store.NewTimer(j, schedule.Occurrence{At: at}, at)
		w.needJob = j.Spec.Recurring()
		w.jobs, w.timers = append(w.jobs, j), append(w.timers, t)
		subs[i] = store.Submission{Job: j, Timer: &t}
	}
	for _, part := range batches(len(subs)) {
		w.got(w.s.Submit(w.t.Context(), subs[part[0]:part[1]]))
	}
	slices.SortFunc(w.timers, func(a, b store.Timer) int { return a.DueAt.Compare(b.DueAt) })
}

// readDue is planner/read.go.
func (w *world) readDue() {
	w.t.Helper()
	var from []store.ShardCursor
	for _, shard := range w.shards() {
		from = append(from, store.ShardCursor{Shard: shard, From: store.TimerKey{Shard: shard, DueAt: base.Add(-time.Minute)}})
	}
	due, err := w.s.ReadDue(w.t.Context(), from, base.Add(30*time.Minute), 62)
	if err != nil || len(due) != len(w.jobs) {
		w.t.Fatalf("%d rows are due, want %d: %v", len(due), len(w.jobs), err)
	}
	w.timers = w.timers[:0]
	for i := range due {
		w.timers = append(w.timers, due[i].Timer)
	}
}

// mark is planner/handover.go.
func (w *world) mark() {
	w.t.Helper()
	for k, part := range batches(len(w.timers)) {
		m := store.Mark{ID: int64(k + 1), Generation: 1}
		for i := part[0]; i < part[1]; i++ {
			t := &w.timers[i]
			m.Items = append(m.Items, store.MarkItem{
				Key: t.TimerKey, Version: t.Version, Dispatch: t.Dispatch, JobID: t.JobID, ScheduledAt: t.ScheduledAt, Forbid: t.Recurring && t.Attempt == 1,
			})
			t.Dispatch++
		}
		results, err := w.s.MarkDispatched(w.t.Context(), m)
		w.got(nil, err)
		if slices.ContainsFunc(results, func(r store.MarkResult) bool { return r != store.MarkDone }) {
			w.t.Fatalf("not all were marked: %v", results)
		}
	}
}

type decider func(t *store.Timer, j *job.Job, now time.Time) store.Change

// record is status/apply.go: of each row a report of each kind, all of a row in one batch.
func (w *world) record(decide decider, kinds ...store.ReportKind) {
	w.t.Helper()
	for _, part := range batches(len(w.timers)) {
		var reports []store.Report
		for _, t := range w.timers[part[0]:part[1]] {
			for _, kind := range kinds {
				reports = append(reports, store.Report{
					Kind: kind, Key: t.TimerKey, JobID: t.JobID, Dispatch: t.Dispatch, NeedJob: kind == store.ReportFollow || kind == store.ReportEnd && w.needJob,
					StartedAt: base, Executor: "executor",
				})
			}
		}
		results, err := w.s.Record(w.t.Context(), reports, func(i int, t *store.Timer, j *job.Job, now time.Time) store.Change {
			if reports[i].Kind == store.ReportEnd && len(kinds) > 1 {
				return w.succeeds(t, j, now)
			}
			return decide(t, j, now)
		})
		w.got(nil, err)
		if i := slices.IndexFunc(results, func(r store.ReportResult) bool { return !r.Applied }); i >= 0 {
			w.t.Fatalf("report %d was refused", i)
		}
	}
}

// What reports lead to is status/decide.go, in short.
func (w *world) succeeds(t *store.Timer, _ *job.Job, now time.Time) store.Change {
	row := t.History(job.StepSucceeded, true, "", now)
	row.Executor, row.StartedAt = "executor", now
	return store.Change{Runs: []store.RunRow{row}}
}

func (w *world) fails(t *store.Timer, j *job.Job, now time.Time) store.Change {
	row := t.History(job.StepFailed, false, "error", now)
	row.Executor, row.StartedAt = "executor", now
	return store.Change{Runs: []store.RunRow{row}, Put: []store.Timer{store.Again(*t, j, t.DueAt.Add(time.Minute), 2)}}
}

func (w *world) follows(t *store.Timer, j *job.Job, now time.Time) store.Change {
	occ, _ := j.Spec.Schedule.Next(t.ScheduledAt)
	return store.Change{Put: []store.Timer{store.NewTimer(j, occ, now)}}
}

// look is what api/change.go reads before it locks.
func (w *world) look() {
	w.t.Helper()
	w.got(w.s.Job(w.t.Context(), namespace, w.jobs[0].ID))
	w.got(w.s.ListRuns(w.t.Context(), w.jobs[0].ID, store.RunPosition{}, 200))
}

// change is api/change.go.
func (w *world) change(decide func(j *job.Job, ts []store.Timer, now time.Time) store.Change) {
	w.t.Helper()
	j, ts, err := w.s.ChangeJob(w.t.Context(), namespace, w.jobs[0].ID, func(j *job.Job, ts []store.Timer, now time.Time) (store.Change, error) {
		return decide(j, ts, now), nil
	})
	w.got(nil, err)
	w.jobs[0], w.timers = j, ts
}

// What users ask for is api/control, in short.
func (w *world) cancels(_ *job.Job, ts []store.Timer, now time.Time) store.Change {
	return store.Change{Remove: []store.TimerKey{ts[0].TimerKey}, Runs: []store.RunRow{ts[0].History(job.StepCancelled, true, "cancelled", now)}}
}

func (w *world) stops(_ *job.Job, ts []store.Timer, now time.Time) store.Change {
	ts[0].Step, ts[0].CancelAt = job.StepCancelling, now
	return store.Change{Set: ts}
}

func (w *world) updates(j *job.Job, ts []store.Timer, now time.Time) store.Change {
	c := *j
	c.Version, c.UpdatedAt, c.Spec.Schedule.At, c.Payload = j.Version+1, now, base.Add(time.Hour), make([]byte, 50)
	t := store.NewTimer(&c, schedule.Occurrence{At: c.Spec.Schedule.At}, now)
	c.DueAt = t.DueAt
	return store.Change{Job: &c, PayloadChanged: true, Remove: []store.TimerKey{ts[0].TimerKey}, Put: []store.Timer{t}}
}

func (w *world) reorders(j *job.Job, ts []store.Timer, now time.Time) store.Change {
	c := *j
	c.Version, c.UpdatedAt, c.Priority = j.Version+1, now, job.High
	t := store.Again(ts[0], &c, ts[0].DueAt, ts[0].Attempt)
	return store.Change{Job: &c, Set: []store.Timer{t}}
}

// startOne brings a one-time job to where it runs.
func (w *world) startOne() {
	w.submit(once, false)
	w.readDue()
	w.mark()
	w.record(nil, store.ReportStart)
}

// getRun, getJob and list are the reads of api.
func (w *world) getRun() {
	w.t.Helper()
	ref := store.JobRef{Namespace: namespace, ID: w.jobs[0].ID}
	jobs, err := w.s.JobsByID(w.t.Context(), []store.JobRef{ref})
	w.got(nil, err)
	w.got(w.s.Timers(w.t.Context(), []*job.Job{jobs[ref]}))
}

func (w *world) getJob() {
	w.t.Helper()
	j, err := w.s.Job(w.t.Context(), namespace, w.jobs[0].ID)
	w.got(nil, err)
	w.got(w.s.Timers(w.t.Context(), []*job.Job{j}))
}

func (w *world) list(state job.State) {
	w.t.Helper()
	jobs, err := w.s.ListJobs(w.t.Context(), store.JobQuery{Namespace: namespace, State: state, Limit: 51})
	if err != nil || len(jobs) != 51 {
		w.t.Fatalf("%d jobs are listed: %v", len(jobs), err)
	}
	w.got(w.s.Timers(w.t.Context(), jobs[:50]))
}

func (w *world) shards() (ids []int32) {
	for i := range w.s.shards {
		ids = append(ids, i)
	}
	return ids
}

func (w *world) renew() {
	_, _, err := w.s.Renew(w.t.Context(), store.Member{ID: "planner", Host: "host"}, 3*time.Second)
	w.got(nil, err)
}

func (w *world) claim() {
	w.t.Helper()
	w.got(w.s.Shards(w.t.Context()))
	w.got(w.s.Claim(w.t.Context(), "planner", w.shards()))
	w.got(nil, w.s.SaveStreamSeq(w.t.Context(), store.Stream{Name: "RUNS", Generation: 1, LastSeq: 1}))
}

func (w *world) checkpoint() {
	w.t.Helper()
	var list []store.Shard
	for _, shard := range w.shards() {
		list = append(list, store.Shard{ID: shard, Epoch: 1, Checkpoint: base})
	}
	w.got(nil, w.s.Checkpoint(w.t.Context(), "planner", list))
}

func (w *world) readInFlight() {
	w.t.Helper()
	var from []store.ShardCursor
	for _, shard := range w.shards() {
		from = append(from, store.ShardCursor{Shard: shard, From: store.TimerKey{Shard: shard}})
	}
	w.got(w.s.ReadInFlight(w.t.Context(), from, base, 1000)) // a minute before the jobs of these scenarios are due
}

// sendTheRest calls what no scenario does, so that nothing is in the catalogue that is never sent, and nothing sent that is not in it.
func sendTheRest(t *testing.T, s *Store, conn *pgx.Conn) {
	t.Helper()
	ctx := t.Context()
	w := &world{t: t, s: s, n: 3}
	w.submit(series, true)
	w.got(s.Submit(ctx, []store.Submission{{Job: w.jobs[0]}}))
	w.readDue()
	w.mark()
	m := store.Mark{ID: 2, Items: []store.MarkItem{{Key: w.timers[0].TimerKey, Version: 1, Forbid: true}}}
	w.got(s.MarkDispatched(ctx, m))
	w.got(s.Marked(ctx, m))
	w.got(s.BrokenSeries(ctx, 0, base, uuid.UUID{}, 10))
	w.got(s.JobNamespace(ctx, w.jobs[0].ID))
	w.got(s.ReadTimers(ctx, []store.TimerKey{w.timers[0].TimerKey}))
	w.got(s.ListFailures(ctx, namespace, store.RunPosition{}, 10))
	w.got(s.ListSkips(ctx, w.jobs[0].ID, time.Time{}, 10))
	for _, q := range []store.JobQuery{{State: job.Completed, Kind: "k"}, {State: job.Paused, Queue: "q"}, {Labels: map[string]string{"a": "b"}, NamePrefix: "x"}} {
		q.Namespace, q.Limit = namespace, 10
		w.got(s.ListJobs(ctx, q))
	}
	w.change(func(j *job.Job, ts []store.Timer, now time.Time) store.Change {
		return store.Change{
			Job: j, Remove: []store.TimerKey{ts[0].TimerKey}, Runs: []store.RunRow{ts[0].History(job.StepFailed, true, "", now)},
			Skips: []store.SkipRow{{JobID: j.ID, NominalAt: now, ThroughAt: now, Count: 1, At: now}},
		}
	})
	w.change(func(j *job.Job, _ []store.Timer, _ time.Time) store.Change {
		j.State = job.Deleted
		return store.Change{Job: j, PayloadChanged: true}
	})
	w.got(s.Purge(ctx, base.AddDate(10, 0, 0), 100, nil))
	run(t, conn, "INSERT INTO members (member_id, host, renewed_at) VALUES ('old', '', 1)")
	w.renew()
	w.got(nil, s.Leave(ctx, "planner"))
	w.got(nil, s.introduce(ctx))
	w.got(nil, s.Ping(ctx))
	w.got(s.Cluster(ctx))
	w.got(s.SharedQueues(ctx))
	w.got(s.Streams(ctx))
	w.got(s.NextGeneration(ctx, "RUNS", 1))
	w.got(nil, s.CreateKey(ctx, store.APIKey{ID: "key", Hash: []byte{1}}))
	w.got(s.Keys(ctx, ""))
	w.got(s.KeyByID(ctx, "key"))
	w.got(nil, s.RevokeKey(ctx, "key"))
}
