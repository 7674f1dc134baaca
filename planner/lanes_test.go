package planner

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// some makes a row; what of it matters is the test's to say.
func some(change func(*store.DueRow)) *store.DueRow {
	r := &store.DueRow{Timer: store.Timer{
		TimerKey: store.TimerKey{DueAt: noon, RunID: uuid.New()}, Namespace: "a", QueueNamespace: job.SharedNamespace, Queue: "default", Priority: job.Normal,
		Kind: "k", Step: job.StepDue, Version: 1, Attempt: 1,
	}}
	if change != nil {
		change(r)
	}
	return r
}

// ready moves all that is due from what is to come to the lanes.
func (b *board) allReady() {
	for e := b.popDue(noon.Add(time.Hour)); e != nil; e = b.popDue(noon.Add(time.Hour)) {
		e.lane.push(e)
	}
}

func TestBoardByTimeThenPriority(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := newBoard()
		for range rapid.IntRange(0, 60).Draw(t, "rows") {
			b.add(some(func(r *store.DueRow) {
				r.DueAt = noon.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "second")) * time.Second)
				r.Priority = rapid.SampledFrom(job.Priorities[:]).Draw(t, "priority")
			}))
		}
		n := len(b.entries)
		var last *entry
		for e := b.popDue(noon.Add(3 * time.Second)); e != nil; e = b.popDue(noon.Add(3 * time.Second)) {
			if last != nil && (e.row.DueAt.Before(last.row.DueAt) || e.row.DueAt.Equal(last.row.DueAt) && e.row.Priority < last.row.Priority) {
				t.Fatalf("%v came after %v", e.row, last.row)
			}
			last, n = e, n-1
		}
		if len(b.upcoming) != n {
			t.Fatalf("%d are left of %d", len(b.upcoming), n)
		}
		if first, ok := b.next(); ok && !first.After(noon.Add(3*time.Second)) {
			t.Fatalf("due at %s, and left", first)
		}
	})
}

func TestTakeByPriority(t *testing.T) {
	t.Parallel()
	b := newBoard()
	for _, p := range []job.Priority{job.Low, job.Critical, job.Normal, job.High} {
		for range 30 {
			b.add(some(func(r *store.DueRow) { r.Priority = p }))
		}
	}
	b.allReady()
	var got []string
	for _, e := range b.take(75, 100) {
		if s := e.row.Priority.String(); len(got) == 0 || got[len(got)-1] != s {
			got = append(got, s)
		}
	}
	if d := cmp.Diff([]string{"critical", "high", "normal"}, got); d != "" {
		t.Error(d)
	}
}

// The flood of one namespace of a shared queue does not hold up the run of another.
func TestNamespacesTakeTurns(t *testing.T) {
	t.Parallel()
	b := newBoard()
	for range 1000 {
		b.add(some(func(r *store.DueRow) { r.Namespace = "flood" }))
	}
	b.allReady()
	for i := range 3 {
		b.add(some(func(r *store.DueRow) { r.Namespace = fmt.Sprintf("quiet-%d", i) }))
	}
	b.allReady()
	got := map[string]int{}
	for _, e := range b.take(8, 10_000) {
		got[e.row.Namespace]++
	}
	if d := cmp.Diff(map[string]int{"flood": 5, "quiet-0": 1, "quiet-1": 1, "quiet-2": 1}, got); d != "" {
		t.Error(d)
	}
	if n := len(b.take(10_000, 10_000)); n != 995 {
		t.Errorf("%d are left, want 995", n)
	}
}

func TestQueuesOfOnePriorityTakeTurns(t *testing.T) {
	t.Parallel()
	b := newBoard()
	for i := range 3 {
		for range 200 {
			b.add(some(func(r *store.DueRow) { r.Queue = fmt.Sprintf("q%d", i) }))
		}
	}
	b.allReady()
	got := map[string]int{}
	for _, e := range b.take(96, 1000) {
		got[e.row.Queue]++
	}
	if d := cmp.Diff(map[string]int{"q0": 32, "q1": 32, "q2": 32}, got); d != "" {
		t.Error(d)
	}
}

