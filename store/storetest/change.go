package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

func testChange(t *testing.T, g *group) {
	g.run(t, "decide gets the job, its timers and the time", func(t *testing.T, b *bundle) {
		j := b.every(b.base)
		j.Payload = []byte("payload")
		first := b.submit(t, j)[0]
		trigger := store.NewTrigger(j, "request", b.at(time.Second), b.at(time.Second))
		third := b.occurrence(j, b.at(2*time.Minute))
		b.put(t, j, third, trigger)
		other := b.every(b.base)
		b.submit(t, other)
		before, err := b.Now(t.Context())
		check(t, err)
		called := 0
		_, _, err = b.ChangeJob(t.Context(), b.ns, j.ID, func(got *job.Job, timers []store.Timer, now time.Time) (store.Change, error) {
			called++
			same(t, "job", j, got)
			same(t, "timers", []store.Timer{first, trigger, third}, timers)
			if now.Before(before) || now.Nanosecond()%1000 != 0 {
				t.Errorf("now is %v, and was %v before", now, before)
			}
			return store.Change{}, nil
		})
		check(t, err)
		if called == 0 {
			t.Error("decide was not called")
		}
	})
	g.run(t, "the one run of a one-time job is among its timers", func(t *testing.T, b *bundle) {
		// The requested time is past, and finer than what is stored: the row is due later than it is nominally.
		j := b.once(b.base.Add(999))
		j.DueAt = b.at(time.Hour)
		tm := store.NewTimer(j, occurrenceAt(b.base.Add(999)), b.at(time.Hour))
		_, err := b.Submit(t.Context(), []store.Submission{{Job: j, Timer: &tm}})
		check(t, err)
		_, timers := b.change(t, j, store.Change{})
		same(t, "timers", []store.Timer{tm}, timers)
		again := store.Again(tm, nil, b.at(2*time.Hour), 2)
		_, timers = b.change(t, j, store.Change{Remove: []store.TimerKey{tm.TimerKey}, Put: []store.Timer{again}})
		same(t, "timers after a retry", []store.Timer{again}, timers)
		// Back at the first key, but listed: found by two ways, once.
		back := store.Again(again, nil, tm.DueAt, 3)
		_, timers = b.change(t, j, store.Change{Remove: []store.TimerKey{again.TimerKey}, Put: []store.Timer{back}})
		same(t, "timers back at the first key", []store.Timer{back}, timers)
	})
	g.run(t, "every part of a change is applied", testChangeParts)
	g.run(t, "payload is written only where it changed", func(t *testing.T, b *bundle) {
		j := b.once(b.base)
		j.Payload = []byte("one")
		b.submit(t, j)
		next := *j
		next.Version, next.Payload = 2, []byte("two")
		for _, step := range []struct {
			changed bool
			payload []byte
			want    string
		}{{false, []byte("two"), "one"}, {true, []byte("two"), "two"}, {true, nil, ""}, {false, []byte("x"), ""}, {true, []byte("three"), "three"}} {
			next.Version++
			next.Payload = step.payload
			after, _ := b.change(t, j, store.Change{Job: &next, PayloadChanged: step.changed})
			read, err := b.Job(t.Context(), b.ns, j.ID)
			check(t, err)
			if string(after.Payload) != step.want || string(read.Payload) != step.want {
				t.Errorf("payload %q (read %q) after %+v", after.Payload, read.Payload, step)
			}
			if rows := b.due(t); len(rows) != 1 || string(rows[0].Payload) != step.want {
				t.Errorf("due rows %+v after %+v", rows, step)
			}
		}
	})
	g.run(t, "put and history leave what is there", func(t *testing.T, b *bundle) {
		j := b.every(b.base)
		tm := b.submit(t, j)[0]
		b.mark(t, tm)
		run := tm.History(job.StepSucceeded, true, "first", b.at(time.Hour))
		skip := store.SkipRow{JobID: j.ID, NominalAt: b.base, ThroughAt: b.base, Count: 1, Reason: "first", At: b.base}
		b.change(t, j, store.Change{Runs: []store.RunRow{run}, Skips: []store.SkipRow{skip}})
		run2, skip2 := run, skip
		run2.Reason, skip2.Reason = "second", "second"
		_, timers := b.change(t, j, store.Change{Put: []store.Timer{tm}, Runs: []store.RunRow{run2}, Skips: []store.SkipRow{skip2}})
		if len(timers) != 1 || timers[0].Step != job.StepDispatched {
			t.Errorf("timers %+v, want the one that was handed out", timers)
		}
		runs, err := b.RunAttempts(t.Context(), j.ID, tm.RunID)
		check(t, err)
		same(t, "runs", []store.RunRow{run}, runs)
		skips, err := b.ListSkips(t.Context(), j.ID, time.Time{}, 10)
		check(t, err)
		same(t, "skips", []store.SkipRow{skip}, skips)
	})
	g.run(t, "an error of decide leaves no trace and is returned as it is", func(t *testing.T, b *bundle) {
		j := b.every(b.base)
		tm := b.submit(t, j)[0]
		boom := errors.New("boom")
		got, timers, err := b.ChangeJob(t.Context(), b.ns, j.ID, func(j *job.Job, _ []store.Timer, _ time.Time) (store.Change, error) {
			next := *j
			next.State = job.Deleted
			return store.Change{Job: &next, Remove: []store.TimerKey{tm.TimerKey}}, boom
		})
		if err != boom || got != nil || timers != nil {
			t.Errorf("job %v, timers %v, error %v", got, timers, err)
		}
		b.unchanged(t, j, tm)
	})
	g.run(t, "another namespace is not found and decide not asked", func(t *testing.T, b *bundle) {
		j := b.every(b.base)
		tm := b.submit(t, j)[0]
		for ns, id := range map[string]uuid.UUID{"another": j.ID, b.ns: uuid.New()} {
			_, _, err := b.ChangeJob(t.Context(), ns, id, func(*job.Job, []store.Timer, time.Time) (store.Change, error) {
				t.Error("decide was called")
				return store.Change{}, nil
			})
			if !errors.Is(err, store.ErrNotFound) {
				t.Errorf("error %v, want ErrNotFound", err)
			}
		}
		b.unchanged(t, j, tm)
	})
	g.run(t, "a taken name is refused whole", func(t *testing.T, b *bundle) {
		first, second := b.every(b.base), b.every(b.base)
		first.Name, second.Name = "first", "second"
		timers := b.submit(t, first, second)
		next := *second
		next.Name = "first"
		_, _, err := b.ChangeJob(t.Context(), b.ns, second.ID, func(*job.Job, []store.Timer, time.Time) (store.Change, error) {
			return store.Change{Job: &next, Remove: []store.TimerKey{timers[1].TimerKey}}, nil
		})
		if !errors.Is(err, store.ErrNameTaken) {
			t.Errorf("error %v, want ErrNameTaken", err)
		}
		b.unchanged(t, second, timers[1])
		next.Name = "third"
		after, _ := b.change(t, second, store.Change{Job: &next})
		same(t, "renamed job", &next, after)
	})
	g.run(t, "a set of a row that is gone makes none", func(t *testing.T, b *bundle) {
		j := b.every(b.base)
		b.submit(t, j)
		gone := b.occurrence(j, b.at(time.Hour))
		_, timers := b.change(t, j, store.Change{Set: []store.Timer{gone}})
		if len(timers) != 1 || b.row(t, gone.TimerKey) != nil {
			t.Errorf("timers %+v", timers)
		}
	})
}

