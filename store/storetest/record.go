package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// nothing is a decision that writes nothing.
func nothing(int, *store.Timer, *job.Job, time.Time) store.Change { return store.Change{} }

// ended decides as a recorder does for runs that succeeded.
func ended(_ int, t *store.Timer, _ *job.Job, now time.Time) store.Change {
	return store.Change{Runs: []store.RunRow{t.History(job.StepSucceeded, true, "", now)}}
}

func endOf(t store.Timer) store.Report {
	return store.Report{Kind: store.ReportEnd, Key: t.TimerKey, JobID: t.JobID, Dispatch: t.Dispatch}
}

func startOf(t store.Timer, at time.Time, executor string) store.Report {
	return store.Report{Kind: store.ReportStart, Key: t.TimerKey, JobID: t.JobID, Dispatch: t.Dispatch, StartedAt: at, Executor: executor}
}

func followOf(t store.Timer) store.Report {
	return store.Report{Kind: store.ReportFollow, Key: t.TimerKey, JobID: t.JobID, Dispatch: t.Dispatch, NeedJob: true}
}

func (b *bundle) record(
	t testing.TB, decide func(int, *store.Timer, *job.Job, time.Time) store.Change, reports ...store.Report,
) []store.ReportResult {
	t.Helper()
	results, err := b.Record(t.Context(), reports, decide)
	check(t, err)
	if len(results) != len(reports) {
		t.Fatalf("%d results of %d reports", len(results), len(reports))
	}
	return results
}