// A lane whose executors are behind takes no more than its limit, and holds up no other.
func TestLaneLimit(t *testing.T) {
	t.Parallel()
	b := newBoard()
	for range 100 {
		b.add(some(func(r *store.DueRow) { r.Queue, r.Priority = "slow", job.Critical }))
		b.add(some(func(r *store.DueRow) { r.Queue = "quick" }))
	}
	b.allReady()
	got := map[string]int{}
	taken := b.take(60, 10)
	for _, e := range taken {
		got[e.row.Queue]++
	}
	if d := cmp.Diff(map[string]int{"slow": 10, "quick": 10}, got); d != "" {
		t.Error(d)
	}
	for _, e := range taken {
		if e.row.Queue == "quick" {
			e.lane.queued-- // an executor began
		}
	}
	for _, e := range b.take(60, 10) {
		if e.row.Queue != "quick" {
			t.Errorf("a run of %s was taken", e.row.Queue)
		}
	}
}

// Whatever is added, taken and changed, the counts stay those of what is there.
func TestLaneCounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := newBoard()
		var all []*store.DueRow
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1:
				r := some(func(r *store.DueRow) {
					r.Namespace = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "namespace")
					r.Priority = rapid.SampledFrom([]job.Priority{job.High, job.Low}).Draw(t, "priority")
					r.Kind = rapid.SampledFrom([]string{"k", "l"}).Draw(t, "kind")
				})
				all = append(all, r)
				b.add(r)
			case 2:
				if e := b.popDue(noon); e != nil {
					e.late = rapid.Bool().Draw(t, "late")
					if e.row.Kind == "l" {
						e.lane.hold(e)
					} else {
						e.lane.push(e)
					}
				}
			case 3:
				for _, e := range b.take(rapid.IntRange(0, 5).Draw(t, "n"), 1000) {
					b.forget(e.row.RunID)
				}
			case 4:
				if len(all) > 0 {
					which := rapid.IntRange(0, len(all)-1).Draw(t, "which")
					r := new(store.DueRow)
					*r = *all[which]
					r.Version++
					r.Kind, r.Priority = "k", job.High
					all[which] = r
					b.add(r)
					if got := b.entries[r.RunID]; got == nil || got.row.Version != r.Version {
						t.Fatalf("the new version is not on the board")
					}
				}
			}
			inLanes := 0
			for _, l := range b.lanes {
				n, late := 0, 0
				for whose, f := range l.ready {
					n += f.len()
					if whose.late {
						late += f.len()
					}
				}
				if n != l.count || late != l.late {
					t.Fatalf("lane %s counts %d, %d late, and has %d, %d late", l.Lane, l.count, l.late, n, late)
				}
				inLanes += n + l.heldCount()
			}
			if inLanes+len(b.upcoming) != len(b.entries) {
				t.Fatalf("%d in lanes and %d to come, of %d", inLanes, len(b.upcoming), len(b.entries))
			}
		}
	})
}

func TestChangedRowsTakeTheirNewPlace(t *testing.T) {
	t.Parallel()
	changed := func(r *store.DueRow) *store.DueRow {
		c := *r
		c.Version, c.Kind, c.Priority, c.DueAt = 2, "other", job.Critical, noon.Add(time.Second)
		return &c
	}
	for name, put := range map[string]func(b *board, e *entry){
		"to come": nil,
		"ready":   func(_ *board, e *entry) { e.lane.push(e) },
		"held":    func(_ *board, e *entry) { e.lane.hold(e) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBoard()
			row := some(nil)
			b.add(row)
			if put != nil {
				put(b, b.popDue(noon))
			}
			b.add(row) // read again, it stays one
			b.add(changed(row))
			b.allReady()
			got := b.take(10, 10)
			if len(got) != 1 || got[0].row.Version != 2 || got[0].lane.Priority != job.Critical {
				t.Fatalf("got %d rows: %+v", len(got), got)
			}
			for _, l := range b.lanes {
				if l.count+l.heldCount() != 0 {
					t.Errorf("the old row is left in %s", l.Lane)
				}
			}
		})
	}
	t.Run("being marked", func(t *testing.T) {
		t.Parallel()
		b := newBoard()
		row := some(nil)
		b.add(row)
		b.allReady()
		e := b.take(1, 1)[0]
		b.add(changed(row)) // the mark decides; a read after it brings the new row
		if b.entries[row.RunID] != e || len(b.upcoming) != 0 {
			t.Error("a row under a mark was replaced")
		}
		b.forget(row.RunID)
		b.add(changed(row))
		if len(b.upcoming) != 1 {
			t.Error("the new row was not taken")
		}
	})
}

