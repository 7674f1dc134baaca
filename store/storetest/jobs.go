package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

func testJobs(t *testing.T, g *group) {
	g.run(t, "another namespace or an unknown id is not found", func(t *testing.T, b *bundle) {
		j := b.once(b.base)
		b.submit(t, j)
		for ns, id := range map[string]uuid.UUID{"another": j.ID, "": j.ID, b.ns: uuid.New()} {
			if got, err := b.Job(t.Context(), ns, id); !errors.Is(err, store.ErrNotFound) || got != nil {
				t.Errorf("namespace %q: job %v, error %v, want ErrNotFound", ns, got, err)
			}
		}
	})
	g.run(t, "many by their ids", func(t *testing.T, b *bundle) {
		jobs := b.listed(t, 3)
		refs := []store.JobRef{{Namespace: b.ns, ID: uuid.New()}, {Namespace: "another", ID: jobs[0].ID}}
		want := map[store.JobRef]*job.Job{}
		for _, j := range jobs {
			r := store.JobRef{Namespace: b.ns, ID: j.ID}
			j.Payload = nil
			refs, want[r] = append(refs, r), j
		}
		got, err := b.JobsByID(t.Context(), append(refs, refs[2])) // one of them twice
		check(t, err)
		same(t, "jobs", want, got)
		none, err := b.JobsByID(t.Context(), nil)
		check(t, err)
		same(t, "jobs of no ids", map[store.JobRef]*job.Job{}, none)
	})
	g.run(t, "the namespace of a job", func(t *testing.T, b *bundle) {
		j, gone := b.once(b.base), b.once(b.base)
		gone.State = job.Deleted
		b.submit(t, j, gone)
		for _, id := range []uuid.UUID{j.ID, gone.ID} {
			ns, err := b.JobNamespace(t.Context(), id)
			check(t, err)
			same(t, "namespace", b.ns, ns)
		}
		if ns, err := b.JobNamespace(t.Context(), uuid.New()); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("unknown job: namespace %q, error %v, want ErrNotFound", ns, err)
		}
	})
	g.run(t, "list is newest first without payloads", func(t *testing.T, b *bundle) {
		jobs := b.listed(t, 25)
		got, err := b.ListJobs(t.Context(), store.JobQuery{Namespace: b.ns, Limit: 100})
		check(t, err)
		for _, j := range jobs {
			j.Payload = nil
		}
		same(t, "list", jobs, got)
		none, err := b.ListJobs(t.Context(), store.JobQuery{Namespace: b.ns + "x", Limit: 100})
		check(t, err)
		same(t, "list of another namespace", []*job.Job{}, none)
	})
	g.run(t, "pages join without gap or double", func(t *testing.T, b *bundle) {
		jobs := b.listed(t, 25)
		for _, limit := range []int{1, 4, 25} {
			same(t, "pages", idsOf(jobs), idsOf(b.pages(t, store.JobQuery{Namespace: b.ns, Limit: limit})))
		}
	})
	g.run(t, "filters", testFilters)
	g.run(t, "a job is completed when its only run or its last is over", func(t *testing.T, b *bundle) {
		over, waits, series, paused, done := b.once(b.base), b.once(b.base), b.every(b.base), b.once(b.base), b.every(b.base)
		retried, last := b.once(b.base), b.every(b.base)
		paused.State, done.State, last.State = job.Paused, job.Completed, job.Completed
		timers := b.submit(t, over, waits, series, paused, done, retried, last)
		// A series is not completed for want of a timer; a run that comes back is still live under its new key.
		b.change(t, over, store.Change{Remove: []store.TimerKey{timers[0].TimerKey}})
		b.change(t, series, store.Change{Remove: []store.TimerKey{timers[2].TimerKey}})
		b.change(t, done, store.Change{Remove: []store.TimerKey{timers[4].TimerKey}})
		b.change(t, retried, store.Change{
			Remove: []store.TimerKey{timers[5].TimerKey}, Put: []store.Timer{store.Again(timers[5], nil, b.at(time.Hour), 2)},
		})
		for state, want := range map[job.State][]*job.Job{
			"":            {over, waits, series, paused, done, retried, last},
			job.Active:    {waits, series, retried, last},
			job.Paused:    {paused},
			job.Completed: {over, done},
			job.Deleted:   {},
		} {
			for _, limit := range []int{1, 100} {
				got := b.pages(t, store.JobQuery{Namespace: b.ns, State: state, Limit: limit})
				sameIDs(t, "state "+string(state), idsOf(want), idsOf(got))
			}
		}
	})
	g.run(t, "a page is short only at the end", func(t *testing.T, b *bundle) {
		// 300 completed ones lie before 5 active ones, and the other way round.
		var old, young []*job.Job
		for i := range 305 {
			j := b.once(b.base)
			j.CreatedAt = b.at(time.Duration(i) * time.Second)
			if i < 5 {
				old = append(old, j)
			} else {
				young = append(young, j)
			}
		}
		b.submit(t, old...)
		var subs []store.Submission
		for _, j := range young {
			subs = append(subs, store.Submission{Job: j})
		}
		_, err := b.Submit(t.Context(), subs)
		check(t, err)
		got, err := b.ListJobs(t.Context(), store.JobQuery{Namespace: b.ns, State: job.Active, Limit: 5})
		check(t, err)
		slices.Reverse(old)
		same(t, "active ones", idsOf(old), idsOf(got))
		same(t, "completed ones", 300, len(b.pages(t, store.JobQuery{Namespace: b.ns, State: job.Completed, Limit: 7})))
	})
}

