// Package measure finds out what one job costs: rows, bytes, CPU and time on PostgreSQL by the product's own store, and the bytes of its messages by its own
// roles on an embedded NATS server. cmd/scale calls it and stores what it returns beside the model. Linux only.
package measure

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waterclock-io/waterclock/bench/scale"
	"github.com/waterclock-io/waterclock/bench/world"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/store/crdb"
)

// How many jobs one transaction takes. Submits of 64 clients at once share one as they come, so theirs is a guess; the others are the product's defaults.
const (
	submitBatch = 64
	planBatch   = 500
	readPage    = 4000
	purgeBatch  = 1000
)

// bench is one measure under way.
type bench struct {
	dsn   string
	jobs  int
	conn  *pgx.Conn
	meter *world.Meter
	store *crdb.Store
	facts *scale.Facts
	due   time.Time
	rows  []*store.DueRow
}

// SQL measures the rows, bytes and times of a number of jobs on an empty database. The processes below pids are the database's.
func SQL(ctx context.Context, dsn string, pids []int, jobs, payload int) (_ *scale.Facts, err error) {
	b := &bench{dsn: dsn, jobs: jobs, facts: &scale.Facts{Measured: time.Now().UTC().Truncate(time.Second), Jobs: jobs, Payload: payload}}
	if b.conn, err = pgx.Connect(ctx, dsn); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.conn.Close(context.WithoutCancel(ctx))) }()
	if err := b.conn.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&b.facts.Postgres); err != nil {
		return nil, err
	}
	if b.meter, err = world.NewMeter(ctx, pids, dsn); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.meter.Close(context.WithoutCancel(ctx))) }()
	if _, _, err := crdb.Migrate(ctx, dsn); err != nil {
		return nil, err
	}
	b.due = time.Now().Add(time.Hour).Truncate(time.Minute)
	for _, s := range []struct {
		name  string
		batch int
		do    func(context.Context) error
	}{
		{scale.StepSubmit, submitBatch, b.submit}, {"", 0, b.statements}, {scale.StepRead, readPage, b.read}, {scale.StepMark, planBatch, b.mark}, {scale.StepRecord, planBatch, b.record},
		{scale.StepPurge, purgeBatch, b.purge},
	} {
		if err := b.step(ctx, s.name, s.batch, s.do); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return b.facts, nil
}

// step measures one step of all jobs. The store is opened for each anew, since PostgreSQL's counts are whole only when its backends have ended.
func (b *bench) step(ctx context.Context, name string, batch int, do func(context.Context) error) error {
	before, err := b.writes(ctx)
	if err != nil {
		return err
	}
	if b.store, err = crdb.Open(ctx, b.dsn, crdb.Options{MaxConns: 8}); err != nil {
		return err
	}
	from, err := b.meter.Mark(ctx)
	if err != nil {
		return errors.Join(err, b.store.Close())
	}
	if err := do(ctx); err != nil {
		return errors.Join(err, b.store.Close())
	}
	used, err := b.meter.Since(ctx, from)
	if err = errors.Join(err, b.store.Close()); err != nil {
		return err
	}
	after, err := b.writes(ctx)
	if err != nil || name == "" {
		return err
	}
	n := float64(b.jobs)
	s := scale.Step{
		Name: name, Batch: batch, Writes: map[string]float64{}, WAL: float64(used.WAL) / n,
		DatabaseCPU: used.DatabaseCPU.Seconds() / n * 1000, ClientCPU: (used.CPU - used.DatabaseCPU).Seconds() / n * 1000,
	}
	for table, count := range after {
		if d := count - before[table]; d > 0 && slices.Contains([]string{"jobs", "payloads", "timers", "runs"}, table) {
			s.Writes[table] = float64(d) / n
		}
	}
	b.facts.Steps = append(b.facts.Steps, s)
	return nil
}