func TestFlights(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := newBoard()
		f := newFlights()
		began := map[uuid.UUID]bool{}
		var ids []uuid.UUID
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1:
				r := some(func(r *store.DueRow) { r.Shard = rapid.Int32Range(0, 2).Draw(t, "shard") })
				if len(ids) > 0 && rapid.Bool().Draw(t, "again") {
					r.RunID = rapid.SampledFrom(ids).Draw(t, "run") // a later hand-over of a run that is known
				}
				l := b.lane(laneOf(&r.Timer))
				l.queued++
				f.add(&flight{timer: r.Timer, lane: l, check: noon.Add(time.Duration(rapid.IntRange(0, 9).Draw(t, "check")) * time.Second)})
				ids = append(ids, r.RunID)
				began[r.RunID] = false
			case 2:
				if fl := f.byRun[pick(t, ids)]; fl != nil {
					f.begun(fl)
					f.begun(fl)
					began[fl.timer.RunID] = true
				}
			case 3:
				if fl := f.byRun[pick(t, ids)]; fl != nil {
					f.remove(fl)
					f.remove(fl)
				}
			case 4:
				f.dropShard(rapid.Int32Range(0, 2).Draw(t, "dropped"))
			case 5:
				now := noon.Add(time.Duration(rapid.IntRange(0, 9).Draw(t, "now")) * time.Second)
				var last time.Time
				for _, fl := range f.due(now, 5, noon.Add(time.Hour)) {
					if fl.check != noon.Add(time.Hour) {
						t.Fatal("what was looked at is not put off")
					}
					last = fl.check
				}
				_ = last
			}
			queued := 0
			for id := range f.byRun {
				if !began[id] {
					queued++
				}
			}
			lanes := 0
			for _, l := range b.lanes {
				lanes += l.queued
			}
			if lanes != queued || len(f.order) != len(f.byRun) {
				t.Fatalf("lanes count %d of %d; %d in the heap of %d", lanes, queued, len(f.order), len(f.byRun))
			}
			for i, fl := range f.order {
				if fl.index != i || i > 0 && fl.check.Before(f.order[(i-1)/2].check) {
					t.Fatalf("place %d of the heap is wrong", i)
				}
			}
		}
	})
}

func pick(t *rapid.T, ids []uuid.UUID) uuid.UUID {
	if len(ids) == 0 {
		return uuid.Nil
	}
	return rapid.SampledFrom(ids).Draw(t, "run")
}

// A backlog is worked off beside what falls due meanwhile: they take turns, and however long the backlog, only so much of it stands in the way.
func TestBacklogDoesNotHoldUpWhatFallsDue(t *testing.T) {
	t.Parallel()
	b := newBoard()
	put := func(n int, late bool) {
		for range n {
			e := &entry{row: some(nil), late: late, index: -1}
			e.lane = b.lane(laneOf(&e.row.Timer))
			e.lane.push(e)
		}
	}
	put(5*lateMost, true)
	put(10, false)
	fresh := 0
	for _, e := range b.take(20, 1<<20) {
		if !e.late {
			fresh++
		}
	}
	if fresh != 10 {
		t.Errorf("of the first 20 handed out %d are of what fell due meanwhile, want 10", fresh)
	}
	if n := len(b.take(1<<20, 1<<20)); n != lateLeast-10 {
		t.Errorf("%d more of the backlog are handed out, want %d", n, lateLeast-10)
	}
	put(3, false)
	if got := b.take(1<<20, 1<<20); len(got) != 3 {
		t.Errorf("with the backlog at its bound %d go, want the 3 that fall due", len(got))
	}
	// As executors begin, more of it goes.
	l := b.lane(laneOf(&(&entry{row: some(nil)}).row.Timer))
	for range 10 {
		l.dequeue(true)
	}
	if n := len(b.take(1<<20, 1<<20)); n != 10 {
		t.Errorf("%d follow the 10 that have begun", n)
	}
	// As many wait as were begun in this second or the one before, within bounds.
	for _, c := range []struct{ begun, want int }{{100, 100}, {0, 100}, {0, lateLeast}, {10 * lateMost, lateMost}, {1, lateMost}, {1, lateLeast}} {
		b.second()
		for range c.begun {
			l.enqueue(true)
			l.began(true)
		}
		if got := l.lateLimit(); got != c.want {
			t.Errorf("after %d in a second %d may wait, want %d", c.begun, got, c.want)
		}
	}
}
