package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// testModel runs random sequences of calls against a store and a model of it in memory. rapid prints the seed of a failure and shrinks the sequence.
func testModel(t *testing.T, open Open) {
	g := newGroup(open(t))
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(g.bundle(), t.Context())
		for range rapid.IntRange(1, 30).Draw(rt, "calls") {
			switch rapid.IntRange(0, 5).Draw(rt, "call") {
			case 0:
				m.submit(rt)
			case 1:
				m.change(rt)
			case 2, 3:
				m.mark(rt)
			default:
				m.record(rt)
			}
		}
		m.compare(rt)
	})
}

// model is what a store of a few jobs should hold.
type model struct {
	*bundle
	ctx    context.Context
	drafts []*job.Job
	jobs   map[uuid.UUID]*job.Job
	timers map[store.TimerKey]store.Timer
	runs   map[store.TimerKey]store.RunRow // one attempt each, by the key that it had
	seen   []store.Timer                   // every row as it ever was: what a stale list or a late report would name
	fires  int                             // how many occurrences were asked for
}

func newModel(b *bundle, ctx context.Context) *model { //nolint:revive // the context is kept
	m := &model{
		bundle: b, ctx: ctx,
		jobs: map[uuid.UUID]*job.Job{}, timers: map[store.TimerKey]store.Timer{}, runs: map[store.TimerKey]store.RunRow{},
	}
	for i := range 4 {
		j := b.once(b.base)
		if i%2 == 1 {
			j = b.every(b.base)
		}
		m.drafts = append(m.drafts, j)
	}
	return m
}

func (m *model) put(t store.Timer) bool {
	if _, there := m.timers[t.TimerKey]; there {
		return false
	}
	m.keep(t)
	return true
}

func (m *model) keep(t store.Timer) {
	m.timers[t.TimerKey] = t
	m.seen = append(m.seen, t)
}

// live are the rows of a job, sorted by due time.
func (m *model) live(id uuid.UUID) (list []store.Timer) {
	for _, t := range m.timers {
		if t.JobID == id {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(x, y store.Timer) int { return x.Compare(y.TimerKey) })
	return list
}

func (m *model) submit(rt *rapid.T) {
	var subs []store.Submission
	for range rapid.IntRange(1, 3).Draw(rt, "submissions") {
		j := *rapid.SampledFrom(m.drafts).Draw(rt, "job")
		j.Name = rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "name")
		if rapid.Bool().Draw(rt, "another body") {
			j.BodyHash = []byte("another")
		}
		subs = append(subs, m.submission(&j))
	}
	results, err := m.Submit(m.ctx, subs)
	if err != nil {
		rt.Fatal(err)
	}
	for i, sub := range subs {
		var want error
		old, existed := m.jobs[sub.Job.ID]
		switch {
		case existed && !bytes.Equal(old.BodyHash, sub.Job.BodyHash):
			want, existed = store.ErrKeyReused, false
		case existed:
		case m.taken(sub.Job):
			want = store.ErrNameTaken
		default:
			m.jobs[sub.Job.ID] = sub.Job
			m.put(*sub.Timer)
		}
		if !errors.Is(results[i].Err, want) || results[i].Existed != existed {
			rt.Fatalf("submission %d: existed %v, error %v; want %v, %v", i, results[i].Existed, results[i].Err, existed, want)
		}
	}
}

func (m *model) taken(j *job.Job) bool {
	for id, other := range m.jobs {
		if id != j.ID && other.State != job.Deleted && j.State != job.Deleted && j.Name != "" && other.Name == j.Name {
			return true
		}
	}
	return false
}