func testRecord(t *testing.T, g *group) {
	g.run(t, "start sets the row to running", func(t *testing.T, b *bundle) {
		tm := b.mark(t, b.submit(t, b.once(b.base))[0])[0]
		res := b.record(t, func(int, *store.Timer, *job.Job, time.Time) store.Change {
			t.Error("decide was called for a start")
			return store.Change{}
		}, startOf(tm, b.at(time.Second+999), "exec-1"))
		same(t, "results", []store.ReportResult{{Applied: true, Timer: &tm}}, res)
		want := tm
		want.Step, want.StartedAt, want.Executor = job.StepRunning, b.at(time.Second), "exec-1"
		same(t, "row", &want, b.row(t, tm.TimerKey))
	})
	g.run(t, "end takes the row away", func(t *testing.T, b *bundle) {
		j := b.every(b.base)
		tm := b.mark(t, b.submit(t, j)[0])[0]
		next := b.occurrence(j, b.at(time.Minute))
		run := tm.History(job.StepSucceeded, true, "", b.at(time.Hour))
		run.Message, run.Code, run.Result, run.ResultRef, run.LogRef = "done", 3, []byte{0, 7}, "blob://result", "blob://log"
		skip := store.SkipRow{JobID: j.ID, NominalAt: b.at(2 * time.Minute), ThroughAt: b.at(5 * time.Minute), Count: 4, Reason: "missed", At: b.at(time.Hour)}
		before, err := b.Now(t.Context())
		check(t, err)
		report := endOf(tm)
		report.NeedJob = true
		res := b.record(t, func(_ int, got *store.Timer, gotJob *job.Job, now time.Time) store.Change {
			same(t, "row for decide", &tm, got)
			gotJob.Payload = nil
			same(t, "job for decide", j, gotJob)
			if now.Before(before) {
				t.Errorf("now is %v, and was %v before", now, before)
			}
			changed := *gotJob
			changed.State, changed.UpdatedAt = job.Completed, b.at(time.Hour)
			return store.Change{Job: &changed, Put: []store.Timer{next}, Runs: []store.RunRow{run}, Skips: []store.SkipRow{skip}}
		}, report)
		same(t, "results", []store.ReportResult{{Applied: true, Timer: &tm, Put: []store.Timer{next}}}, res)
		if row := b.row(t, tm.TimerKey); row != nil {
			t.Errorf("the row is there still: %+v", row)
		}
		same(t, "timers", []store.Timer{next}, b.timersOf(t, j))
		runs, err := b.RunAttempts(t.Context(), j.ID, tm.RunID)
		check(t, err)
		same(t, "runs", []store.RunRow{run}, runs)
		skips, err := b.ListSkips(t.Context(), j.ID, time.Time{}, 10)
		check(t, err)
		same(t, "skips", []store.SkipRow{skip}, skips)
		got, err := b.Job(t.Context(), b.ns, j.ID)
		check(t, err)
		if got.State != job.Completed || !got.UpdatedAt.Equal(b.at(time.Hour)) {
			t.Errorf("job %+v, want it completed", got)
		}
	})
	g.run(t, "end can put the row back under its key", func(t *testing.T, b *bundle) {
		tm := b.mark(t, b.submit(t, b.once(b.base))[0])[0]
		back := store.Again(tm, nil, tm.DueAt, 1)
		b.record(t, func(int, *store.Timer, *job.Job, time.Time) store.Change {
			return store.Change{Put: []store.Timer{back}}
		}, endOf(tm))
		same(t, "row", &back, b.row(t, tm.TimerKey))
	})
	g.run(t, "the job is kept with its payload", func(t *testing.T, b *bundle) {
		j := b.every(b.base)
		j.Payload = []byte("payload")
		tm := b.submit(t, j)[0]
		report := endOf(tm)
		report.NeedJob = true
		b.record(t, func(_ int, _ *store.Timer, got *job.Job, _ time.Time) store.Change {
			changed := *got
			changed.State, changed.Payload = job.Completed, nil
			return store.Change{Job: &changed}
		}, report)
		got, err := b.Job(t.Context(), b.ns, j.ID)
		check(t, err)
		if string(got.Payload) != "payload" || got.State != job.Completed {
			t.Errorf("payload %q, state %s", got.Payload, got.State)
		}
	})
	g.run(t, "guards", testRecordGuards)
	g.run(t, "follow asks for the next occurrence once", testFollow)
	g.run(t, "the job is given where it is asked for and there", func(t *testing.T, b *bundle) {
		asked, unasked, gone := b.every(b.base), b.every(b.base), b.every(b.base)
		timers := b.submit(t, asked, unasked, gone)
		reports := make([]store.Report, 3)
		for i, tm := range timers {
			reports[i] = endOf(tm)
			reports[i].NeedJob = i != 1
		}
		reports[2].JobID = uuid.New()
		calls := 0
		res := b.record(t, func(i int, _ *store.Timer, j *job.Job, _ time.Time) store.Change {
			calls++
			if (j != nil) != (i == 0) || (j != nil && j.ID != asked.ID) {
				t.Errorf("report %d: decide got job %+v", i, j)
			}
			return store.Change{}
		}, reports...)
		if calls < 3 || !res[0].Applied || !res[1].Applied || !res[2].Applied {
			t.Errorf("decide was called %d times, results %+v", calls, res)
		}
	})
	g.run(t, "start and end in one batch", func(t *testing.T, b *bundle) {
		// In both orders: the start counts first.
		for _, endFirst := range []bool{false, true} {
			tm := b.mark(t, b.submit(t, b.once(b.base))[0])[0]
			running := tm
			running.Step, running.StartedAt, running.Executor = job.StepRunning, b.at(time.Second), "exec-1"
			reports := []store.Report{startOf(tm, b.at(time.Second), "exec-1"), endOf(tm)}
			want := []store.ReportResult{{Applied: true, Timer: &tm}, {Applied: true, Timer: &running}}
			if endFirst {
				reports[0], reports[1] = reports[1], reports[0]
				want[0], want[1] = want[1], want[0]
			}
			same(t, "results", want, b.record(t, ended, reports...))
			runs, err := b.RunAttempts(t.Context(), tm.JobID, tm.RunID)
			check(t, err)
			if len(runs) != 1 || runs[0].Executor != "exec-1" || !runs[0].StartedAt.Equal(b.at(time.Second)) {
				t.Errorf("history %+v, want one row with the start in it", runs)
			}
		}
	})
	g.run(t, "of two ends in one batch the first counts", func(t *testing.T, b *bundle) {
		tm := b.mark(t, b.submit(t, b.once(b.base))[0])[0]
		res := b.record(t, func(i int, tm *store.Timer, _ *job.Job, now time.Time) store.Change {
			return store.Change{Runs: []store.RunRow{tm.History(job.StepFailed, true, []string{"first", "second"}[i], now)}}
		}, endOf(tm), endOf(tm))
		if !res[0].Applied || res[1].Applied || res[1].Timer != nil {
			t.Errorf("results %+v", res)
		}
		runs, err := b.RunAttempts(t.Context(), tm.JobID, tm.RunID)
		check(t, err)
		if len(runs) != 1 || runs[0].Reason != "first" {
			t.Errorf("history %+v, want the first", runs)
		}
	})
	g.run(t, "a batch is answered in the order of its reports", func(t *testing.T, b *bundle) {
		jobs := make([]*job.Job, 500)
		for i := range jobs {
			jobs[i] = b.once(b.at(time.Duration(len(jobs)-i) * time.Second)) // not sorted by key
		}
		timers := b.mark(t, b.submit(t, jobs...)...)
		reports, want := make([]store.Report, len(timers)), make([]store.ReportResult, len(timers))
		for i, tm := range timers {
			if reports[i] = endOf(tm); i%5 == 0 {
				reports[i].Dispatch--
			} else {
				want[i] = store.ReportResult{Applied: true, Timer: &timers[i]}
			}
		}
		same(t, "results", want, b.record(t, ended, reports...))
		rows := b.rows(t, keysOf(timers))
		for i, tm := range timers {
			if _, there := rows[tm.RunID]; there != (i%5 == 0) {
				t.Fatalf("row %d is there: %v", i, there)
			}
		}
	})
	g.run(t, "an empty batch", func(t *testing.T, b *bundle) {
		b.record(t, nothing)
	})
	g.run(t, "a batch is applied whole or not at all", func(t *testing.T, b *bundle) {
		timers := b.mark(t, b.submit(t, b.once(b.base), b.once(b.base))...)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.Record(ctx, []store.Report{endOf(timers[0]), endOf(timers[1])}, ended); err == nil {
			t.Error("a cancelled batch was answered without an error")
		}
		for i, tm := range timers {
			same(t, "row", &timers[i], b.row(t, tm.TimerKey))
		}
	})
	g.run(t, "replays in any order end alike", testReplay)
}

