package api_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/job"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
)

// The fault: NATS does not answer while a run that was handed out is cancelled, or its job deleted. The change is stored, and not acknowledged before the run is
// taken back; each repeated call tries that again, whichever call it is.
func TestCancelIsAcknowledgedWhenItsRunIsTakenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	jobs, runs, ctx := w.jobs("acme"), w.runs("acme"), t.Context()
	cancel := func(id, run string) error {
		_, err := runs.CancelRun(ctx, connect.NewRequest(&waterclockv1.CancelRunRequest{JobId: id, RunId: run}))
		return err
	}
	calls := map[string]func(id, run string) error{
		"cancel":     cancel,
		"cancel all": func(id, _ string) error { return cancel(id, "") },
		"delete": func(id, _ string) error {
			_, err := jobs.DeleteJob(ctx, connect.NewRequest(&waterclockv1.DeleteJobRequest{JobId: id}))
			return err
		},
	}
	takenBack := func(tm store.Timer) bool {
		w.ear.mu.Lock()
		defer w.ear.mu.Unlock()
		was := w.ear.withdrawn
		w.ear.withdrawn = nil
		return slices.ContainsFunc(was, func(o store.Timer) bool {
			return o.RunID == tm.RunID && o.Dispatch == tm.Dispatch && o.Shard == tm.Shard && o.QueueNamespace == tm.QueueNamespace && o.Queue == tm.Queue && o.Priority == tm.Priority
		})
	}
	for first, call := range calls {
		for second, again := range calls {
			for _, running := range []bool{false, true} {
				id := w.add(&waterclockv1.JobSpec{Kind: "exec", Schedule: every(time.Hour)}).GetJob().GetJobId()
				_, err := jobs.TriggerJob(ctx, connect.NewRequest(&waterclockv1.TriggerJobRequest{JobId: id}))
				check.OK(t, err)
				tm := w.hand(id)
				if running {
					w.report(tm, store.ReportStart, 0, "")
				}
				w.ear.deaf = context.DeadlineExceeded
				for _, try := range []func(id, run string) error{call, again} {
					if err := try(id, tm.RunID.String()); code(err) != connect.CodeUnavailable || reason(err) != "NOT_WITHDRAWN" {
						t.Errorf("%s, %s, NATS not answering: %v, reason %q", first, second, err, reason(err))
					}
					if !takenBack(tm) {
						t.Errorf("%s, %s, running %v: nobody tried to take it back", first, second, running)
					}
				}
				w.ear.deaf = nil
				check.OK(t, again(id, tm.RunID.String()))
				if !takenBack(tm) {
					t.Errorf("%s, %s, running %v: acknowledged, and not taken back", first, second, running)
				}
			}
		}
	}
}

// The fault: nobody takes back what was handed out while its job is paused. The pause is stored, and not acknowledged before the run is taken back, has begun or has
// ended; each repeated call tries that again.
func TestPauseIsAcknowledgedWhenItsRunIsTakenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	jobs, ctx := w.jobs("acme"), t.Context()
	id := w.add(&waterclockv1.JobSpec{Kind: "exec", Schedule: every(time.Hour)}).GetJob().GetJobId()
	_, err := jobs.TriggerJob(ctx, connect.NewRequest(&waterclockv1.TriggerJobRequest{JobId: id}))
	check.OK(t, err)
	tm := w.hand(id)
	pause := func(note string) (asked []store.Timer, _ error) {
		w.ear.takenBack = nil
		_, err := jobs.PauseJob(ctx, connect.NewRequest(&waterclockv1.PauseJobRequest{JobId: id, Note: note}))
		return w.ear.takenBack, err
	}
	w.ear.deaf = context.DeadlineExceeded
	for _, note := range []string{"", "", "another note"} {
		asked, err := pause(note)
		if code(err) != connect.CodeUnavailable || reason(err) != "NOT_WITHDRAWN" {
			t.Errorf("nobody answers: %v, reason %q", err, reason(err))
		}
		if len(asked) != 1 || asked[0].RunID != tm.RunID || asked[0].Dispatch != tm.Dispatch {
			t.Errorf("to be taken back: %+v", asked)
		}
		got, err := jobs.GetJob(ctx, connect.NewRequest(&waterclockv1.GetJobRequest{JobId: id}))
		check.OK(t, err)
		if got.Msg.GetJob().GetState() != waterclockv1.JobState_JOB_STATE_PAUSED {
			t.Errorf("the pause is not stored: %v", got.Msg.GetJob())
		}
	}
	w.ear.deaf = nil
	if asked, err := pause(""); err != nil || len(asked) != 1 {
		t.Errorf("taken back: %v, asked for %+v", err, asked)
	}
	// SQL hears meanwhile that it has begun.
	w.ear.deaf = errors.New("no answer")
	w.ear.onTake = func() { w.report(tm, store.ReportStart, 0, "") }
	if asked, err := pause(""); err != nil || len(asked) != 1 {
		t.Errorf("begun meanwhile: %v, asked for %+v", err, asked)
	}
	if asked, err := pause(""); err != nil || len(asked) != 0 {
		t.Errorf("begun: %v, asked for %+v", err, asked)
	}
}

// A repeated deletion takes back once more what was cancelled lately, the newest hundred: all of them must be done with in the time of one call. What is handed to
// the Withdrawer says until when its message may come.
func TestRepeatedDeletionTakesBackTheNewest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	jobs, ctx := w.jobs("acme"), t.Context()
	id := w.add(&waterclockv1.JobSpec{Kind: "exec", Schedule: every(time.Hour)}).GetJob().GetJobId()
	var cancelled []uuid.UUID
	for range 103 {
		_, err := jobs.TriggerJob(ctx, connect.NewRequest(&waterclockv1.TriggerJobRequest{JobId: id}))
		check.OK(t, err)
		tm := w.hand(id)
		w.report(tm, store.ReportEnd, job.StepCancelled, "")
		cancelled = append(cancelled, tm.RunID)
		w.clock.Add(time.Second)
	}
	_, err := jobs.DeleteJob(ctx, connect.NewRequest(&waterclockv1.DeleteJobRequest{JobId: id}))
	check.OK(t, err)
	again := map[uuid.UUID]bool{}
	for _, tm := range w.ear.withdrawn {
		again[tm.RunID] = true
		if tm.DispatchedAt.IsZero() {
			t.Errorf("run %s has no time of its hand-over", tm.RunID)
		}
	}
	for i, run := range cancelled {
		if again[run] != (i >= 3) {
			t.Errorf("run %d of %d was taken back again: %v", i+1, len(cancelled), again[run])
		}
	}
}

// A run that was cancelled long ago, or that has ended by itself, is looked for nowhere.
func TestCancelOfWhatHasEndedLongAgo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ear.deaf = errors.New("no answer")
	for name, end := range map[string]job.Step{"succeeded": job.StepSucceeded, "cancelled": job.StepCancelled} {
		id := w.add(&waterclockv1.JobSpec{Kind: "exec"}).GetJob().GetJobId()
		tm := w.hand(id)
		w.report(tm, store.ReportEnd, end, "")
		w.clock.Add(2 * time.Hour)
		for _, run := range []uuid.UUID{tm.RunID, uuid.Nil} {
			given := run.String()
			if run == uuid.Nil {
				given = ""
			}
			_, err := w.runs("acme").CancelRun(t.Context(), connect.NewRequest(&waterclockv1.CancelRunRequest{JobId: id, RunId: given}))
			if err != nil || len(w.ear.withdrawn) > 0 {
				t.Errorf("%s: %v, withdrawn %v", name, err, w.ear.withdrawn)
			}
		}
	}
}
