package harness

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib" // to look at what is left, as well as
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/types/known/timestamppb"
	_ "modernc.org/sqlite" // here

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/job"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/streams"
)

// reader reads history as users do: the jobs of each namespace by its own door.
type reader struct {
	doors map[string]*door // by namespace
}

// readLimit is how long one job may take to be read at the end, when nothing is broken any more: long enough for an API that is just starting.
const readLimit = 30 * time.Second

// all fills in what the API shows of every job.
func (r *reader) all(ctx context.Context, jobs []checker.Job) error {
	const readers = 4
	var wg sync.WaitGroup
	errs := make([]error, readers)
	for n := range readers {
		wg.Go(func() {
			for i := n; i < len(jobs) && errs[n] == nil; i += readers {
				errs[n] = r.insist(ctx, &jobs[i])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// insist reads a job, anew where an API could not be reached.
func (r *reader) insist(ctx context.Context, j *checker.Job) error {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	for {
		read := *j
		one, stop := context.WithTimeout(ctx, callLimit)
		err := r.one(one, &read)
		stop()
		if err == nil {
			*j = read
			return nil
		}
		if !saysNothing(err) || fault.Wait(ctx, retryEvery) != nil {
			return err
		}
	}
}

// one reads a job once. What an error leaves in it is of no use.
func (r *reader) one(ctx context.Context, j *checker.Job) error {
	d := r.doors[j.Namespace]
	got, err := d.jobs.GetJob(ctx, connect.NewRequest(&waterclockv1.GetJobRequest{JobId: j.ID}))
	if connect.CodeOf(err) == connect.CodeNotFound {
		return nil // for the checker to say
	}
	if err != nil {
		return fmt.Errorf("get job %s: %w", j.ID, err)
	}
	j.Found, j.CreatedAt = true, got.Msg.GetJob().GetCreateTime().AsTime()
	for page := ""; ; {
		list, err := d.runs.ListRuns(ctx, connect.NewRequest(&waterclockv1.ListRunsRequest{JobId: j.ID, PageSize: 1000, PageToken: page}))
		if err != nil {
			return fmt.Errorf("list runs of job %s: %w", j.ID, err)
		}
		for _, run := range list.Msg.GetRuns() {
			out, err := readRun(run)
			if err != nil {
				return err
			}
			if out.State != "skipped" {
				if out.Attempts, err = attempts(ctx, d, j.ID, out.ID); err != nil {
					return err
				}
			}
			j.Runs = append(j.Runs, out)
		}
		if page = list.Msg.GetNextPageToken(); page == "" {
			return nil
		}
	}
}

// attempts are the rows of history of a run.
func attempts(ctx context.Context, d *door, jobID, runID string) ([]checker.Attempt, error) {
	res, err := d.runs.GetRun(ctx, connect.NewRequest(&waterclockv1.GetRunRequest{JobId: jobID, RunId: runID}))
	if err != nil {
		return nil, fmt.Errorf("get run %s of job %s: %w", runID, jobID, err)
	}
	var out []checker.Attempt
	for _, a := range res.Msg.GetRun().GetAttempts() {
		out = append(out, checker.Attempt{
			RunID: runID, Attempt: a.GetAttempt(), Dispatch: a.GetDispatch(), State: stateName(a.GetState()), Reason: a.GetOutcome().GetReason(),
			Code: a.GetOutcome().GetCode(), Executor: a.GetExecutor(), Started: instant(a.GetStartTime()), EndedAt: instant(a.GetEndTime()),
		})
	}
	return out, nil
}

func readRun(run *waterclockv1.Run) (checker.Run, error) {
	out := checker.Run{
		ID: run.GetRunId(), State: stateName(run.GetState()), Reason: run.GetOutcome().GetReason(), Scheduled: instant(run.GetScheduledTime()), EndedAt: instant(run.GetEndTime()),
		Origin: strings.ToLower(strings.TrimPrefix(run.GetOrigin().String(), "RUN_ORIGIN_")),
	}
	out.Through, out.Count = out.Scheduled, 1
	if out.State != "skipped" {
		return out, nil
	}
	// The API says for how many occurrences a skip stands only in words.
	count, last, many := strings.Cut(run.GetOutcome().GetMessage(), " occurrences, the last at ")
	if !many {
		return out, nil
	}
	var errCount, errLast error
	out.Count, errCount = strconv.ParseInt(count, 10, 64)
	out.Through, errLast = time.Parse(time.RFC3339Nano, last)
	return out, errors.Join(errCount, errLast)
}

func stateName(s waterclockv1.RunState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "RUN_STATE_"))
}

func instant(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// left reads what SQL and JetStream still hold.
type left struct {
	db *sql.DB
	js jetstream.JetStream
}

// openLeftOf reads the store at sqlite:PATH or postgres://….
func openLeftOf(store string, nc *nats.Conn) (*left, error) {
	db, err := openStore(store)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("use JetStream: %w", err), db.Close())
	}
	return &left{db: db, js: js}, nil
}

func (l *left) read(ctx context.Context) (out checker.Left, err error) {
	if out.Timers, err = l.timers(ctx); err != nil {
		return out, fmt.Errorf("read timers: %w", err)
	}
	if out.Endless, err = l.endless(ctx); err != nil {
		return out, fmt.Errorf("read series: %w", err)
	}
	if out.Streams, err = l.streams(ctx); err != nil {
		return out, fmt.Errorf("read streams: %w", err)
	}
	return out, nil
}

func (l *left) timers(ctx context.Context) (out []checker.Timer, err error) {
	rows, err := l.db.QueryContext(ctx, "SELECT job_id, run_id, step, due_at, attempt, dispatch FROM timers")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var jobID, runID rowID
		var step job.Step
		var due int64
		var t checker.Timer
		if err := rows.Scan(&jobID, &runID, &step, &due, &t.Attempt, &t.Dispatch); err != nil {
			return nil, err
		}
		t.JobID, t.RunID, t.Step, t.DueAt = string(jobID), string(runID), step.String(), time.UnixMicro(due).UTC()
		out = append(out, t)
	}
	return out, rows.Err()
}

// endless are the active series that have no timer.
func (l *left) endless(ctx context.Context) (out []string, err error) {
	rows, err := l.db.QueryContext(ctx,
		"SELECT job_id FROM jobs WHERE recurring AND state = 'active' AND NOT EXISTS (SELECT 1 FROM timers WHERE timers.job_id = jobs.job_id)")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id rowID
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		out = append(out, string(id))
	}
	return out, rows.Err()
}