func testFollow(t *testing.T, b *bundle) {
	for _, step := range []job.Step{job.StepWaiting, job.StepDue, job.StepDispatched, job.StepRunning, job.StepCancelling} {
		j := b.every(b.base)
		tm := b.timer(j)
		tm.Step, tm.Dispatch = step, 4
		_, err := b.Submit(t.Context(), []store.Submission{{Job: j, Timer: &tm}})
		check(t, err)
		next := b.occurrence(j, b.at(time.Minute))
		decide := func(_ int, got *store.Timer, gotJob *job.Job, _ time.Time) store.Change {
			same(t, "row for decide", &tm, got)
			same(t, "job for decide", j, gotJob)
			return store.Change{Put: []store.Timer{next}}
		}
		same(t, "results, told twice in a batch", []store.ReportResult{{Applied: true, Timer: &tm, Put: []store.Timer{next}}, {}},
			b.record(t, decide, followOf(tm), followOf(tm)))
		followed := tm
		followed.Followed = true
		same(t, "timers", []store.Timer{followed, next}, b.timersOf(t, j))
		// The next occurrence is over before the first is told of again: it must not come back.
		b.change(t, j, store.Change{Remove: []store.TimerKey{next.TimerKey}})
		same(t, "results, told again", []store.ReportResult{{}}, b.record(t, decide, followOf(tm)))
		same(t, "timers, told again", []store.Timer{followed}, b.timersOf(t, j))
		// The row ends as any other, and its end tells that it was followed.
		same(t, "end of a followed row", []store.ReportResult{{Applied: true, Timer: &followed}}, b.record(t, ended, endOf(tm)))
	}

	// In one batch with the end, in either order, the end sees the row followed.
	for _, endFirst := range []bool{false, true} {
		j := b.every(b.base)
		tm := b.mark(t, b.submit(t, j)[0])[0]
		reports := []store.Report{followOf(tm), endOf(tm)}
		if endFirst {
			reports[0], reports[1] = reports[1], reports[0]
		}
		next := b.occurrence(j, b.at(time.Minute))
		res := b.record(t, func(i int, got *store.Timer, _ *job.Job, _ time.Time) store.Change {
			if got.Followed != (reports[i].Kind == store.ReportEnd) {
				t.Errorf("report of kind %d: followed is %v", reports[i].Kind, got.Followed)
			}
			if got.Followed {
				return store.Change{}
			}
			return store.Change{Put: []store.Timer{next}}
		}, reports...)
		if !res[0].Applied || !res[1].Applied {
			t.Errorf("results %+v", res)
		}
		same(t, "timers", []store.Timer{next}, b.timersOf(t, j))
	}
}

