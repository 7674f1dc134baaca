package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/store"
)

func occurrenceAt(at time.Time) schedule.Occurrence { return schedule.Occurrence{At: at} }

func testReadDue(t *testing.T, g *group) {
	g.run(t, "rows come with what a hand-over needs", func(t *testing.T, b *bundle) {
		j, tm := b.fullJob()
		tm.Step = job.StepDue
		_, err := b.Submit(t.Context(), []store.Submission{{Job: j, Timer: &tm}})
		check(t, err)
		bare := b.once(b.at(2 * time.Hour))
		bareTimer := b.submit(t, bare)[0]
		same(t, "due rows", []*store.DueRow{
			{Timer: tm, Name: j.Name, Spec: j.Spec, Payload: j.Payload, JobCreatedAt: j.CreatedAt},
			{Timer: bareTimer, Spec: bare.Spec, JobCreatedAt: bare.CreatedAt},
		}, b.due(t))
	})
	g.run(t, "the spec is that of the job now", func(t *testing.T, b *bundle) {
		j := b.every(b.base)
		j.Payload = []byte("old")
		tm := b.submit(t, j)[0]
		next := *j
		next.Version, next.Spec.AttemptTimeout, next.Payload, next.Name = 2, time.Minute, []byte("new"), "named"
		b.change(t, j, store.Change{Job: &next, PayloadChanged: true})
		same(t, "due rows", []*store.DueRow{{Timer: tm, Name: "named", Spec: next.Spec, Payload: next.Payload, JobCreatedAt: j.CreatedAt}}, b.due(t))
	})
	g.run(t, "only rows in step due", func(t *testing.T, b *bundle) {
		j := b.every(b.base)
		b.submit(t, j)
		var put []store.Timer
		for step := job.StepWaiting; step <= job.StepCancelling; step++ {
			tm := b.occurrence(j, b.at(time.Duration(step)*time.Hour))
			tm.Step = step
			put = append(put, tm)
		}
		b.put(t, j, put...)
		var got []time.Time
		for _, row := range b.due(t) {
			got = append(got, row.DueAt)
		}
		same(t, "due times", []time.Time{b.base, b.at(2 * time.Hour)}, got)
	})
	g.run(t, "until is exclusive and the cursor is passed over", func(t *testing.T, b *bundle) {
		// The times lie on both sides of a change of bucket.
		var jobs []*job.Job
		for i := range 6 {
			jobs = append(jobs, b.once(b.at(time.Minute+time.Duration(i-3)*time.Microsecond)))
		}
		timers := b.submit(t, jobs...)
		for from := range timers {
			for until := range timers {
				cursors := make([]store.ShardCursor, b.shards)
				for i := range cursors {
					// Of a cursor only DueAt and RunID count.
					cursors[i] = store.ShardCursor{Shard: int32(i), From: store.TimerKey{Shard: -1, DueAt: timers[from].DueAt, RunID: timers[from].RunID}}
				}
				rows, err := b.ReadDue(t.Context(), cursors, timers[until].DueAt, 100)
				check(t, err)
				want := []time.Time{}
				for i := from + 1; i < until; i++ {
					want = append(want, timers[i].DueAt)
				}
				same(t, "due times", want, dueTimes(rows))
			}
		}
	})
	g.run(t, "order is due time, then priority", func(t *testing.T, b *bundle) {
		var jobs []*job.Job
		for i := range 80 {
			j := b.once(b.at(time.Duration(i%5) * time.Second))
			j.Priority = job.Priorities[i%4]
			jobs = append(jobs, j)
		}
		b.submit(t, jobs...)
		rows := b.due(t)
		if len(rows) != 80 {
			t.Fatalf("%d rows, want 80", len(rows))
		}
		if !slices.IsSortedFunc(rows, func(x, y *store.DueRow) int {
			if c := x.DueAt.Compare(y.DueAt); c != 0 {
				return c
			}
			return int(x.Priority - y.Priority)
		}) {
			t.Errorf("rows are out of order: %v", dueTimes(rows))
		}
	})
	g.run(t, "limit counts per shard and pages join", func(t *testing.T, b *bundle) {
		var jobs []*job.Job
		for i := range 200 {
			j := b.once(b.at(time.Duration(i/20) * time.Second)) // many at one instant
			j.Priority = job.Priorities[i%4]
			jobs = append(jobs, j)
		}
		want := map[uuid.UUID]bool{}
		perShard := map[int32]int{}
		for _, tm := range b.submit(t, jobs...) {
			want[tm.RunID] = true
			perShard[tm.Shard]++
		}
		const limit = 3
		cursors := b.cursors(b.base)
		seen := map[uuid.UUID]bool{}
		for pages := 0; len(cursors) > 0; pages++ {
			rows, err := b.ReadDue(t.Context(), cursors, b.at(time.Hour), limit)
			check(t, err)
			last, count := map[int32]store.TimerKey{}, map[int32]int{}
			for _, row := range rows {
				if seen[row.RunID] || !want[row.RunID] {
					t.Fatalf("row %v was read twice or is foreign", row.TimerKey)
				}
				seen[row.RunID] = true
				count[row.Shard]++
				if k, ok := last[row.Shard]; !ok || k.Compare(row.TimerKey) < 0 {
					last[row.Shard] = row.TimerKey
				}
			}
			var next []store.ShardCursor
			for _, c := range cursors {
				if n := count[c.Shard]; n > limit {
					t.Fatalf("%d rows of shard %d, limit %d", n, c.Shard, limit)
				} else if full := min(limit, perShard[c.Shard]); n != full {
					t.Fatalf("page %d: %d rows of shard %d, want %d", pages, n, c.Shard, full)
				} else if n > 0 {
					perShard[c.Shard] -= n
					next = append(next, store.ShardCursor{Shard: c.Shard, From: last[c.Shard]})
				}
			}
			cursors = next
		}
		if len(seen) != len(want) {
			t.Errorf("%d rows were read, want %d", len(seen), len(want))
		}
	})
	g.run(t, "only the shards that were asked for", func(t *testing.T, b *bundle) {
		var jobs []*job.Job
		for range 40 {
			jobs = append(jobs, b.once(b.base))
		}
		b.submit(t, jobs...)
		shard := jobs[0].Shard
		rows, err := b.ReadDue(t.Context(), b.cursors(b.base)[shard:shard+1], b.at(time.Hour), 100)
		check(t, err)
		want := 0
		for _, j := range jobs {
			if j.Shard == shard {
				want++
			}
		}
		if len(rows) != want {
			t.Errorf("%d rows of shard %d, want %d", len(rows), shard, want)
		}
		rows, err = b.ReadDue(t.Context(), nil, b.at(time.Hour), 100)
		check(t, err)
		same(t, "rows of no shard", []*store.DueRow{}, rows)
	})
	g.run(t, "cursor of a run id at the same instant", func(t *testing.T, b *bundle) {
		jobs := make([]*job.Job, 30)
		for i := range jobs {
			jobs[i] = b.once(b.base)
		}
		timers := b.submit(t, jobs...)
		slices.SortFunc(timers, func(x, y store.Timer) int { return slices.Compare(x.RunID[:], y.RunID[:]) })
		cursors := make([]store.ShardCursor, b.shards)
		for i := range cursors {
			cursors[i] = store.ShardCursor{Shard: int32(i), From: store.TimerKey{DueAt: b.base, RunID: timers[9].RunID}}
		}
		rows, err := b.ReadDue(t.Context(), cursors, b.at(time.Second), 100)
		check(t, err)
		got := []uuid.UUID{}
		for _, row := range rows {
			got = append(got, row.RunID)
		}
		want := []uuid.UUID{}
		for _, tm := range timers[10:] {
			want = append(want, tm.RunID)
		}
		sameIDs(t, "runs after the cursor", want, got)
	})
}

func dueTimes(rows []*store.DueRow) []time.Time {
	times := []time.Time{}
	for _, row := range rows {
		times = append(times, row.DueAt)
	}
	return times
}
