package planner

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/internal/sqltest"
	"github.com/waterclock-io/waterclock/job"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/streams"
)

// What a planner decided of a row long overdue, and what was never recorded, is decided again: by itself, and by whoever plans the shard after it.
func TestAReportThatIsLostIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var skipped atomic.Int32
	_, err := r.nc.Subscribe("status.>", func(m *nats.Msg) {
		b := new(wirev1.StatusBatch)
		if err := proto.Unmarshal(m.Data, b); err != nil {
			t.Error(err)
		}
		for _, s := range b.Statuses {
			if s.Kind == wirev1.StatusKind_STATUS_KIND_SKIPPED {
				skipped.Add(1)
			}
		}
	})
	check.OK(t, err)
	long := r.now().Add(-5 * lookBack)
	late := r.job(long, func(j *job.Job) { j.Spec.StartDeadline, j.CreatedAt = time.Second, long })
	row := r.submit(long, late)[0]

	a := r.planner(nil, nil)
	check.Await(t, "the report", func() bool { return skipped.Load() == 1 })
	awaitIn(t, a, "the end of the backlog", func() bool { return a.owned[row.Shard].overdue.IsZero() })
	check.OK(t, a.checkpoint(t.Context()))
	a.Stop()
	b := r.planner(nil, nil)
	check.Await(t, "the report of the next owner", func() bool { return skipped.Load() == 2 })
	check.Await(t, "the report once more", func() bool { return skipped.Load() > 2 })

	// Nor is it lost where a mark was refused.
	again, _ := ask(b, func() bool {
		o := b.owned[row.Shard]
		o.overdue = time.Time{}
		b.readAgain(store.TimerKey{Shard: row.Shard, DueAt: row.DueAt})
		return o.overdue.Equal(row.DueAt)
	})
	if !again {
		t.Error("a row that is long overdue is not read again")
	}
}

// However long SQL was away: what fell due meanwhile, and nobody told of, is read.
func TestWhatFellDueInAnOutageIsRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.planner(nil, nil)
	r.owns(p)
	awaitIn(t, p, "a read of all", func() bool { return p.owned[0].overdue.IsZero() })
	at := r.now().Add(-4 * lookBack)
	row := r.submit(at, r.job(at, nil))[0]
	// The last read that came to its end was a minute before it fell due.
	if _, ok := ask(p, func() bool {
		p.owned[0].read, p.owned[0].lookedBack = at.Add(-lookBack), at.Add(-lookBack)
		return true
	}); !ok {
		t.Fatal("the planner has stopped")
	}
	r.handedOut(10*time.Second, subjectOf(&row, 1))
}

// A row that was committed long after it fell due is behind what is glanced at, and found by the next look back; before that, nothing goes as far back.
func TestRowCommittedLateIsFoundByALookBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := reads{r.store, make(chan read, 1000)}
	p := r.planner(s, nil)
	r.owns(p)
	awaitIn(t, p, "a read of all", func() bool { return p.owned[0].overdue.IsZero() && !p.owned[0].lookedBack.IsZero() })
	ask(p, func() bool {
		p.owned[0].lookedBack = p.clock.Now().Add(time.Minute) // none is due, however slow this machine is
		return true
	})
	at := r.now().Add(-lookBack / 2)
	row := r.submit(at, r.job(at, nil))[0]
	for len(s.told) > 0 {
		<-s.told
	}
	for range 4 { // two seconds of a look at what is over its time and one ahead
		if got := <-s.told; !got.from.After(at) {
			t.Fatalf("looked back as far as %s before a look back was due", r.now().Sub(got.from))
		}
	}
	if n := r.outs()[subjectOf(&row, 1)]; n != 0 {
		t.Fatal("handed out without having been read")
	}
	ask(p, func() bool {
		p.owned[0].lookedBack = p.clock.Now().Add(-lookBackEach)
		return true
	})
	r.handedOut(10*time.Second, subjectOf(&row, 1))
	again, _ := ask(p, func() bool { return p.clock.Now().Sub(p.owned[0].lookedBack) < lookBackEach })
	if !again {
		t.Error("it looks back all the time")
	}
}

// A row whose mark failed is read again also where that is so for longer than the reads look back.
func TestRowWhoseMarkFailedIsReadAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.planner(nil, nil)
	r.owns(p)
	due := r.now()
	from, _ := ask(p, func() time.Time {
		o := p.owned[0]
		o.overdue, o.read = time.Time{}, time.Time{}
		p.readAgain(store.TimerKey{Shard: 0, DueAt: due})
		return o.overdue
	})
	if !from.Equal(due) {
		t.Errorf("read again from %s, want %s", from, due)
	}
}

// reads is a store that tells of each read of due rows.
type reads struct {
	store.Store
	told chan read
}

type read struct{ from, until time.Time }

func (s reads) ReadDue(ctx context.Context, from []store.ShardCursor, until time.Time, limit int) ([]*store.DueRow, error) {
	if len(from) > 0 {
		select {
		case s.told <- read{from[0].From.DueAt, until}:
		default: // nobody looks now
		}
	}
	return s.Store.ReadDue(ctx, from, until, limit)
}

// A row that is put behind the place up to which the planner has read ahead is read before its time: a retry, the next occurrence of a quick series. Where its key is
// told it is read at once; where nothing is told, by the look back of each second, which reaches as far ahead as the next one comes.
func TestRowBehindTheReadAheadIsReadBeforeItsTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := reads{r.store, make(chan read, 1000)}
	p := r.planner(s, nil)
	r.owns(p)
	back := 0
	for back < 3 {
		got := <-s.told
		now := got.from.Add(glance) // of this read, or of the one before
		if !now.Before(got.until) || got.until.Sub(now) > 10*time.Second {
			continue // of all there is, a minute back, or ahead
		}
		if ahead := got.until.Sub(now); ahead < p.cfg.MarkAhead+readEvery {
			t.Fatalf("looked back, and only %s ahead", ahead)
		}
		back++
	}
	due := r.now().Add(2 * time.Second)
	streams.NewNotifier(r.nc, quiet).Wake(0, &wirev1.Wake{Rows: []*wirev1.WakeRow{{RunId: make([]byte, 16), JobId: make([]byte, 16), DueAt: due.UnixMicro()}}})
	check.Await(t, "a read up to what was told", func() bool {
		for {
			select {
			case got := <-s.told:
				if got.until.Equal(due.Add(time.Microsecond)) {
					return true
				}
			default:
				return false
			}
		}
	})
}

// A hand-over that another planner made while this one was believed gone, and came back to its shard before it noticed, is looked after.
func TestHandOversOfAnInterludeAreFound(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.planner(nil, nil)
	r.owns(p)
	handOut := func() uuid.UUID {
		t.Helper()
		due := r.now().Add(flightAhead / 2) // so that this planner has not read it
		return sqltest.HandOut(t, r.store, 1, r.submit(r.now(), r.job(due, nil))...)[0].RunID
	}
	run := handOut()
	p.do(func() {
		s := p.owned[0].Shard
		s.Epoch++
		p.own([]store.Shard{s})
	})
	awaitIn(t, p, "the hand-over is known after the shard has come back", func() bool { return p.flights.byRun[run] != nil })
	run = handOut()
	p.recount()
	awaitIn(t, p, "the hand-over is known after a recount", func() bool { return p.flights.byRun[run] != nil })
}