func testRecordGuards(t *testing.T, b *bundle) {
	refused := func(what string, tm store.Timer, report store.Report, wantTimer *store.Timer) {
		t.Helper()
		res := b.record(t, func(int, *store.Timer, *job.Job, time.Time) store.Change {
			t.Errorf("%s: decide was called", what)
			return store.Change{}
		}, report)
		same(t, what, []store.ReportResult{{Timer: wantTimer}}, res)
		if row := b.row(t, tm.TimerKey); row != nil {
			same(t, "row after "+what, &tm, row)
		}
	}
	due := b.submit(t, b.once(b.base))[0]
	marked := b.mark(t, b.submit(t, b.once(b.base))[0])[0]
	spoilt := func(r store.Report, by int64) store.Report { r.Dispatch += by; return r }
	for _, by := range []int64{-1, 1} {
		refused("end of another dispatch", marked, spoilt(endOf(marked), by), nil)
		refused("follow of another dispatch", marked, spoilt(followOf(marked), by), nil)
		refused("start of another dispatch", marked, spoilt(startOf(marked, b.base, "x"), by), nil)
		refused("end of a row never handed out", due, spoilt(endOf(due), 1), nil)
		refused("start of a row never handed out", due, spoilt(startOf(due, b.base, "x"), 1), nil)
	}
	refused("start of a due row", due, startOf(due, b.base, "x"), &due)
	unknown := marked
	unknown.RunID = uuid.New()
	refused("end of an unknown row", marked, endOf(unknown), nil)
	refused("follow of an unknown row", marked, followOf(unknown), nil)
	refused("start of an unknown row", marked, startOf(unknown, b.base, "x"), nil)

	b.record(t, nothing, startOf(marked, b.at(time.Second), "exec-1"))
	running := *b.row(t, marked.TimerKey)
	refused("start of a running row", running, startOf(marked, b.at(time.Minute), "exec-2"), &running)

	cancelling := running
	cancelling.Step, cancelling.CancelAt = job.StepCancelling, b.at(time.Minute)
	j := &job.Job{ID: running.JobID, Namespace: b.ns}
	b.change(t, j, store.Change{Set: []store.Timer{cancelling}})
	refused("start of a cancelled run", cancelling, startOf(marked, b.at(time.Minute), "exec-2"), &cancelling)

	// Handed out again under another key: what the first hand-over reports is late.
	again := store.Again(cancelling, nil, b.at(time.Hour), 1)
	b.change(t, j, store.Change{Remove: keysOf([]store.Timer{cancelling}), Put: []store.Timer{again}})
	again = b.mark(t, again)[0]
	if again.Dispatch != 2 {
		t.Errorf("dispatch of the second hand-over is %d, want 2", again.Dispatch)
	}
	refused("end of an earlier dispatch", again, endOf(marked), nil)
	late := endOf(again)
	late.Dispatch = 1
	refused("end of an earlier dispatch under the new key", again, late, nil)

	if res := b.record(t, ended, endOf(again)); !res[0].Applied {
		t.Error("the end of the newest dispatch was refused")
	}
	refused("end said again", again, endOf(again), nil)
	refused("follow after the end", again, followOf(again), nil)
	refused("start after the end", again, startOf(again, b.base, "x"), nil)
	if row := b.row(t, again.TimerKey); row != nil {
		t.Errorf("the row came back: %+v", row)
	}
}
