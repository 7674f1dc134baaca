package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/executor"
	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/store"
)

// account is what became of every occurrence of a job: those that ran, and those that were skipped by reason.
type account struct {
	ran     map[time.Time]int
	skipped map[string]int64
}

func (r *rig) account(j *job.Job) account {
	r.t.Helper()
	runs, err := r.store.ListRuns(r.t.Context(), j.ID, store.RunPosition{}, 1000)
	check.OK(r.t, err)
	a := account{map[time.Time]int{}, map[string]int64{}}
	for _, run := range runs {
		a.ran[run.ScheduledAt]++
	}
	skips, err := r.store.ListSkips(r.t.Context(), j.ID, time.Time{}, 1000)
	check.OK(r.t, err)
	for _, s := range skips {
		a.skipped[s.Reason] += s.Count
	}
	return a
}

// completed waits until a series has come to its end and nothing of it is left.
func (r *rig) completed(limit time.Duration, j *job.Job) {
	r.t.Helper()
	r.eventually(limit, func() string {
		got, err := r.store.Job(r.t.Context(), j.Namespace, j.ID)
		check.OK(r.t, err)
		timers, err := r.store.Timers(r.t.Context(), []*job.Job{got})
		check.OK(r.t, err)
		if got.State != job.Completed || len(timers[j.ID]) > 0 {
			return fmt.Sprintf("series is %s with %d timers", got.State, len(timers[j.ID]))
		}
		return ""
	})
}

// everySecond is a series of so many occurrences.
func everySecond(start time.Time, occurrences int) schedule.Schedule {
	return schedule.Schedule{
		Kind: schedule.Every, Period: time.Second, Anchor: start, End: start.Add(time.Duration(occurrences-1)*time.Second + time.Millisecond),
	}
}

// waitUntil waits for a moment of database time.
func (r *rig) waitUntil(at time.Time) {
	r.t.Helper()
	select {
	case <-time.After(at.Sub(r.clock.Now())):
	case <-r.t.Context().Done():
	}
}

// While nobody plans, occurrences are missed; the policy says what becomes of them, and each is accounted for.
func TestCatchUpAccountsForEveryOccurrence(t *testing.T) {
	onEachStore(t, catchUpAccountsForEveryOccurrence)
}

func catchUpAccountsForEveryOccurrence(t *testing.T, r *rig) {
	r.recorder()
	r.executor(8, map[string]executor.Handler{"work": func(context.Context, *executor.Run) error { return nil }})
	start := r.clock.Now().Add(200 * time.Millisecond)
	const occurrences = 5
	series := func(policy job.CatchUp) *job.Job {
		return r.newJob("work", everySecond(start, occurrences), func(j *job.Job) { j.Spec.CatchUp = policy })
	}
	latest, all, none := series(job.CatchUpLatest), series(job.CatchUpAll), series(job.CatchUpNone)
	none.Spec.Overlap = job.OverlapAllow // those within the grace come together
	r.submit(latest, all, none)
	r.waitUntil(start.Add(occurrences*time.Second + 100*time.Millisecond)) // all are missed but the grace of none is a minute
	r.planner()
	for _, j := range []*job.Job{latest, all, none} {
		r.completed(20*time.Second, j)
	}
	if a := r.account(latest); len(a.ran) != 1 || a.ran[start.Add((occurrences-1)*time.Second)] != 1 || a.skipped["missed"] != occurrences-1 {
		t.Errorf("latest: %v", a)
	}
	for name, j := range map[string]*job.Job{"all": all, "none": none} {
		if a := r.account(j); len(a.ran) != occurrences || len(a.skipped) != 0 {
			t.Errorf("%s: %v", name, a)
		}
	}
}

// An occurrence that falls due while an earlier run goes on is skipped or runs beside it, as the job says.
func TestOverlap(t *testing.T) { onEachStore(t, overlap) }

func overlap(t *testing.T, r *rig) {
	r.planner()
	r.recorder()
	var mu sync.Mutex
	working, most := map[uuid.UUID]int{}, map[uuid.UUID]int{}
	r.executor(8, map[string]executor.Handler{"slow": func(ctx context.Context, run *executor.Run) error {
		mu.Lock()
		working[run.JobID]++
		most[run.JobID] = max(most[run.JobID], working[run.JobID])
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			working[run.JobID]--
		}()
		select {
		case <-time.After(1500 * time.Millisecond):
		case <-ctx.Done():
		}
		return nil
	}})
	start := r.clock.Now().Add(300 * time.Millisecond)
	const occurrences = 4
	series := func(policy job.Overlap) *job.Job {
		return r.newJob("slow", everySecond(start, occurrences), func(j *job.Job) { j.Spec.Overlap = policy })
	}
	forbid, allow := series(job.OverlapForbid), series(job.OverlapAllow)
	r.submit(forbid, allow)
	r.completed(20*time.Second, forbid)
	r.completed(20*time.Second, allow)
	mu.Lock()
	defer mu.Unlock()
	a := r.account(forbid)
	if most[forbid.ID] != 1 || int64(len(a.ran))+a.skipped["overlap"] != occurrences || a.skipped["overlap"] == 0 {
		t.Errorf("forbid: %d at once, %v", most[forbid.ID], a)
	}
	if a := r.account(allow); most[allow.ID] < 2 || len(a.ran) != occurrences {
		t.Errorf("allow: %d at once, %v", most[allow.ID], a)
	}
}

// Several planners share the shards; one leaves without a word in the middle of a flood, and every run still happens once.
func TestPlannersShareAndTakeOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, openPostgres)
	first := r.planner()
	r.planner()
	r.recorder()
	r.recorder()
	var ran tally
	handlers := map[string]executor.Handler{"work": ran.work}
	r.executor(16, handlers)
	r.executor(16, handlers)
	const n = 2000
	at := r.clock.Now().Add(500 * time.Millisecond)
	jobs := make([]*job.Job, n)
	for i := range jobs {
		jobs[i] = r.newJob("work", once(at.Add(time.Duration(i)*time.Millisecond)), nil)
	}
	r.submit(jobs...)
	r.waitUntil(at.Add(n / 2 * time.Millisecond))
	first.Stop()
	ran.onceEach(t, jobs, r.allEnd(60*time.Second, jobs))
}

// A run whose kind nobody offers waits, and goes on as soon as an executor of its kind comes.
func TestUnknownKindWaitsForItsExecutor(t *testing.T) { onEachStore(t, unknownKindWaitsForItsExecutor) }

func unknownKindWaitsForItsExecutor(t *testing.T, r *rig) {
	r.planner()
	r.recorder()
	ok := func(context.Context, *executor.Run) error { return nil }
	r.executor(2, map[string]executor.Handler{"other": ok})
	j := r.newJob("rare", once(r.clock.Now()), nil)
	known := r.newJob("other", once(r.clock.Now()), nil)
	r.submit(j, known)
	r.allEnd(10*time.Second, []*job.Job{known})
	timers, err := r.store.Timers(t.Context(), []*job.Job{j})
	if err != nil || len(timers[j.ID]) != 1 || timers[j.ID][0].Step != job.StepDue {
		t.Fatalf("want one due timer, got %v, %v", timers[j.ID], err)
	}
	r.executor(2, map[string]executor.Handler{"rare": ok, "other": ok})
	r.allEnd(15*time.Second, []*job.Job{j})
}
