package storetest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

func testSubmit(t *testing.T, g *group) {
	g.run(t, "batch is stored in the order of the arguments", func(t *testing.T, b *bundle) {
		var jobs []*job.Job
		var subs []store.Submission
		for i := range 1000 {
			j := b.once(b.at(time.Duration(i) * time.Millisecond))
			if i%2 == 0 {
				j.Payload = []byte{byte(i), byte(i >> 8)}
			}
			jobs = append(jobs, j)
			subs = append(subs, b.submission(j))
		}
		results, err := b.Submit(t.Context(), subs)
		check(t, err)
		if len(results) != len(subs) {
			t.Fatalf("%d results for %d submissions", len(results), len(subs))
		}
		for i, r := range results {
			if r.Err != nil || r.Existed || r.Job == nil || r.Job.ID != jobs[i].ID {
				t.Fatalf("result %d: %+v", i, r)
			}
		}
		for _, i := range []int{0, 1, 500, 999} {
			got, err := b.Job(t.Context(), b.ns, jobs[i].ID)
			check(t, err)
			same(t, "job", jobs[i], got)
			same(t, "timers", []store.Timer{*subs[i].Timer}, b.timersOf(t, got))
		}
		if n := len(b.due(t)); n != 1000 {
			t.Errorf("%d rows are due, want 1000", n)
		}
	})
	g.run(t, "nothing to submit", func(t *testing.T, b *bundle) {
		results, err := b.Submit(t.Context(), nil)
		check(t, err)
		same(t, "results", []store.SubmitResult{}, results)
	})
	g.run(t, "every field of a job and its timer is kept", func(t *testing.T, b *bundle) {
		j, tm := b.fullJob()
		results, err := b.Submit(t.Context(), []store.Submission{{Job: j, Timer: &tm}})
		check(t, err)
		same(t, "answer", j, results[0].Job)
		got, err := b.Job(t.Context(), b.ns, j.ID)
		check(t, err)
		same(t, "job", j, got)
		same(t, "timer", &tm, b.row(t, tm.TimerKey))
	})
	g.run(t, "a job without a timer", func(t *testing.T, b *bundle) {
		j := b.once(b.base)
		j.DueAt = time.Time{}
		results, err := b.Submit(t.Context(), []store.Submission{{Job: j}})
		check(t, err)
		if results[0].Err != nil {
			t.Fatal(results[0].Err)
		}
		got, err := b.Job(t.Context(), b.ns, j.ID)
		check(t, err)
		same(t, "job", j, got)
		same(t, "timers", []store.Timer{}, b.timersOf(t, j))
	})
	g.run(t, "same id and body finds the job", func(t *testing.T, b *bundle) {
		j := b.once(b.at(time.Hour))
		j.Name, j.Payload = "n", []byte("one")
		b.submit(t, j)
		again := *j
		again.DueAt, again.Payload = b.at(2*time.Hour), []byte("two")
		r := b.submitOne(t, &again)
		if r.Err != nil || !r.Existed {
			t.Fatalf("existed %v, error %v", r.Existed, r.Err)
		}
		same(t, "job that was found", j, r.Job)
		same(t, "keys of its timers", []store.TimerKey{b.timer(j).TimerKey}, keysOf(b.timersOf(t, j)))
	})
	g.run(t, "same id with another body is refused", func(t *testing.T, b *bundle) {
		j := b.once(b.base)
		b.submit(t, j)
		other := *j
		other.BodyHash = []byte("another body")
		if r := b.submitOne(t, &other); !errors.Is(r.Err, store.ErrKeyReused) {
			t.Errorf("error %v, want ErrKeyReused", r.Err)
		}
		got, err := b.Job(t.Context(), b.ns, j.ID)
		check(t, err)
		same(t, "job", j, got)
	})
	g.run(t, "a name belongs to one job of a namespace", func(t *testing.T, b *bundle) {
		j := b.once(b.base)
		j.Name = "nightly"
		b.submit(t, j)
		second := b.once(b.base)
		second.Name = "nightly"
		if r := b.submitOne(t, second); !errors.Is(r.Err, store.ErrNameTaken) {
			t.Errorf("error %v, want ErrNameTaken", r.Err)
		}
		if _, err := b.Job(t.Context(), b.ns, second.ID); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("refused job: error %v, want ErrNotFound", err)
		}
		if row := b.row(t, b.timer(second).TimerKey); row != nil {
			t.Errorf("refused job left a timer: %+v", row)
		}
		elsewhere := b.once(b.base)
		elsewhere.Name, elsewhere.Namespace = "nightly", b.ns+"-other"
		b.submit(t, elsewhere)
		// The name is free again when its job is deleted.
		gone := *j
		gone.State = job.Deleted
		b.change(t, j, store.Change{Job: &gone})
		b.submit(t, second)
	})
	g.run(t, "refused ones do not hold up the others", func(t *testing.T, b *bundle) {
		named, keyed := b.once(b.base), b.once(b.base)
		named.Name = "taken"
		b.submit(t, named, keyed)
		taken, reused, found, fresh := b.once(b.base), *keyed, *keyed, b.once(b.base)
		taken.Name, reused.BodyHash, fresh.Name = "taken", []byte("x"), "free"
		results, err := b.Submit(t.Context(), []store.Submission{
			b.submission(taken), b.submission(&reused), b.submission(&found), b.submission(fresh),
		})
		check(t, err)
		if !errors.Is(results[0].Err, store.ErrNameTaken) || !errors.Is(results[1].Err, store.ErrKeyReused) ||
			results[2].Err != nil || !results[2].Existed || results[3].Err != nil || results[3].Existed {
			t.Errorf("results %+v", results)
		}
		if row := b.row(t, b.timer(fresh).TimerKey); row == nil {
			t.Error("the good one of the batch has no timer")
		}
	})
	g.run(t, "two of one call", func(t *testing.T, b *bundle) {
		first := b.once(b.base)
		first.Name = "a"
		twin, changed, namesake := *first, *first, b.once(b.base)
		changed.BodyHash, namesake.Name = []byte("x"), "a"
		results, err := b.Submit(t.Context(), []store.Submission{
			b.submission(first), b.submission(&twin), b.submission(&changed), b.submission(namesake),
		})
		check(t, err)
		if results[0].Err != nil || results[0].Existed {
			t.Errorf("first: %+v", results[0])
		}
		if results[1].Err != nil || !results[1].Existed || results[1].Job == nil || results[1].Job.ID != first.ID {
			t.Errorf("the same again: %+v", results[1])
		}
		if !errors.Is(results[2].Err, store.ErrKeyReused) {
			t.Errorf("same id, other body: %+v", results[2])
		}
		if !errors.Is(results[3].Err, store.ErrNameTaken) {
			t.Errorf("same name: %+v", results[3])
		}
		if n := len(b.due(t)); n != 1 {
			t.Errorf("%d timers, want 1", n)
		}
	})
	g.run(t, "a deleted job is found by its key", func(t *testing.T, b *bundle) {
		j := b.once(b.base)
		tm := b.submit(t, j)[0]
		gone := *j
		gone.State = job.Deleted
		b.change(t, j, store.Change{Job: &gone, Remove: []store.TimerKey{tm.TimerKey}})
		r := b.submitOne(t, j)
		if r.Err != nil || !r.Existed || r.Job.State != job.Deleted {
			t.Errorf("result %+v", r)
		}
		if row := b.row(t, tm.TimerKey); row != nil {
			t.Errorf("the deleted job got a timer: %+v", row)
		}
	})
	g.run(t, "concurrent retries make one job", func(t *testing.T, b *bundle) {
		j := b.once(b.base)
		j.Name = "one"
		var wg sync.WaitGroup
		made := make(chan bool, 32)
		for range cap(made) {
			wg.Go(func() {
				results, err := b.Submit(t.Context(), []store.Submission{b.submission(j)})
				if err != nil || results[0].Err != nil {
					t.Errorf("error %v, results %+v", err, results)
					return
				}
				made <- !results[0].Existed
			})
		}
		wg.Wait()
		close(made)
		n := 0
		for m := range made {
			if m {
				n++
			}
		}
		if n != 1 || len(b.due(t)) != 1 {
			t.Errorf("made %d times with %d timers, want once with one", n, len(b.due(t)))
		}
	})
	g.run(t, "times are truncated to microseconds", func(t *testing.T, b *bundle) {
		j := b.every(b.base)
		j.CreatedAt, j.UpdatedAt, j.DueAt = b.base.Add(1999), b.base.Add(2999), b.base.Add(3999)
		j.Pause = &job.Pause{By: "me", At: b.base.Add(4999)}
		tm := b.timer(j)
		tm.DueAt, tm.ScheduledAt = b.base.Add(5999), b.base.Add(6999)
		results, err := b.Submit(t.Context(), []store.Submission{{Job: j, Timer: &tm}})
		check(t, err)
		got, err := b.Job(t.Context(), b.ns, j.ID)
		check(t, err)
		same(t, "answer and stored job", got, results[0].Job)
		same(t, "times of the job", []time.Time{b.base.Add(1000), b.base.Add(2000), b.base.Add(3000), b.base.Add(4000)},
			[]time.Time{got.CreatedAt, got.UpdatedAt, got.DueAt, got.Pause.At})
		row := b.row(t, tm.TimerKey)
		if row == nil {
			t.Fatal("the timer is not found under a key with nanoseconds")
		}
		same(t, "times of the timer", []time.Time{b.base.Add(5000), b.base.Add(6000)}, []time.Time{row.DueAt, row.ScheduledAt})
		if j.CreatedAt != b.base.Add(1999) || tm.DueAt != b.base.Add(5999) {
			t.Error("the arguments were changed")
		}
	})
}

