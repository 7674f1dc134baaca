package e2e

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock-io/waterclock/executor"
	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
)

// A job goes the whole way: submit, plan, mark, publish, execute, record.
func TestOneJobGoesTheWholeWay(t *testing.T) { onEachStore(t, oneJobGoesTheWholeWay) }

func oneJobGoesTheWholeWay(t *testing.T, r *rig) {
	r.planner()
	r.recorder()
	r.executor(4, map[string]executor.Handler{"greet": func(_ context.Context, run *executor.Run) error {
		run.SetResult(append([]byte("hello "), run.Payload...))
		return nil
	}})
	at := r.clock.Now().Add(300 * time.Millisecond)
	j := r.newJob("greet", once(at), func(j *job.Job) { j.Payload = []byte("world") })
	r.submit(j)
	row := r.allEnd(10*time.Second, []*job.Job{j})[j.ID]
	if row.Step != job.StepSucceeded || string(row.Result) != "hello world" || row.Attempt != 1 {
		t.Errorf("got %s %q attempt %d, want succeeded %q attempt 1", row.Step, row.Result, row.Attempt, "hello world")
	}
	if row.StartedAt.Before(at) {
		t.Errorf("started at %s, before its time %s", row.StartedAt, at)
	}
	timers, err := r.store.Timers(t.Context(), []*job.Job{j})
	if err != nil || len(timers[j.ID]) != 0 {
		t.Errorf("timers left: %v, %v", timers, err)
	}
}

func TestFailuresAreRetriedAndEnd(t *testing.T) { onEachStore(t, failuresAreRetriedAndEnd) }

func failuresAreRetriedAndEnd(t *testing.T, r *rig) {
	r.planner()
	r.recorder()
	var tries atomic.Int32
	r.executor(4, map[string]executor.Handler{
		"flaky": func(context.Context, *executor.Run) error {
			if tries.Add(1) < 3 {
				return errors.New("not yet")
			}
			return nil
		},
		"hopeless": func(context.Context, *executor.Run) error { return executor.Fatal(errors.New("no way")) },
		"never":    func(context.Context, *executor.Run) error { return errors.New("never") },
	})
	quick := func(j *job.Job) {
		j.Spec.Retry = job.RetryPolicy{MaxAttempts: 3, InitialBackoff: 20 * time.Millisecond}
	}
	now := r.clock.Now()
	jobs := []*job.Job{r.newJob("flaky", once(now), quick), r.newJob("hopeless", once(now), quick), r.newJob("never", once(now), quick)}
	r.submit(jobs...)
	rows := r.allEnd(20*time.Second, jobs)
	for i, want := range []struct {
		step    job.Step
		attempt int32
	}{{job.StepSucceeded, 3}, {job.StepFailed, 1}, {job.StepFailed, 3}} {
		row := rows[jobs[i].ID]
		if row.Step != want.step || row.Attempt != want.attempt {
			t.Errorf("%s: got %s at attempt %d, want %s at %d", jobs[i].Kind, row.Step, row.Attempt, want.step, want.attempt)
		}
	}
}

func TestSeriesHasNoGapAndNoExtra(t *testing.T) { onEachStore(t, seriesHasNoGapAndNoExtra) }

func seriesHasNoGapAndNoExtra(t *testing.T, r *rig) {
	r.planner()
	r.recorder()
	var mu sync.Mutex
	ran := map[time.Time]int{}
	r.executor(4, map[string]executor.Handler{"tick": func(_ context.Context, run *executor.Run) error {
		mu.Lock()
		defer mu.Unlock()
		ran[run.ScheduledAt]++
		return nil
	}})
	start := r.clock.Now().Add(500 * time.Millisecond)
	s := schedule.Schedule{Kind: schedule.Every, Period: time.Second, Anchor: start, End: start.Add(4500 * time.Millisecond)}
	j := r.newJob("tick", s, nil)
	r.submit(j)
	r.eventually(15*time.Second, func() string {
		got, err := r.store.Job(t.Context(), j.Namespace, j.ID)
		check.OK(t, err)
		if got.State != job.Completed {
			return "series is " + string(got.State)
		}
		timers, err := r.store.Timers(t.Context(), []*job.Job{j})
		check.OK(t, err)
		if len(timers) > 0 {
			return "its last occurrence is handed out and has not ended"
		}
		return ""
	})
	mu.Lock()
	defer mu.Unlock()
	if len(ran) != 5 {
		t.Errorf("%d occurrences ran, want 5: %v", len(ran), ran)
	}
	for at, n := range ran {
		if n != 1 || at.Sub(start)%time.Second != 0 {
			t.Errorf("occurrence %s ran %d times", at, n)
		}
	}
}

func TestFloodEndsOnceEach(t *testing.T) { alone(t, floodEndsOnceEach) }

func floodEndsOnceEach(t *testing.T, r *rig) {
	const n = 10_000
	r.planner()
	r.recorder()
	var ran tally
	r.executor(64, map[string]executor.Handler{"work": ran.work})
	at := r.clock.Now().Add(3 * time.Second)
	jobs := make([]*job.Job, n)
	for i := range jobs {
		jobs[i] = r.newJob("work", once(at.Add(time.Duration(i)*time.Second/n)), nil)
	}
	r.submit(jobs...)
	begun := time.Now()
	rows := r.allEnd(120*time.Second, jobs)
	t.Logf("%d jobs ended %s after the last submit", n, time.Since(begun))
	ran.onceEach(t, jobs, rows)
}

func TestPriorityOnOneSlot(t *testing.T) { alone(t, priorityOnOneSlot) }

func priorityOnOneSlot(t *testing.T, r *rig) {
	r.planner()
	r.recorder()
	var mu sync.Mutex
	var order []string
	r.executor(1, map[string]executor.Handler{"work": func(_ context.Context, run *executor.Run) error {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, run.Priority)
		return nil
	}})
	const tries = 100
	for try, slow := 0, 0; try < tries; try++ {
		mu.Lock()
		order = order[:0]
		mu.Unlock()
		at := r.clock.Now().Add(100 * time.Millisecond)
		var jobs []*job.Job
		for _, p := range []job.Priority{job.Low, job.High, job.Critical, job.Normal} {
			jobs = append(jobs, r.newJob("work", once(at), func(j *job.Job) { j.Priority = p }))
		}
		r.submit(jobs...)
		early := r.clock.Now().Before(at.Add(-70 * time.Millisecond))
		r.allEnd(10*time.Second, jobs)
		if !early {
			// The planner heard of them one by one when they were due already, or nearly so: the first may have begun before the last was known.
			if slow++; slow > tries {
				t.Fatalf("%d of %d submits took too long on this machine to tell", slow, slow+try)
			}
			try--
			continue
		}
		mu.Lock()
		for i, want := range []string{"critical", "high", "normal", "low"} {
			if i >= len(order) || order[i] != want {
				t.Fatalf("try %d of %d: order %v", try+1, tries, order)
			}
		}
		mu.Unlock()
	}
}
