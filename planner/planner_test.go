package planner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/streams"
)

// faulty is a store whose marks go wrong as the test says.
type faulty struct {
	store.Store
	mark func(ctx context.Context, m store.Mark, do func() ([]store.MarkResult, error)) ([]store.MarkResult, error)
}

func (f *faulty) MarkDispatched(ctx context.Context, m store.Mark) ([]store.MarkResult, error) {
	return f.mark(ctx, m, func() ([]store.MarkResult, error) { return f.Store.MarkDispatched(ctx, m) })
}

// alone is a store whose members see nobody but themselves: each planner believes that it owns every shard.
type alone struct{ store.Store }

func (a alone) Renew(ctx context.Context, m store.Member, ttl time.Duration) ([]store.Member, time.Time, error) {
	_, now, err := a.Store.Renew(ctx, m, ttl)
	return []store.Member{m}, now, err
}

// small lets a mark take few rows: where the machine is busy one of hundreds takes so long that none of them may be published any more.
func small(c *Config) { c.Batch = 20 }

// Two planners that both believe to own a shard hand each run out once, at its time and not before.
func TestTwoPlannersOfOneShard(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n = 800
	now := r.now()
	jobs := make([]*job.Job, n)
	for i := range jobs {
		jobs[i] = r.job(now.Add(time.Duration(i)*3*time.Millisecond), func(j *job.Job) { j.Priority = job.Priorities[i%4] })
	}
	timers := r.submit(now, jobs...)
	a, b := r.planner(alone{r.store}, small), r.planner(alone{r.store}, func(c *Config) { c.Batch = 7 })
	r.recorder() // what was marked too long ago comes back, and is handed out then
	r.owns(a)
	r.owns(b)
	check.Await(t, "all hand-overs", func() bool { return len(r.outs()) >= n })
	// What is over its time is read each second: two more rounds of both.
	for _, p := range []*Planner{a, b} {
		for range 2 {
			p.nudge()
			ask(p, func() bool { return true })
		}
	}
	due := make(map[uuid.UUID]int64, n)
	for i := range timers {
		due[timers[i].RunID] = timers[i].DueAt.UnixMicro()
	}
	r.eachOnce()
	r.mu.Lock()
	defer r.mu.Unlock()
	for subject, m := range r.last {
		run := uuid.UUID(m.RunId)
		at, left := due[run]
		if !left {
			t.Errorf("%s: a second hand-over of run %s", subject, run)
		} else if m.PublishedAt < at {
			t.Errorf("run %s was published %d µs before its time", run, at-m.PublishedAt)
		}
		delete(due, run)
	}
	if len(due) != 0 {
		t.Errorf("%d of %d runs were not handed out", len(due), n)
	}
}

// What a mark did whose answer was lost is found out: exactly what was marked is published.
func TestMarkWithALostAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var calls, lost, undone atomic.Int32
	s := &faulty{r.store, func(_ context.Context, _ store.Mark, do func() ([]store.MarkResult, error)) ([]store.MarkResult, error) {
		switch calls.Add(1) % 4 {
		case 1: // it was done
			lost.Add(1)
			_, err := do()
			return nil, errors.Join(store.ErrUnknownOutcome, err)
		case 2: // it was not
			undone.Add(1)
			return nil, store.ErrUnknownOutcome
		case 3: // refused, and nothing was done
			return nil, store.ErrUnavailable
		}
		return do()
	}}
	const n = 200
	now := r.now()
	jobs := make([]*job.Job, n)
	for i := range jobs {
		jobs[i] = r.job(now.Add(time.Duration(i)*time.Millisecond), nil)
	}
	timers := r.submit(now, jobs...)
	r.owns(r.planner(s, func(c *Config) { c.Batch = 10 }))
	check.Await(t, "all hand-overs", func() bool { return len(r.outs()) >= n })
	for i := range timers {
		if row := r.row(timers[i].TimerKey); row == nil || row.Dispatch != 1 {
			t.Errorf("run %d is %+v", i, row)
		}
	}
	r.eachOnce()
	if lost.Load() == 0 || undone.Load() == 0 {
		t.Error("no answer was lost")
	}
}