// change pauses, resumes, deletes, renames or updates a job.
func (m *model) change(rt *rapid.T) {
	draft := rapid.SampledFrom(m.drafts).Draw(rt, "job")
	kind := rapid.SampledFrom([]string{"pause", "resume", "delete", "rename", "update", "trigger", "refuse"}).Draw(rt, "change")
	name := rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "name")
	m.fires++
	fire := m.fires
	refused := errors.New("refused")
	decide := func(j *job.Job, timers []store.Timer, _ time.Time) (store.Change, error) {
		next := *j
		next.Version++
		c := store.Change{Job: &next}
		switch kind {
		case "pause":
			next.State = job.Paused
		case "resume":
			next.State = job.Active
		case "delete":
			next.State = job.Deleted
		case "rename":
			next.Name = name
		case "trigger":
			c.Put = append(c.Put, store.NewTrigger(j, fmt.Sprint(fire), m.at(time.Duration(fire)*time.Second), m.base))
		case "refuse":
			return c, refused
		}
		for _, t := range timers {
			switch {
			case t.Step == job.StepDue && kind == "pause":
				t.Step = job.StepWaiting
			case t.Step == job.StepWaiting && kind == "resume":
				t.Step = job.StepDue
			case t.Step == job.StepDue && kind == "delete":
				c.Remove = append(c.Remove, t.TimerKey)
				continue
			case t.Step == job.StepDue && kind == "update":
				t.Version = next.Version
			default:
				continue
			}
			c.Set = append(c.Set, t)
		}
		return c, nil
	}
	after, timers, err := m.ChangeJob(m.ctx, m.ns, draft.ID, decide)
	j, there := m.jobs[draft.ID]
	want := store.ErrNotFound
	var c store.Change
	if there {
		c, want = decide(j, m.live(j.ID), m.base)
		if want == nil && m.taken(c.Job) {
			want = store.ErrNameTaken
		}
	}
	if !errors.Is(err, want) {
		rt.Fatalf("%s: error %v, want %v", kind, err, want)
	}
	if want != nil {
		return
	}
	m.jobs[j.ID] = c.Job
	for _, k := range c.Remove {
		delete(m.timers, k)
	}
	for _, t := range c.Set {
		m.keep(t)
	}
	for _, t := range c.Put {
		m.put(t)
	}
	m.equal(rt, "job after "+kind, c.Job, after)
	m.equal(rt, "timers after "+kind, m.live(j.ID), timers)
}

func (m *model) mark(rt *rapid.T) {
	if len(m.seen) == 0 {
		return
	}
	batch := store.Mark{ID: markIDs.Add(1), Generation: int64(rapid.IntRange(1, 3).Draw(rt, "generation"))}
	asked := map[store.TimerKey]bool{}
	for range rapid.IntRange(1, 4).Draw(rt, "items") {
		t := rapid.SampledFrom(m.seen).Draw(rt, "row")
		if !asked[t.TimerKey] {
			asked[t.TimerKey] = true
			batch.Items = append(batch.Items, item(t, rapid.Bool().Draw(rt, "forbid")))
		}
	}
	results, err := m.MarkDispatched(m.ctx, batch)
	if err != nil {
		rt.Fatal(err)
	}
	want := make([]store.MarkResult, len(batch.Items))
	for i, it := range batch.Items {
		t, there := m.timers[it.Key]
		if !there || t.Step != job.StepDue || t.Version != it.Version || t.Dispatch != it.Dispatch {
			continue
		}
		want[i] = store.MarkDone
		for _, other := range m.live(it.JobID) {
			if it.Forbid && other.Listed && other.ScheduledAt.Before(it.ScheduledAt) {
				want[i] = store.MarkOverlaps
			}
		}
		if want[i] == store.MarkDone {
			t.Step, t.Dispatch, t.Generation = job.StepDispatched, t.Dispatch+1, batch.Generation
			m.keep(t)
		}
	}
	m.equal(rt, "results of a mark", want, results)
}

