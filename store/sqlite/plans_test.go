package sqlite

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/store"
)

// mayScan are the statements that go through a whole table: tables of a few rows, and retention, which runs beside the writer.
func mayScan(text string) bool {
	for _, part := range []string{"FROM api_keys", "FROM shards", "FROM streams", "FROM members", "FROM cluster", "UPDATE shards SET owner = ''", "UPDATE cluster",
		"SELECT job_id, run_id, scheduled_at, attempt, result_ref, log_ref FROM runs WHERE ended_at", "SELECT job_id, nominal_at FROM skips WHERE at <"} {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// maySort are the statements that sort a few rows: names of queues, and the attempts of one run.
func maySort(text string) bool {
	return strings.Contains(text, "FROM queues") || strings.HasSuffix(text, "AND run_id = ? ORDER BY attempt")
}

// Every statement finds its rows by a key or an index, and none sorts more than a few rows.
func TestPlans(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{Readers: 1})
	useAll(t, s)
	plans := 0
	explain := func(c *conn) error {
		var texts []string
		for text := range c.stmts {
			texts = append(texts, text)
		}
		for _, text := range texts {
			err := c.query("EXPLAIN QUERY PLAN "+text, func(r *row) error {
				_, _, _ = r.take(), r.take(), r.take()
				step := r.string()
				plans++
				scans := strings.HasPrefix(step, "SCAN ") && !strings.Contains(step, "VIRTUAL TABLE") && !strings.HasPrefix(step, "SCAN CONSTANT")
				sorts := strings.Contains(step, "TEMP B-TREE") && !maySort(text)
				if (scans || sorts) && !mayScan(text) {
					t.Errorf("%s\n\t%s", step, text)
				}
				return nil
			}, make([]any, 40)...)
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.read(t.Context(), explain); err != nil {
		t.Error(err)
	}
	if err := s.write(t.Context(), 1, explain); err != nil {
		t.Error(err)
	}
	if plans < 30 {
		t.Errorf("only %d steps of plans were seen", plans)
	}
}

// useAll makes the store prepare every statement that it has.
func useAll(t *testing.T, s *Store) {
	t.Helper()
	ctx := t.Context()
	at := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	j := &job.Job{ID: uuid.New(), Namespace: "ns", Name: "n", Version: 1, DueAt: at, Spec: job.Spec{Schedule: schedule.Schedule{Kind: schedule.Once, At: at}}}
	tm := store.NewTimer(j, schedule.Occurrence{At: at}, at)
	run := tm.History(job.StepFailed, true, "", at)
	change := store.Change{
		Job: j, PayloadChanged: true, Put: []store.Timer{tm}, Set: []store.Timer{tm}, Remove: []store.TimerKey{tm.TimerKey},
		Runs: []store.RunRow{run}, Skips: []store.SkipRow{{JobID: j.ID, NominalAt: at, At: at}},
	}
	item := store.MarkItem{Key: tm.TimerKey, Version: 1, JobID: j.ID, ScheduledAt: at}
	forbid := item
	forbid.Forbid = true
	var errs []error
	try := func(_ any, err error) { errs = append(errs, err) }
	try(s.Submit(ctx, []store.Submission{{Job: j, Timer: &tm}, {Job: j, Timer: &tm}}))
	for _, payload := range []string{"", "x"} {
		j.Payload = []byte(payload)
		_, _, err := s.ChangeJob(ctx, "ns", j.ID, func(*job.Job, []store.Timer, time.Time) (store.Change, error) { return change, nil })
		try(nil, err)
	}
	try(s.ReadDue(ctx, []store.ShardCursor{{}}, at, 1))
	try(s.MarkDispatched(ctx, store.Mark{ID: 1, Items: []store.MarkItem{forbid, item, forbid}}))
	try(s.Marked(ctx, store.Mark{ID: 1, Items: []store.MarkItem{item}}))
	try(s.ReadInFlight(ctx, []store.ShardCursor{{}}, at, 1))
	try(s.ReadTimers(ctx, []store.TimerKey{tm.TimerKey}))
	try(s.BrokenSeries(ctx, 0, at, uuid.UUID{}, 1))
	var reports []store.Report
	for _, kind := range []store.ReportKind{store.ReportStart, store.ReportFollow, store.ReportEnd} {
		reports = append(reports, store.Report{Kind: kind, Key: tm.TimerKey, JobID: j.ID, Dispatch: 1, NeedJob: true})
	}
	try(s.Record(ctx, reports, func(int, *store.Timer, *job.Job, time.Time) store.Change { return change }))
	try(s.Job(ctx, "ns", j.ID))
	try(s.JobNamespace(ctx, j.ID))
	try(s.ListJobs(ctx, store.JobQuery{Namespace: "ns", State: job.Active, Limit: 1}))
	try(s.Timers(ctx, []*job.Job{j}))
	try(s.LastRuns(ctx, []uuid.UUID{j.ID}))
	try(s.RunAttempts(ctx, j.ID, tm.RunID))
	try(s.ListRuns(ctx, j.ID, store.RunPosition{}, 1))
	try(s.ListFailures(ctx, "ns", store.RunPosition{}, 1))
	try(s.ListSkips(ctx, j.ID, time.Time{}, 1))
	_, _, err := s.Renew(ctx, store.Member{ID: "m"}, time.Second)
	try(nil, err)
	try(s.Claim(ctx, "m", []int32{0}))
	try(s.Shards(ctx))
	try(nil, s.Checkpoint(ctx, "m", []store.Shard{{}}))
	try(nil, s.Leave(ctx, "m"))
	try(nil, s.CreateKey(ctx, store.APIKey{ID: "k", Hash: []byte("h")}))
	try(s.Keys(ctx, ""))
	try(s.KeyByID(ctx, "k"))
	try(nil, s.RevokeKey(ctx, "k"))
	try(s.SharedQueues(ctx))
	try(s.NextGeneration(ctx, "RUNS", 0))
	try(nil, s.SaveStreamSeq(ctx, store.Stream{Name: "RUNS", Generation: 1, LastSeq: 1}))
	try(s.Streams(ctx))
	try(nil, s.Ping(ctx))
	try(s.Purge(ctx, at.AddDate(1, 0, 0), 100, nil))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