// A job that is paused between the read and the mark never starts, whoever is quicker.
func TestPauseBetweenReadAndMark(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n = 100
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // a seed
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	p := r.planner(nil, small)
	r.owns(p)
	now := r.now()
	due := now.Add(1500 * time.Millisecond)
	jobs := make([]*job.Job, n)
	for i := range jobs {
		jobs[i] = r.job(due.Add(time.Duration(rnd.IntN(300))*time.Millisecond), nil)
	}
	timers := r.submit(now, jobs...)
	awaitIn(t, p, "the rows are read", func() bool { return len(p.board.entries)+len(p.flights.byRun) == n })
	paused := make([]bool, n)
	var wg sync.WaitGroup
	for i, j := range jobs {
		// The mark is done up to 250 ms before the time.
		wait := time.Until(jobs[i].DueAt.Add(-time.Duration(rnd.IntN(300)) * time.Millisecond))
		wg.Go(func() {
			<-time.After(wait)
			_, after, err := r.store.ChangeJob(t.Context(), j.Namespace, j.ID, func(j *job.Job, timers []store.Timer, now time.Time) (store.Change, error) {
				held := *j
				held.State, held.Version, held.Pause = job.Paused, j.Version+1, &job.Pause{By: "test", At: now}
				c := store.Change{Job: &held}
				for _, tm := range timers {
					if tm.Step == job.StepDue {
						tm.Step, tm.Version, tm.WaitReason = job.StepWaiting, held.Version, store.WaitPaused
						c.Set = append(c.Set, tm)
					}
				}
				return c, nil
			})
			if err != nil || len(after) != 1 {
				t.Errorf("pause: %v, %v", after, err)
				return
			}
			paused[i] = after[0].Step == job.StepWaiting
		})
	}
	wg.Wait()
	stopped := 0
	for i := range timers {
		if paused[i] {
			stopped++
		} else {
			r.handedOut(10*time.Second, subjectOf(&timers[i], 1))
		}
	}
	if stopped == 0 || stopped == n {
		t.Logf("no race: %d of %d were paused in time", stopped, n)
	}
	out := r.outs()
	for i := range timers {
		if paused[i] && out[subjectOf(&timers[i], 1)] != 0 {
			t.Errorf("run %d was paused, and handed out", i)
		}
	}
}

// kill ends a planner's work as a kill of its process would: nothing is given away.
func (p *Planner) kill() {
	p.stopOnce.Do(func() {
		p.end()
		p.loops.Wait()
		p.window.Close()
	})
}