func (m *model) record(rt *rapid.T) {
	if len(m.seen) == 0 {
		return
	}
	var reports []store.Report
	for range rapid.IntRange(1, 4).Draw(rt, "reports") {
		t := rapid.SampledFrom(m.seen).Draw(rt, "row")
		switch rapid.IntRange(0, 3).Draw(rt, "report") {
		case 0:
			reports = append(reports, startOf(t, m.at(time.Second), "exec"))
		case 1:
			reports = append(reports, followOf(t))
		default:
			end := endOf(t)
			end.NeedJob = true
			reports = append(reports, end)
		}
	}
	m.fires++
	next := m.at(time.Duration(m.fires) * time.Second)
	decide := func(i int, t *store.Timer, j *job.Job, _ time.Time) store.Change {
		var c store.Change
		if reports[i].Kind == store.ReportEnd {
			run := t.History(job.StepSucceeded, true, "", m.at(time.Hour))
			run.Attempt = int32(t.Dispatch)
			c.Runs = []store.RunRow{run}
		}
		if !t.Followed && j != nil && j.Spec.Recurring() && j.State != job.Deleted {
			c.Put = []store.Timer{m.occurrence(j, next)}
		}
		return c
	}
	results, err := m.Record(m.ctx, reports, decide)
	if err != nil {
		rt.Fatal(err)
	}
	want := make([]bool, len(reports))
	for _, last := range []bool{false, true} {
		for i, r := range reports {
			if (r.Kind == store.ReportEnd) == last {
				want[i] = m.apply(i, r, decide)
			}
		}
	}
	for i, r := range results {
		if r.Applied != want[i] {
			rt.Fatalf("report %d %+v: applied %v, want %v", i, reports[i], r.Applied, want[i])
		}
	}
}

func (m *model) apply(i int, r store.Report, decide func(int, *store.Timer, *job.Job, time.Time) store.Change) bool {
	t, there := m.timers[r.Key]
	if !there || t.Dispatch != r.Dispatch {
		return false
	}
	before := t
	switch r.Kind {
	case store.ReportStart:
		if t.Step != job.StepDispatched {
			return false
		}
		t.Step, t.StartedAt, t.Executor = job.StepRunning, r.StartedAt, r.Executor
		m.keep(t)
		return true
	case store.ReportFollow:
		if t.Followed {
			return false
		}
		t.Followed = true
		m.keep(t)
	case store.ReportEnd:
		delete(m.timers, r.Key)
	}
	c := decide(i, &before, m.jobs[r.JobID], m.base)
	for _, run := range c.Runs {
		key := r.Key
		key.Shard = run.Attempt
		if _, there := m.runs[key]; !there {
			m.runs[key] = run
		}
	}
	for _, t := range c.Put {
		m.put(t)
	}
	return true
}

// compare reads all that the store holds of the jobs.
func (m *model) compare(rt *rapid.T) {
	var due []store.Timer
	for _, t := range m.timers {
		if t.Step == job.StepDue {
			due = append(due, t)
		}
	}
	rows, err := m.ReadDue(m.ctx, m.cursors(m.base), m.base.AddDate(0, 0, 1), 1000)
	if err != nil {
		rt.Fatal(err)
	}
	got := []store.Timer{}
	for _, r := range rows {
		got = append(got, r.Timer)
	}
	byKey := func(x, y store.Timer) int { return x.Compare(y.TimerKey) }
	slices.SortFunc(due, byKey)
	slices.SortFunc(got, byKey)
	m.equal(rt, "due rows", due, got)
	for _, draft := range m.drafts {
		j, err := m.Job(m.ctx, m.ns, draft.ID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			rt.Fatal(err)
		}
		m.equal(rt, "job", m.jobs[draft.ID], j)
		if j == nil {
			continue
		}
		timers, err := m.Timers(m.ctx, []*job.Job{j})
		if err != nil {
			rt.Fatal(err)
		}
		m.equal(rt, "timers", m.live(j.ID), timers[j.ID])
		runs, err := m.ListRuns(m.ctx, j.ID, store.RunPosition{}, 1000)
		if err != nil {
			rt.Fatal(err)
		}
		n := 0
		for _, run := range m.runs {
			if run.JobID == j.ID {
				n++
			}
		}
		m.equal(rt, "number of rows of history", n, len(runs))
	}
}

func (m *model) equal(rt *rapid.T, what string, want, got any) {
	// When a row was handed out is for the store to say.
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(store.Timer{}, "DispatchedAt")); d != "" {
		rt.Fatalf("%s (-want +got):\n%s", what, d)
	}
}