func testChangeParts(t *testing.T, b *bundle) {
	j := b.every(b.base)
	old := b.submit(t, j)[0]
	kept := b.occurrence(j, b.at(time.Minute))
	b.put(t, j, kept)
	mark := store.Mark{ID: markIDs.Add(1), Generation: 4, Items: []store.MarkItem{item(kept, false)}}
	_, err := b.MarkDispatched(t.Context(), mark)
	check(t, err)

	next, _ := b.fullJob()
	next.ID, next.CreatedAt, next.Shard, next.BodyHash = j.ID, j.CreatedAt, j.Shard, []byte("hash")
	set := *b.row(t, kept.TimerKey)
	set.Step, set.CancelAt, set.LastError, set.Priority, set.Followed = job.StepCancelling, b.at(time.Hour), "late", job.High, true
	put := store.NewTrigger(next, "request", b.at(3*time.Minute), b.at(3*time.Minute))
	run := old.History(job.StepCancelled, true, "deleted", b.at(time.Hour))
	skip := store.SkipRow{JobID: j.ID, NominalAt: b.base, ThroughAt: b.at(time.Minute), Count: 2, Reason: "missed", At: b.at(time.Hour)}
	after, timers := b.change(t, j, store.Change{
		Job: next, PayloadChanged: true, Remove: []store.TimerKey{old.TimerKey}, Put: []store.Timer{put}, Set: []store.Timer{set},
		Runs: []store.RunRow{run}, Skips: []store.SkipRow{skip},
	})
	same(t, "answered job", next, after)
	same(t, "answered timers", []store.Timer{set, put}, timers)

	got, err := b.Job(t.Context(), b.ns, j.ID)
	check(t, err)
	same(t, "job", next, got)
	same(t, "timers", timers, b.timersOf(t, got))
	if row := b.row(t, old.TimerKey); row != nil {
		t.Errorf("removed timer is there: %+v", row)
	}
	runs, err := b.ListRuns(t.Context(), j.ID, store.RunPosition{}, 10)
	check(t, err)
	same(t, "runs", []store.RunRow{run}, runs)
	skips, err := b.ListSkips(t.Context(), j.ID, time.Time{}, 10)
	check(t, err)
	same(t, "skips", []store.SkipRow{skip}, skips)
	marked, err := b.Marked(t.Context(), mark)
	check(t, err)
	same(t, "the mark outlives a set", []bool{true}, marked)
}

// unchanged fails unless the job and its one timer are as they were submitted.
func (b *bundle) unchanged(t *testing.T, j *job.Job, tm store.Timer) {
	t.Helper()
	got, err := b.Job(t.Context(), b.ns, j.ID)
	check(t, err)
	same(t, "job", j, got)
	same(t, "timers", []store.Timer{tm}, b.timersOf(t, j))
}