// writes waits for the backends of others to end and returns how many rows were written so far, by table.
func (b *bench) writes(ctx context.Context) (map[string]int64, error) {
	for {
		var others int
		err := b.conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'waterclock%' AND pid <> pg_backend_pid()").Scan(&others)
		if err != nil {
			return nil, err
		}
		if others == 0 {
			break
		}
		if err := world.Wait(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
	rows, err := b.conn.Query(ctx, "SELECT relname, n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_user_tables")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[string]int64{}
	for rows.Next() {
		var name string
		var n int64
		if err := rows.Scan(&name, &n); err != nil {
			return nil, err
		}
		out[name] = n
	}
	return out, rows.Err()
}

// submit stores the jobs, each due at a moment of its own within a minute.
func (b *bench) submit(ctx context.Context) error {
	for first := 0; first < b.jobs; first += submitBatch {
		subs := make([]store.Submission, min(submitBatch, b.jobs-first))
		for i := range subs {
			s, err := b.newJob(b.due.Add(time.Duration(first+i) * time.Minute / time.Duration(b.jobs)))
			if err != nil {
				return err
			}
			subs[i] = s
		}
		results, err := b.store.Submit(ctx, subs)
		for i := range results {
			err = errors.Join(err, results[i].Err)
		}
		if err != nil {
			return err
		}
	}
	return b.size(ctx, "jobs", "payloads", "timers")
}

func (b *bench) newJob(at time.Time) (store.Submission, error) {
	id, payload, now := b.store.Traits().NewJobID(), make([]byte, b.facts.Payload), time.Now()
	if _, err := rand.Read(payload); err != nil {
		return store.Submission{}, err
	}
	at = at.Truncate(time.Microsecond)
	j := &job.Job{
		ID: id, Namespace: "customer-4711", Shard: job.ShardOf(id, b.store.Traits().Shards), Version: 1, State: job.Active, Kind: "send-mail", Queue: "default",
		QueueNamespace: "_", Priority: job.Normal, Spec: job.Spec{Schedule: schedule.Schedule{Kind: schedule.Once, At: at}}, Payload: payload,
		BodyHash: make([]byte, 32), DueAt: at, CreatedAt: now, UpdatedAt: now,
	}
	t := store.NewTimer(j, schedule.Occurrence{At: at}, now)
	return store.Submission{Job: j, Timer: &t}, nil
}

// size notes how large tables are now, per job.
func (b *bench) size(ctx context.Context, tables ...string) error {
	for _, name := range tables {
		var heap, indexes int64
		if err := b.conn.QueryRow(ctx, "SELECT pg_table_size($1::text::regclass), pg_indexes_size($1::text::regclass)", name).Scan(&heap, &indexes); err != nil {
			return err
		}
		n := float64(b.jobs)
		b.facts.Tables = append(b.facts.Tables, scale.Table{Name: name, Heap: float64(heap) / n, Indexes: float64(indexes) / n})
	}
	return nil
}

// read takes all rows in pages as large as a planner's, shard by shard.
func (b *bench) read(ctx context.Context) error {
	until := b.due.Add(time.Hour)
	for _, c := range b.cursors() {
		for {
			rows, err := b.store.ReadDue(ctx, []store.ShardCursor{c}, until, readPage)
			if err != nil {
				return err
			}
			b.rows = append(b.rows, rows...)
			if len(rows) < readPage {
				break
			}
			c.From = rows[len(rows)-1].TimerKey
		}
	}
	if len(b.rows) != b.jobs {
		return fmt.Errorf("%d rows were read, %d are there", len(b.rows), b.jobs)
	}
	slices.SortFunc(b.rows, func(x, y *store.DueRow) int { return x.DueAt.Compare(y.DueAt) })
	return nil
}

func (b *bench) cursors() []store.ShardCursor {
	at := make([]store.ShardCursor, b.store.Traits().Shards)
	for i := range at {
		at[i] = store.ShardCursor{Shard: int32(i), From: store.TimerKey{Shard: int32(i), DueAt: b.due.Add(-time.Second)}} //nolint:gosec // few
	}
	return at
}

// statements times pages over all shards, empty and full ones, and the statements by which planners share them. It counts for no step.
func (b *bench) statements(ctx context.Context) error {
	at := b.cursors()
	perShard := readPage / len(at)
	page := func(until time.Time) (float64, error) {
		return times(func() error {
			_, err := b.store.ReadDue(ctx, at, until, perShard)
			return err
		})
	}
	empty, err := page(b.due) // nothing is due before it
	if err != nil {
		return err
	}
	full, err := page(b.due.Add(time.Hour))
	if err != nil {
		return err
	}
	b.facts.Costs.Read, b.facts.Costs.ReadRow = line(0, empty, float64(min(perShard*len(at), b.jobs)), full)
	return b.membership(ctx)
}

// membership times the statements by which planners share the shards.
func (b *bench) membership(ctx context.Context) (err error) {
	b.facts.Costs.Renew, err = times(func() error {
		_, _, err := b.store.Renew(ctx, store.Member{ID: "planner-1", Host: "host"}, 3*time.Second)
		return err
	})
	if err != nil {
		return err
	}
	turn := 0
	b.facts.Costs.Claim, err = times(func() error {
		turn++
		_, err := b.store.Claim(ctx, fmt.Sprintf("planner-%d", turn%2), []int32{1, 5, 9, 13, 17, 21, 25, 29})
		return err
	})
	return err
}

// samples is how often a statement is timed.
const samples = 40

// times returns how long something takes, in microseconds.
func times(do func() error) (float64, error) {
	all := make([]float64, samples)
	for i := range all {
		began := time.Now()
		if err := do(); err != nil {
			return 0, err
		}
		all[i] = float64(time.Since(began).Nanoseconds()) / 1000
	}
	return quick(all), nil
}

// quick is the quickest tenth of what was measured: the machine is shared, and what others did to it is not the product's cost.
func quick(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/10]
}

// line goes through two points and returns its height at 0, not below 0, and its slope.
func line(x1, y1, x2, y2 float64) (base, slope float64) {
	slope = max((y2-y1)/(x2-x1), 0)
	return max(y1-slope*x1, 0), slope
}
