package crdb

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/store"
)

// The fault: one statement in five that writes, on any table, fails as a deadlock or a serialization failure. Whatever is called has its effect once.
func TestEveryFifthWriteFails(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	var mu sync.Mutex
	repeated := map[string]int{}
	s := open(t, dsn, Options{Retried: func(state string) {
		mu.Lock()
		defer mu.Unlock()
		repeated[state]++
	}})
	admin := rawConn(t, dsn)
	run(t, admin, `CREATE FUNCTION fail_at_random() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF random() < 0.1 THEN RAISE EXCEPTION 'a deadlock, says the test' USING ERRCODE = '40P01'; END IF;
			IF random() < 0.1 THEN RAISE EXCEPTION 'a serialization failure, says the test' USING ERRCODE = '40001'; END IF;
			RETURN NULL;
		END $$`)
	for _, table := range []string{"jobs", "payloads", "timers", "runs", "skips"} {
		run(t, admin, fmt.Sprintf("CREATE TRIGGER fails AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH STATEMENT EXECUTE FUNCTION fail_at_random()", table))
	}
	// Some at the commit itself, as PostgreSQL does at SERIALIZABLE.
	run(t, admin, `CREATE FUNCTION fail_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF random() < 0.01 THEN RAISE EXCEPTION 'a serialization failure, says the test' USING ERRCODE = '40001'; END IF;
			RETURN NULL;
		END $$`)
	run(t, admin, "CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE OR DELETE ON timers DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail_at_commit()")
	const workers, rounds, n = 4, 6, 10
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for round := range rounds {
				if err := oneEffect(t, s, n, int64(w*rounds+round+1)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if repeated["40P01"] < 10 || repeated["40001"] < 10 {
		t.Errorf("only %v were repeated: nothing was tried", repeated)
	}
	t.Logf("repeated %v", repeated)
}

// oneEffect submits jobs, half of them a series, changes them, hands them out, follows and ends them, and looks at what there is.
func oneEffect(t *testing.T, s *Store, n int, mark int64) error {
	ctx := t.Context()
	base := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	subs := make([]store.Submission, n)
	m := store.Mark{ID: mark, Generation: 1}
	for i := range subs {
		id := s.Traits().NewJobID()
		sched := schedule.Schedule{Kind: schedule.Once, At: base}
		if i%2 == 0 {
			sched = schedule.Schedule{Kind: schedule.Every, Period: time.Minute, Anchor: base}
		}
		j := &job.Job{
			ID: id, Namespace: "ns", Shard: job.ShardOf(id, s.shards), Version: 1, State: job.Active, Kind: "k", Queue: "q", QueueNamespace: "_",
			Priority: job.Normal, Spec: job.Spec{Schedule: sched}, DueAt: base, CreatedAt: base, UpdatedAt: base, Payload: []byte("p"),
		}
		tm := store.NewTimer(j, schedule.Occurrence{At: base}, base)
		subs[i] = store.Submission{Job: j, Timer: &tm}
		m.Items = append(m.Items, store.MarkItem{Key: tm.TimerKey, Version: 2, JobID: id, ScheduledAt: tm.ScheduledAt})
	}
	results, err := s.Submit(ctx, subs)
	if err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	for i, r := range results {
		if r.Err != nil || r.Existed {
			return fmt.Errorf("submit of job %d: existed %t, %w", i, r.Existed, r.Err)
		}
		_, _, err := s.ChangeJob(ctx, "ns", subs[i].Job.ID, func(j *job.Job, timers []store.Timer, _ time.Time) (store.Change, error) {
			next := *j
			next.Version++
			for k := range timers {
				timers[k].Version = next.Version
			}
			return store.Change{Job: &next, Set: timers}, nil
		})
		if err != nil {
			return fmt.Errorf("change: %w", err)
		}
	}
	marked, err := s.MarkDispatched(ctx, m)
	if err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	var reports []store.Report
	for i, r := range marked {
		if r != store.MarkDone {
			return fmt.Errorf("mark of run %d: %v", i, r)
		}
		tm := subs[i].Timer
		reports = append(reports, store.Report{Kind: store.ReportEnd, Key: tm.TimerKey, JobID: tm.JobID, Dispatch: 1, NeedJob: true})
	}
	_, err = s.Record(ctx, reports, func(_ int, tm *store.Timer, j *job.Job, now time.Time) store.Change {
		c := store.Change{Runs: []store.RunRow{tm.History(job.StepSucceeded, true, "ok", now)}}
		if j.Spec.Recurring() {
			c.Put = []store.Timer{store.NewTimer(j, schedule.Occurrence{At: tm.ScheduledAt.Add(time.Minute)}, now)}
		}
		return c
	})
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	for i := range subs {
		j, err := s.Job(ctx, "ns", subs[i].Job.ID)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		timers, err := s.Timers(ctx, []*job.Job{j})
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		runs, err := s.ListRuns(ctx, j.ID, store.RunPosition{}, 10)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		live := 0
		if j.Spec.Recurring() {
			live = 1
		}
		if j.Version != 2 || len(runs) != 1 || len(timers[j.ID]) != live {
			return fmt.Errorf("job %d has version %d, %d rows of history and %d timers", i, j.Version, len(runs), len(timers[j.ID]))
		}
	}
	return nil
}