// A planner that dies after the mark and before the publish: another takes its shards when it is overdue, finds the rows without a message, and they are handed
// out again. Also where nothing was ever said in STATUS before.
func TestTakeover(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	marked := make(chan struct{})
	var once sync.Once
	s := &faulty{r.store, func(ctx context.Context, _ store.Mark, do func() ([]store.MarkResult, error)) ([]store.MarkResult, error) {
		if _, err := do(); err != nil {
			t.Error(err)
		}
		once.Do(func() { close(marked) })
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	a := r.planner(s, nil)
	r.owns(a)
	now := r.now()
	timers := r.submit(now, r.job(now, nil), r.job(now, nil), r.job(now.Add(time.Second), nil))
	a.nudge()
	<-marked
	a.kill()
	killed := time.Now()
	r.recorder()
	b := r.planner(nil, nil)
	r.owns(b)
	taken := time.Now()
	row := r.row(timers[0].TimerKey)
	if !markedOnce(row) {
		t.Fatalf("the first planner left %+v", row)
	}
	again := r.handedOut(20*time.Second, subjectOf(&timers[0], 2))
	t.Logf("taken %s after the kill, handed out again %s after it", taken.Sub(killed), time.Since(killed))
	if again.Dispatch != 2 || again.Attempt != 1 {
		t.Errorf("dispatch %d of attempt %d", again.Dispatch, again.Attempt)
	}
	r.handedOut(20*time.Second, subjectOf(&timers[1], 2))
	r.eachOnce()
	if r.outs()[subjectOf(&timers[0], 1)] != 0 {
		t.Error("the dead planner's hand-over was published")
	}
}

// A message is good until a time that is fixed before its mark; what comes later is not sent, and its run comes back.
func TestPublishBy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	hold := make(chan struct{})
	var held atomic.Bool
	s := &faulty{r.store, func(_ context.Context, _ store.Mark, do func() ([]store.MarkResult, error)) ([]store.MarkResult, error) {
		res, err := do()
		if held.CompareAndSwap(false, true) {
			<-hold // the process sleeps between mark and publish
		}
		return res, err
	}}
	p := r.planner(s, nil)
	r.recorder()
	r.owns(p)
	now := r.now()
	timers := r.submit(now, r.job(now, nil))
	p.nudge()
	check.Await(t, "the mark", held.Load)
	time.AfterFunc(streams.PublishWithin+1200*time.Millisecond, func() { close(hold) })
	m := r.handedOut(20*time.Second, subjectOf(&timers[0], 2))
	if n := r.outs()[subjectOf(&timers[0], 1)]; n != 0 {
		t.Error("the stale hand-over was published")
	}
	by, at := time.UnixMicro(m.PublishBy), time.UnixMicro(m.PublishedAt)
	if by.Before(at) || by.Sub(at) > streams.PublishWithin+DefaultMarkAhead {
		t.Errorf("published at %s, good until %s", at, by)
	}
}

// Rows of a shard for which nobody has ever noted how far it was planned are found, however old they are.
func TestOldRowsOfANewShard(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	day := 24 * time.Hour
	now := r.now()
	timers := r.submit(now.Add(-30*day), r.job(now.Add(-30*day), nil), r.job(now.Add(-day), nil), r.job(now.Add(-2*time.Minute), nil))
	r.planner(nil, nil)
	r.areOut(10*time.Second, timers, 1)
}

// A run whose kind nobody offers waits, and follows its job when that is changed.
func TestHeldRunWhoseJobIsChanged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.planner(nil, nil)
	r.owns(p)
	now := r.now()
	j := r.job(now, func(j *job.Job) { j.Kind = "unknown" })
	tm := r.submit(now, j)[0]
	p.nudge()
	awaitIn(t, p, "the run is held", func() bool { return p.inLanes((*lane).heldCount) == 1 })
	_, after, err := r.store.ChangeJob(t.Context(), j.Namespace, j.ID, func(j *job.Job, timers []store.Timer, _ time.Time) (store.Change, error) {
		changed := *j
		changed.Version, changed.Kind = 2, "k"
		tm := timers[0]
		tm.Version, tm.Kind = 2, "k"
		return store.Change{Job: &changed, Set: []store.Timer{tm}}, nil
	})
	check.OK(t, err)
	if len(after) != 1 || after[0].Kind != "k" {
		t.Fatalf("changed it is %+v", after)
	}
	if m := r.handedOut(10*time.Second, subjectOf(&tm, 1)); m.Kind != "k" {
		t.Errorf("handed out as %s", m.Kind)
	}
}

// A series is handed out occurrence by occurrence; one that overlaps is skipped.
func TestSeriesAndOverlap(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.planner(nil, nil)
	r.recorder()
	r.owns(p)
	now := r.now()
	series := func(o job.Overlap) *job.Job {
		return r.job(now, func(j *job.Job) {
			j.Spec = job.Spec{Schedule: schedule.Schedule{Kind: schedule.Every, Period: time.Second, Anchor: now}, Overlap: o}
		})
	}
	allow, forbid := series(job.OverlapAllow), series(job.OverlapForbid)
	r.submit(now, allow, forbid)
	p.nudge()
	subject := func(j *job.Job, n int) string {
		tm := store.NewTimer(j, schedule.Occurrence{At: now.Add(time.Duration(n) * time.Second)}, now)
		return subjectOf(&tm, 1)
	}
	for n := range 4 {
		r.handedOut(10*time.Second, subject(allow, n))
	}
	r.handedOut(time.Second, subject(forbid, 0)) // nobody ever ends it
	var skips []store.SkipRow
	check.Await(t, "two skips", func() bool {
		var err error
		skips, err = r.store.ListSkips(t.Context(), forbid.ID, time.Time{}, 10)
		check.OK(t, err)
		return len(skips) >= 2
	})
	for _, s := range skips {
		if s.Reason != "overlap" || s.Count != 1 {
			t.Errorf("skipped %+v", s)
		}
	}
	for n := 1; n < 4; n++ {
		if r.outs()[subject(forbid, n)] != 0 {
			t.Errorf("occurrence %d overlaps, and was handed out", n)
		}
	}
	awaitIn(t, p, "nothing is kept of what was recorded", func() bool { return len(p.skipping) <= 2 })
}