// rowID is an id as SQL has it: 16 bytes in SQLite, text from PostgreSQL.
type rowID string

// Scan implements sql.Scanner.
func (r *rowID) Scan(from any) error {
	var id uuid.UUID
	if err := id.Scan(from); err != nil {
		return fmt.Errorf("id %v: %w", from, err)
	}
	*r = rowID(id.String())
	return nil
}

// streams are those that must drain; the dead letters are looked at by what they say.
func (l *left) streams(ctx context.Context) ([]checker.Stream, error) {
	var out []checker.Stream
	list := l.js.ListStreams(ctx)
	for info := range list.Info() {
		name := info.Config.Name
		switch {
		case strings.HasPrefix(name, streams.RunsStream+"-"), name == streams.SubmitStream:
			out = append(out, checker.Stream{Name: name, Messages: info.State.Msgs})
		case name == streams.StatusStream:
			c, err := l.js.Consumer(ctx, name, streams.RecorderConsumer)
			if err != nil {
				return nil, err
			}
			ci, err := c.Info(ctx)
			if err != nil {
				return nil, err
			}
			out = append(out, checker.Stream{Name: name + " (not recorded)", Messages: ci.NumPending + uint64(ci.NumAckPending)}) //nolint:gosec // a count
		}
	}
	return out, list.Err()
}

func drained(l checker.Left) bool {
	for _, s := range l.Streams {
		if s.Messages > 0 {
			return false
		}
	}
	return len(l.Timers) == 0
}