func (b *bundle) submitOne(t *testing.T, j *job.Job) store.SubmitResult {
	t.Helper()
	results, err := b.Submit(t.Context(), []store.Submission{b.submission(j)})
	check(t, err)
	return results[0]
}

// fullJob returns a job and a timer of which no field is zero.
func (b *bundle) fullJob() (*job.Job, store.Timer) {
	j := b.every(b.at(time.Hour))
	j.Spec.Schedule.Start, j.Spec.Schedule.End, j.Spec.Schedule.Jitter = b.base, b.at(5*time.Hour), time.Second
	j.Spec.Retry = job.RetryPolicy{MaxAttempts: 7, InitialBackoff: time.Second, MaxBackoff: time.Minute, Multiplier: 1.5}
	j.Spec.AttemptTimeout, j.Spec.TotalDeadline, j.Spec.StartDeadline = time.Minute, time.Hour, time.Second
	j.Spec.CatchUp, j.Spec.Overlap = job.CatchUpAll, job.OverlapAllow
	j.Spec.Labels = map[string]string{"team": "blue", `qu"ote`: "<ü>"}
	j.Name, j.Kind, j.Queue, j.QueueNamespace, j.Priority = "näme", "kind", "lane", b.ns, job.Critical
	j.State, j.Version, j.Payload = job.Paused, 3, []byte{0, 1, 255}
	j.Pause = &job.Pause{By: "somebody", At: b.at(time.Second), Note: "because"}
	j.UpdatedAt = b.at(time.Minute)
	tm := b.timer(j)
	tm.Step, tm.Attempt, tm.Dispatch, tm.Generation = job.StepRunning, 2, 5, 9
	tm.DispatchedAt, tm.StartedAt, tm.CancelAt = b.at(time.Minute), b.at(2*time.Minute), b.at(3*time.Minute)
	tm.Followed = true
	tm.Executor, tm.WaitReason, tm.LastError = "exec-1", "a reason", "an error"
	return j, tm
}