func testFilters(t *testing.T, b *bundle) {
	mk := func(change func(j *job.Job)) *job.Job {
		j := b.once(b.base)
		change(j)
		return j
	}
	plain := mk(func(*job.Job) {})
	lane := mk(func(j *job.Job) { j.Queue = "lane" })
	kind := mk(func(j *job.Job) { j.Kind = "other" })
	blue := mk(func(j *job.Job) { j.Spec.Labels = map[string]string{"team": "blue", "tier": "1"} })
	red := mk(func(j *job.Job) { j.Spec.Labels = map[string]string{"team": "red", "blue": "team"} })
	night := mk(func(j *job.Job) { j.Name = "night_1" })
	other := mk(func(j *job.Job) { j.Name = "nightx1" })
	percent := mk(func(j *job.Job) { j.Name = "100%" })
	gone := mk(func(j *job.Job) { j.State = job.Deleted; j.Name = "night_2" })
	b.submit(t, plain, lane, kind, blue, red, night, other, percent, gone)
	all := []*job.Job{plain, lane, kind, blue, red, night, other, percent}
	for _, tc := range []struct {
		name string
		q    store.JobQuery
		want []*job.Job
	}{
		{"none", store.JobQuery{}, all},
		{"deleted", store.JobQuery{State: job.Deleted}, []*job.Job{gone}},
		{"queue", store.JobQuery{Queue: "lane"}, []*job.Job{lane}},
		{"kind", store.JobQuery{Kind: "other"}, []*job.Job{kind}},
		{"label", store.JobQuery{Labels: map[string]string{"team": "blue"}}, []*job.Job{blue}},
		{"labels", store.JobQuery{Labels: map[string]string{"team": "blue", "tier": "1"}}, []*job.Job{blue}},
		{"labels that no job has together", store.JobQuery{Labels: map[string]string{"team": "red", "tier": "1"}}, nil},
		{"label with quotes", store.JobQuery{Labels: map[string]string{`"`: `'`}}, nil},
		{"prefix", store.JobQuery{NamePrefix: "night"}, []*job.Job{night, other}},
		{"prefix is no pattern _", store.JobQuery{NamePrefix: "night_"}, []*job.Job{night}},
		{"prefix is no pattern %", store.JobQuery{NamePrefix: "%"}, nil},
		{"prefix with %", store.JobQuery{NamePrefix: "100%"}, []*job.Job{percent}},
		{"prefix is case-sensitive", store.JobQuery{NamePrefix: "Night"}, nil},
		{"several", store.JobQuery{Queue: "lane", Kind: "other"}, nil},
	} {
		tc.q.Namespace = b.ns
		for _, limit := range []int{2, 100} {
			tc.q.Limit = limit
			sameIDs(t, tc.name, idsOf(tc.want), idsOf(b.pages(t, tc.q)))
		}
	}
}

// listed stores jobs, several at each instant, and returns them in the order of a list.
func (b *bundle) listed(t *testing.T, n int) []*job.Job {
	t.Helper()
	var jobs []*job.Job
	for i := range n {
		j := b.once(b.base)
		j.CreatedAt = b.at(time.Duration(i/4) * time.Second)
		j.Payload = []byte("payload")
		jobs = append(jobs, j)
	}
	b.submit(t, jobs...)
	slices.SortFunc(jobs, func(x, y *job.Job) int {
		if c := y.CreatedAt.Compare(x.CreatedAt); c != 0 {
			return c
		}
		return slices.Compare(y.ID[:], x.ID[:])
	})
	return jobs
}

// pages reads a list to its end.
func (b *bundle) pages(t *testing.T, q store.JobQuery) []*job.Job {
	t.Helper()
	var all []*job.Job
	for {
		page, err := b.ListJobs(t.Context(), q)
		check(t, err)
		if len(page) > q.Limit {
			t.Fatalf("%d rows with limit %d", len(page), q.Limit)
		}
		all = append(all, page...)
		if len(page) < q.Limit {
			return all
		}
		last := page[len(page)-1]
		q.BeforeCreated, q.BeforeID = last.CreatedAt, last.ID
	}
}

// sameIDs compares without regard to order.
func sameIDs(t *testing.T, what string, want, got []uuid.UUID) {
	t.Helper()
	order := func(x, y uuid.UUID) int { return slices.Compare(x[:], y[:]) }
	want, got = slices.SortedFunc(slices.Values(want), order), slices.SortedFunc(slices.Values(got), order)
	same(t, what, want, got)
}
