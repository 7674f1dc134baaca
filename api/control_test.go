package api_test

import (
	"strconv"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/internal/sqltest"
	"github.com/waterclock-io/waterclock/job"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
)

// hand marks the current run of a job as handed out, as a planner does, and returns its row.
func (w *world) hand(jobID string) store.Timer {
	w.t.Helper()
	rows, err := w.store.ReadDue(w.t.Context(), w.shards(), w.clock.Now().Add(time.Second), 100)
	check.OK(w.t, err)
	for _, r := range rows {
		if r.JobID.String() != jobID {
			continue
		}
		return sqltest.HandOut(w.t, w.store, 1, r.Timer)[0]
	}
	w.t.Fatalf("job %s has no due run", jobID)
	return store.Timer{}
}

func (w *world) shards() []store.ShardCursor {
	var out []store.ShardCursor
	for i := range w.store.Traits().Shards {
		out = append(out, store.ShardCursor{Shard: i})
	}
	return out
}

// report records one event of a run, as a recorder does.
func (w *world) report(t store.Timer, kind store.ReportKind, end job.Step, logRef string) {
	w.t.Helper()
	res, err := w.store.Record(w.t.Context(), []store.Report{{
		Kind: kind, Key: t.TimerKey, JobID: t.JobID, Dispatch: t.Dispatch, StartedAt: w.clock.Now(), Executor: "x",
	}}, func(_ int, row *store.Timer, _ *job.Job, now time.Time) store.Change {
		if kind != store.ReportEnd {
			return store.Change{}
		}
		r := row.History(end, true, "ok", now)
		r.LogRef = logRef
		return store.Change{Runs: []store.RunRow{r}}
	})
	check.OK(w.t, err)
	if !res[0].Applied {
		w.t.Fatal("the report was not applied")
	}
}

func TestPauseResumeTriggerCancelDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	jobs, runs, ctx := w.jobs("acme"), w.runs("acme"), t.Context()
	id := w.add(&waterclockv1.JobSpec{Kind: "exec", Schedule: every(time.Hour)}).GetJob().GetJobId()

	paused, err := jobs.PauseJob(ctx, connect.NewRequest(&waterclockv1.PauseJobRequest{JobId: id, Note: "maintenance"}))
	check.OK(t, err)
	if j := paused.Msg.GetJob(); j.GetState() != waterclockv1.JobState_JOB_STATE_PAUSED || j.GetPause().GetNote() != "maintenance" || j.GetPause().GetBy() == "" || j.GetVersion() != 2 {
		t.Errorf("paused: %v", j)
	}
	run, err := runs.GetRun(ctx, connect.NewRequest(&waterclockv1.GetRunRequest{JobId: id}))
	check.OK(t, err)
	if r := run.Msg.GetRun(); r.GetState() != waterclockv1.RunState_RUN_STATE_WAITING || r.GetWaitReason() != store.WaitPaused {
		t.Errorf("run of a paused job: %v", r)
	}
	if _, err := jobs.TriggerJob(ctx, connect.NewRequest(&waterclockv1.TriggerJobRequest{JobId: id})); code(err) != connect.CodeFailedPrecondition {
		t.Errorf("trigger of a paused job: %v", err)
	}
	w.clock.Add(150 * time.Minute)
	resumed, err := jobs.ResumeJob(ctx, connect.NewRequest(&waterclockv1.ResumeJobRequest{JobId: id}))
	check.OK(t, err)
	if next := resumed.Msg.GetJob().GetNextDueTime().AsTime().Sub(w.clock.Now()); next != 30*time.Minute {
		t.Errorf("next in %v, want 30m", next)
	}
	list, err := runs.ListRuns(ctx, connect.NewRequest(&waterclockv1.ListRunsRequest{JobId: id}))
	check.OK(t, err)
	if got := list.Msg.GetRuns(); len(got) != 2 || got[1].GetState() != waterclockv1.RunState_RUN_STATE_SKIPPED || got[1].GetOutcome().GetReason() != "paused" {
		t.Errorf("after resume: %v", got)
	}

	first, err := jobs.TriggerJob(ctx, connect.NewRequest(&waterclockv1.TriggerJobRequest{JobId: id, RequestId: "r"}))
	check.OK(t, err)
	again, err := jobs.TriggerJob(ctx, connect.NewRequest(&waterclockv1.TriggerJobRequest{JobId: id, RequestId: "r"}))
	check.OK(t, err)
	if first.Msg.GetRun().GetRunId() != again.Msg.GetRun().GetRunId() {
		t.Error("a repeated trigger made another run")
	}
	cancelled, err := runs.CancelRun(ctx, connect.NewRequest(&waterclockv1.CancelRunRequest{JobId: id, RunId: first.Msg.GetRun().GetRunId()}))
	check.OK(t, err)
	if got := cancelled.Msg.GetRuns(); len(got) != 1 || got[0].GetState() != waterclockv1.RunState_RUN_STATE_CANCELLED {
		t.Errorf("cancelled: %v", got)
	}
	again, err = jobs.TriggerJob(ctx, connect.NewRequest(&waterclockv1.TriggerJobRequest{JobId: id, RequestId: "r"}))
	check.OK(t, err)
	if r := again.Msg.GetRun(); r.GetState() != waterclockv1.RunState_RUN_STATE_CANCELLED || r.GetRunId() != first.Msg.GetRun().GetRunId() {
		t.Errorf("a trigger repeated after its run has ended: %v", r)
	}
	cancelled, err = runs.CancelRun(ctx, connect.NewRequest(&waterclockv1.CancelRunRequest{JobId: id, RunId: first.Msg.GetRun().GetRunId()}))
	check.OK(t, err)
	if len(cancelled.Msg.GetRuns()) != 1 {
		t.Error("cancel of an ended run does not show it")
	}

	_, err = jobs.TriggerJob(ctx, connect.NewRequest(&waterclockv1.TriggerJobRequest{JobId: id}))
	check.OK(t, err)
	running := w.hand(id)
	w.report(running, store.ReportStart, 0, "")
	_, err = jobs.DeleteJob(ctx, connect.NewRequest(&waterclockv1.DeleteJobRequest{JobId: id}))
	check.OK(t, err)
	_, err = jobs.DeleteJob(ctx, connect.NewRequest(&waterclockv1.DeleteJobRequest{JobId: id}))
	check.OK(t, err)
	run, err = runs.GetRun(ctx, connect.NewRequest(&waterclockv1.GetRunRequest{JobId: id, RunId: running.RunID.String()}))
	check.OK(t, err)
	if run.Msg.GetRun().GetState() != waterclockv1.RunState_RUN_STATE_CANCELLING {
		t.Errorf("running at delete: %v", run.Msg.GetRun())
	}
	if len(w.ear.withdrawn) != 2 || w.ear.withdrawn[0].RunID != running.RunID || w.ear.withdrawn[1].RunID != running.RunID {
		t.Errorf("withdrawn %v", w.ear.withdrawn)
	}
	if _, err := jobs.TriggerJob(ctx, connect.NewRequest(&waterclockv1.TriggerJobRequest{JobId: id})); code(err) != connect.CodeNotFound {
		t.Errorf("trigger of a deleted job: %v", err)
	}
}

func TestCancelledOccurrenceStaysCancelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	jobs, runs, ctx := w.jobs("acme"), w.runs("acme"), t.Context()
	made := w.add(&waterclockv1.JobSpec{Kind: "exec", Schedule: every(time.Hour)})
	id, next := made.GetJob().GetJobId(), made.GetRun()
	_, err := runs.CancelRun(ctx, connect.NewRequest(&waterclockv1.CancelRunRequest{JobId: id, RunId: next.GetRunId()}))
	check.OK(t, err)
	res, err := jobs.UpdateJob(ctx, connect.NewRequest(&waterclockv1.UpdateJobRequest{
		JobId: id, Version: 1, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"schedule"}},
		Spec: &waterclockv1.JobSpec{Schedule: cron("0 * * * *", "UTC")},
	}))
	check.OK(t, err)
	if got := res.Msg.GetJob().GetNextDueTime().AsTime(); !got.After(next.GetDueTime().AsTime()) {
		t.Errorf("the next run is at %v, which was cancelled", got)
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	jobs, ctx := w.jobs("acme"), t.Context()
	made := w.add(&waterclockv1.JobSpec{
		Kind: "exec", Schedule: every(time.Hour), Input: &waterclockv1.JobSpec_Payload{Payload: []byte("old")}, Labels: map[string]string{"team": "a"},
	})
	id := made.GetJob().GetJobId()
	update := func(version int64, s *waterclockv1.JobSpec, paths ...string) (*waterclockv1.Job, error) {
		res, err := jobs.UpdateJob(ctx, connect.NewRequest(&waterclockv1.UpdateJobRequest{
			JobId: id, Version: version, Spec: s, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths},
		}))
		if err != nil {
			return nil, err
		}
		return res.Msg.GetJob(), nil
	}
	j, err := update(1, &waterclockv1.JobSpec{Priority: waterclockv1.Priority_PRIORITY_HIGH}, "priority")
	check.OK(t, err)
	if j.GetVersion() != 2 || j.GetSpec().GetPriority() != waterclockv1.Priority_PRIORITY_HIGH || string(j.GetSpec().GetPayload()) != "old" || j.GetSpec().GetLabels()["team"] != "a" {
		t.Errorf("masked update: %v", j)
	}
	if _, err := update(1, &waterclockv1.JobSpec{Kind: "exec"}); code(err) != connect.CodeAborted {
		t.Errorf("an old version: %v", err)
	}
	if _, err := update(2, &waterclockv1.JobSpec{}, "spec.kind"); violation(err).GetField() != "update_mask" {
		t.Errorf("a bad mask: %v", err)
	}
	if _, err := update(2, &waterclockv1.JobSpec{Kind: "no good"}, "kind"); violation(err).GetField() != "spec.kind" {
		t.Errorf("a bad field: %v", err)
	}
	w.clock.Add(10 * time.Minute)
	whole := j.GetSpec()
	whole.Schedule, whole.Input = every(time.Hour), &waterclockv1.JobSpec_Payload{Payload: []byte("new")}
	j, err = update(2, whole)
	check.OK(t, err)
	if got := j.GetNextDueTime().AsTime(); !got.Equal(made.GetRun().GetDueTime().AsTime()) {
		t.Errorf("the same definition again moved the next run to %v", got)
	}
	stored, err := w.store.Job(ctx, "acme", uuid.MustParse(id))
	check.OK(t, err)
	if string(stored.Payload) != "new" {
		t.Errorf("payload %q", stored.Payload)
	}
}

func TestWatchAndLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	runs, ctx := w.runs("acme"), t.Context()
	id := w.add(&waterclockv1.JobSpec{Kind: "exec"}).GetJob().GetJobId()
	s, err := runs.WatchRun(ctx, connect.NewRequest(&waterclockv1.WatchRunRequest{JobId: id}))
	check.OK(t, err)
	defer s.Close() // the end of a test
	state := func() waterclockv1.RunState {
		if !s.Receive() {
			t.Fatal(s.Err())
		}
		return s.Msg().GetRun().GetState()
	}
	if got := state(); got != waterclockv1.RunState_RUN_STATE_SCHEDULED {
		t.Errorf("first: %v", got)
	}
	row := w.hand(id)
	w.ear.changed(row.RunID)
	if got := state(); got != waterclockv1.RunState_RUN_STATE_QUEUED {
		t.Errorf("second: %v", got)
	}
	w.report(row, store.ReportEnd, job.StepSucceeded, "logs/1")
	w.ear.changed(row.RunID)
	if got := state(); got != waterclockv1.RunState_RUN_STATE_SUCCEEDED {
		t.Errorf("third: %v", got)
	}
	if s.Receive() || s.Err() != nil {
		t.Errorf("the stream goes on after the end: %v", s.Err())
	}
	l, err := runs.ReadRunLog(ctx, connect.NewRequest(&waterclockv1.ReadRunLogRequest{JobId: id}))
	check.OK(t, err)
	defer l.Close() // the end of a test
	if !l.Receive() || string(l.Msg().GetData()) != "stored log" || l.Msg().GetStream() != waterclockv1.LogStream_LOG_STREAM_STDOUT {
		t.Errorf("log: %v %v", l.Msg(), l.Err())
	}
	if l.Receive() || l.Err() != nil {
		t.Errorf("the log goes on: %v", l.Err())
	}
}

func TestPagesAndTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	for i := range 7 {
		w.add(&waterclockv1.JobSpec{Kind: "exec", Name: "job" + strconv.Itoa(i), Schedule: every(time.Hour)})
		w.clock.Add(time.Second)
	}
	seen, token := map[string]bool{}, ""
	for range 4 {
		res, err := w.jobs("acme").ListJobs(ctx, connect.NewRequest(&waterclockv1.ListJobsRequest{PageSize: 3, PageToken: token}))
		check.OK(t, err)
		for _, j := range res.Msg.GetJobs() {
			seen[j.GetSpec().GetName()] = true
		}
		if token = res.Msg.GetNextPageToken(); token == "" {
			break
		}
		for name, f := range map[string]func() error{
			"of another query": func() error {
				_, err := w.jobs("acme").ListJobs(ctx, connect.NewRequest(&waterclockv1.ListJobsRequest{PageToken: token, Kind: "exec"}))
				return err
			},
			"of another namespace": func() error {
				_, err := w.jobs("rival").ListJobs(ctx, connect.NewRequest(&waterclockv1.ListJobsRequest{PageToken: token}))
				return err
			},
			"of another list": func() error {
				_, err := w.runs("acme").ListRuns(ctx, connect.NewRequest(&waterclockv1.ListRunsRequest{PageToken: token}))
				return err
			},
		} {
			err := f()
			if v := violation(err); code(err) != connect.CodeInvalidArgument || v.GetField() != "page_token" || v.GetGiven() == "" || v.GetAllowed() == "" {
				t.Errorf("token %s: %v", name, err)
			}
		}
	}
	if len(seen) != 7 || token != "" {
		t.Errorf("saw %d jobs, token %q", len(seen), token)
	}
}

func TestListRunsIsWholeOverPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	jobs, runs, ctx := w.jobs("acme"), w.runs("acme"), t.Context()
	id := w.add(&waterclockv1.JobSpec{Kind: "exec", Schedule: every(time.Hour)}).GetJob().GetJobId()
	want := map[string]bool{}
	for i := range 9 {
		r, err := jobs.TriggerJob(ctx, connect.NewRequest(&waterclockv1.TriggerJobRequest{JobId: id}))
		check.OK(t, err)
		want[r.Msg.GetRun().GetRunId()] = true
		if i%2 == 0 {
			w.report(w.hand(id), store.ReportEnd, job.StepSucceeded, "")
		}
		w.clock.Add(time.Second)
	}
	for size := range int32(5) {
		got, token := map[string]int{}, ""
		for range 30 {
			res, err := runs.ListRuns(ctx, connect.NewRequest(&waterclockv1.ListRunsRequest{JobId: id, PageSize: size + 1, PageToken: token}))
			check.OK(t, err)
			for _, r := range res.Msg.GetRuns() {
				got[r.GetRunId()]++
			}
			if token = res.Msg.GetNextPageToken(); token == "" {
				break
			}
		}
		if len(got) != len(want)+1 {
			t.Errorf("page size %d: %d runs, want %d and the next", size+1, len(got), len(want))
		}
		for r, n := range got {
			if n != 1 {
				t.Errorf("page size %d: run %s %d times", size+1, r, n)
			}
		}
	}
}