func TestLaneLimitOfAPlanner(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const limit, n = 20, 100
	now := r.now()
	jobs := make([]*job.Job, n)
	for i := range jobs {
		jobs[i] = r.job(now, nil)
	}
	urgent := r.job(now.Add(2*time.Second), func(j *job.Job) { j.Priority = job.Critical })
	timers := r.submit(now, append(jobs, urgent)...)
	p := r.planner(nil, func(c *Config) { c.LaneLimit, c.Batch = limit, 8 })
	r.handedOut(10*time.Second, subjectOf(&timers[n], 1))
	if got := len(r.outs()); got != limit+1 {
		t.Errorf("%d were handed out, want %d", got, limit+1)
	}
	// As executors begin, more follow, until all are out: also those that had no room in memory.
	n2 := streams.NewNotifier(r.nc, quiet)
	begun := map[uuid.UUID]bool{}
	check.Await(t, "all", func() bool {
		out := r.outs()
		for i := range timers {
			if tm := &timers[i]; out[subjectOf(tm, 1)] == 1 && !begun[tm.RunID] {
				begun[tm.RunID] = true
				n2.Recorded(recorded(tm, 1, job.StepRunning))
			}
		}
		return len(begun) == n+1
	})
	r.eachOnce()
	if waiting, _ := ask(p, func() int { return p.inLanes(queued) }); waiting > limit {
		t.Errorf("%d are counted as waiting", waiting)
	}
}

func TestStartAndStop(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p, err := New(Config{Store: r.store, Clock: r.clock, Conn: r.connect()})
	check.OK(t, err)
	p.Stop() // never started
	p.Stop()
	q := r.planner(nil, nil)
	r.owns(q)
	if err := q.Start(t.Context()); err == nil {
		t.Error("it was started twice")
	}
	left := make(chan struct{}, 1)
	sub, err := streams.OnLeft(r.nc, func() { left <- struct{}{} })
	check.OK(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() }) // the connection may be closed
	check.OK(t, r.nc.Flush())
	q.Stop()
	check.Receive(t, "word that the planner has left", left)
	q.Stop()
	shards, err := r.store.Shards(t.Context())
	check.OK(t, err)
	for _, s := range shards {
		if s.Owner != "" {
			t.Error(fmt.Errorf("shard %d still belongs to %s", s.ID, s.Owner))
		}
	}
}

// renewals counts how often a planner looks who is there.
type renewals struct {
	Store
	n atomic.Int64
}

func (s *renewals) Renew(ctx context.Context, m store.Member, ttl time.Duration) ([]store.Member, time.Time, error) {
	s.n.Add(1)
	return s.Store.Renew(ctx, m, ttl)
}

// A planner that gives its shards away is not waited for until the next renewal.
func TestPlannersLookAtOnceWhenOneLeaves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := &renewals{Store: r.store}
	r.owns(r.planner(s, func(c *Config) { c.renewEvery = time.Hour }))
	before, n := s.n.Load(), streams.NewNotifier(r.nc, quiet)
	// By itself it looks only every few seconds, when a member may have died.
	check.Await(t, "many looks at who is there", func() bool {
		n.Left()
		return s.n.Load() > before+20
	})
}
