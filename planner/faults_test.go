package planner

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/chaos/proxy"
	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/internal/natstest"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/streams"
)

// quick lets the watch look soon.
func quick(c *Config) { c.AckWait = 500 * time.Millisecond }

// looked waits until the watch of a planner has looked a number of times at a hand-over, and let it be.
func (r *rig) looked(p *Planner, t *store.Timer, times int) {
	r.t.Helper()
	var last time.Time
	check.Await(r.t, "the watch looks", func() bool {
		next, ok := ask(p, func() time.Time {
			if fl := p.flights.byRun[t.RunID]; fl != nil {
				return fl.check
			}
			return time.Time{}
		})
		if ok && !next.IsZero() && !next.Equal(last) {
			if !last.IsZero() {
				times--
			}
			last = next
		}
		return times <= 0
	})
}

// linked is a rig, and one planner of it whose connection goes by a link; it plans. What r.atMark holds is done once, when a mark has been made and before anything
// follows it.
func linked(t *testing.T, change func(*Config)) (*rig, *proxy.Proxy, *Planner) {
	t.Helper()
	r := newRig(t)
	l := natstest.Link(t, r.nats.Addr())
	nc := natstest.Connect(t, streams.Dial{URL: "nats://" + l.Addr(), Name: "linked"})
	hooked := &faulty{r.store, func(_ context.Context, _ store.Mark, do func() ([]store.MarkResult, error)) ([]store.MarkResult, error) {
		results, err := do()
		if f := r.atMark.Swap(nil); f != nil {
			(*f)()
		}
		return results, err
	}}
	p := r.planner(hooked, func(c *Config) {
		c.Conn = nc
		if change != nil {
			change(c)
		}
	})
	r.recorder()
	r.owns(p)
	return r, l, p
}

// once fails unless each run was handed out once, as dispatch 1, and its message is there.
func (r *rig) once(p *Planner, timers []store.Timer) {
	r.t.Helper()
	for i := range timers {
		tm := &timers[i]
		if row := r.row(tm.TimerKey); !markedOnce(row) {
			r.t.Errorf("run %d is %+v", i, row)
		}
		if !r.stored(p, tm, 1) {
			r.t.Errorf("the message of run %d is gone", i)
		}
		if n := r.outs()[subjectOf(tm, 1)]; n != 1 {
			r.t.Errorf("run %d was published %d times", i, n)
		}
	}
	if n := len(r.outs()); n != len(timers) {
		r.t.Errorf("%d hand-overs of %d runs", n, len(timers))
	}
}

// The fault: a planner dies after it has published and before it has heard that the message is stored. Its successor finds the message, and hands nothing out
// again.
func TestPlannerThatDiesAfterThePublish(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.planner(nil, nil)
	r.owns(a)
	now := r.now()
	timers := r.submit(now, r.job(now, nil), r.job(now, nil), r.job(now, nil))
	a.nudge()
	r.areOut(10*time.Second, timers, 1)
	a.kill()
	r.recorder()
	b := r.planner(alone{r.store}, quick)
	r.owns(b)
	for i := range timers {
		r.looked(b, &timers[i], 2)
	}
	r.once(b, timers)
}

// The fault: the server has stored the message, and its answer is lost with the connection. The planner does not publish again; the watch finds the message.
func TestAnswerToThePublishIsLost(t *testing.T) {
	t.Parallel()
	r, l, p := linked(t, quick)
	hold := func() { l.Hold(proxy.ToClient) }
	r.atMark.Store(&hold)
	now := r.now()
	timers := r.submit(now, r.job(now.Add(300*time.Millisecond), nil), r.job(now.Add(301*time.Millisecond), nil))
	p.readSoon(t, timers[0].Shard)
	r.areOut(10*time.Second, timers, 1)
	l.Cut() // what is held up is lost
	l.Heal()
	for i := range timers {
		r.looked(p, &timers[i], 2)
	}
	r.once(p, timers)
}

// The fault: what a planner publishes is lost, as it is while a cluster elects a leader. The run comes back as soon as the message can no longer be stored, long
// before anybody would be missed at a lease of a minute.
func TestPublishThatIsLost(t *testing.T) {
	t.Parallel()
	r, l, p := linked(t, func(c *Config) { c.AckWait = time.Minute })
	hold := func() { l.Hold(proxy.ToServer) }
	r.atMark.Store(&hold)
	now := r.now()
	tm := &r.submit(now, r.job(now.Add(300*time.Millisecond), nil))[0]
	p.readSoon(t, tm.Shard)
	check.Await(t, "it is sent", func() bool { return !departing(p, tm) && p.window.Unanswered() > 0 })
	l.Cut() // what is held up is lost
	l.Heal()
	if m := r.handedOut(20*time.Second, subjectOf(tm, 2)); m.Attempt != 1 {
		t.Errorf("handed out again as attempt %d", m.Attempt)
	}
	if r.outs()[subjectOf(tm, 1)] != 0 {
		t.Error("the first hand-over was not lost")
	}
}

// The fault: NATS goes away between the mark of a run and its publish. That it was not published is told as soon as NATS is back.
func TestNATSGoesAwayBetweenMarkAndPublish(t *testing.T) {
	t.Parallel()
	var said said
	r, l, p := linked(t, func(c *Config) { c.AckWait, c.Logger = time.Minute, slog.New(slog.NewTextHandler(&said, nil)) })
	cut := func() {
		l.Cut()
		check.Await(t, "the planner has noticed", func() bool { return !p.cfg.Conn.IsConnected() })
	}
	r.atMark.Store(&cut)
	now := r.now()
	tm := &r.submit(now, r.job(now.Add(300*time.Millisecond), nil))[0]
	p.readSoon(t, tm.Shard)
	check.Await(t, "it is too late to publish, which is told again", func() bool { return !departing(p, tm) && said.count("report not taken") > 1 })
	l.Heal()
	if m := r.handedOut(20*time.Second, subjectOf(tm, 2)); m.Attempt != 1 {
		t.Errorf("handed out again as attempt %d", m.Attempt)
	}
	if n := said.count("report not taken"); n > 200 {
		t.Errorf("the report was sent %d times", n)
	}
}

// beforeTheLease is far less than a lease of an hour, and enough for a machine that is busy with other tests.
const beforeTheLease = 2 * time.Minute

// loseHandOvers leaves runs behind whose messages are gone, and the planner that handed them out is dead.
func (r *rig) loseHandOvers(n int) []store.Timer {
	r.t.Helper()
	p := r.planner(nil, nil)
	r.recorder()
	r.owns(p)
	now := r.now()
	jobs := make([]*job.Job, n)
	for i := range jobs {
		jobs[i] = r.job(now, nil)
	}
	timers := r.submit(now, jobs...)
	p.nudge()
	r.areStored(p, 20*time.Second, timers, 1) // else the purge overtakes some
	p.kill()
	s, err := r.js.Stream(r.t.Context(), p.road.Load().runs.Name)
	check.OK(r.t, err)
	check.OK(r.t, s.Purge(r.t.Context()))
	return timers
}

// The fault: more hand-overs are lost than a round of looks asks for. None of them waits for the lease once more.
func TestManyAreLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	timers := r.loseHandOvers(2 * watchLooks)
	// At a lease of an hour each is looked at once, and again only where it was put off for a moment.
	b := r.planner(alone{r.store}, func(c *Config) { c.AckWait = time.Hour })
	r.owns(b)
	r.areOutAgain(beforeTheLease, timers)
}

// The fault: dozens of hand-overs are lost, and NATS is slow to answer. Their messages are looked for many at a time, and what is gone of a round asks once how far
// STATUS is.
func TestManyAreLookedForAtATime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	timers := r.loseHandOvers(watchLooks)
	b, err := New(Config{Store: alone{r.store}, Clock: r.clock, Conn: r.connect(), Logger: quiet, AckWait: time.Hour})
	check.OK(t, err)
	slow := &slowJetStream{JetStream: b.js, together: watchAtOnce, met: make(chan struct{})}
	b.js, b.msgs = slow, slow
	check.OK(t, b.Start(t.Context()))
	t.Cleanup(b.Stop)
	check.Receive(t, "as many looks at a time as may be", slow.met)
	r.areOutAgain(beforeTheLease, timers)
	if n := slow.fills.Load(); n >= int64(len(timers)) {
		t.Errorf("STATUS was asked %d times for %d lost hand-overs", n, len(timers))
	}
}

// slowJetStream answers no look for a message until a number of them have come together.
type slowJetStream struct {
	jetstream.JetStream
	together int64
	looks    atomic.Int64
	met      chan struct{} // closed when they have
	fills    atomic.Int64
}

func (s *slowJetStream) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if name == streams.StatusStream {
		s.fills.Add(1)
	}
	stream, err := s.JetStream.Stream(ctx, name)
	return slowStream{stream, s}, err //nolint:wrapcheck // as it was
}

type slowStream struct {
	jetstream.Stream
	slow *slowJetStream
}

func (s slowStream) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	if s.slow.looks.Add(1) == s.slow.together {
		close(s.slow.met)
	}
	select {
	case <-s.slow.met:
	case <-ctx.Done():
		return nil, ctx.Err() //nolint:wrapcheck // as it was
	}
	return s.Stream.GetLastMsgForSubject(ctx, subject) //nolint:wrapcheck // as it was
}

// said is a log that is counted.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p) //nolint:wrapcheck // never fails
}

func (s *said) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Count(s.text.Bytes(), []byte(what))
}

// The fault: what a planner publishes is held up on its way, until another has found the run without a message and handed it out again; then it is stored after
// all. Its time to be stored is over by then, by the server's own clock, which is what executors go by; the newer hand-over is good.
func TestPublishThatIsHeldUp(t *testing.T) {
	t.Parallel()
	r, l, a := linked(t, nil)
	now := r.now()
	tm := &r.submit(now, r.job(now.Add(300*time.Millisecond), nil))[0]
	a.readSoon(t, tm.Shard)
	l.Hold(proxy.ToServer)
	check.Await(t, "the mark", func() bool {
		row := r.row(tm.TimerKey)
		return row != nil && row.Step == job.StepDispatched
	})
	check.Await(t, "it is sent", func() bool { return !departing(a, tm) && a.window.Unanswered() > 0 })
	b := r.planner(alone{r.store}, quick)
	second := r.handedOut(20*time.Second, subjectOf(tm, 2))
	if r.outs()[subjectOf(tm, 1)] != 0 {
		t.Fatal("the first hand-over was not held up")
	}
	l.Heal()
	first := r.handedOut(10*time.Second, subjectOf(tm, 1))
	s, err := r.js.Stream(t.Context(), b.road.Load().runs.Name)
	check.OK(t, err)
	for _, c := range []struct {
		m    *wirev1.RunMessage
		good bool
	}{{first, false}, {second, true}} {
		var stored *jetstream.RawStreamMsg
		check.Await(t, "it is stored", func() bool {
			stored, err = s.GetLastMsgForSubject(t.Context(), subjectOf(tm, c.m.Dispatch))
			return err == nil
		})
		if good := !stored.Time.After(time.UnixMicro(c.m.PublishBy)); good != c.good {
			t.Errorf("dispatch %d was stored at %s and is good until %s", c.m.Dispatch, stored.Time, time.UnixMicro(c.m.PublishBy))
		}
	}
}

// The fault: the message of a run was taken and acknowledged, and what became of it was never told. The watch lets the run come back; its series went on already,
// when it was handed out.
func TestOutcomeThatIsNeverTold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.planner(nil, quick)
	r.recorder()
	r.owns(p)
	now := r.now()
	series := r.job(now, func(j *job.Job) {
		j.Spec.Schedule = schedule.Schedule{Kind: schedule.Every, Period: time.Hour, Anchor: now}
	})
	tm := &r.submit(now, series)[0]
	p.nudge()
	take := r.pull(p, laneOf(tm))
	check.OK(t, take.fetch())
	check.OK(t, take.msg.DoubleAck(t.Context()))
	next := store.NewTimer(series, schedule.Occurrence{At: now.Add(time.Hour)}, now)
	check.Await(t, "the series goes on", func() bool { return r.row(next.TimerKey) != nil })
	if again := r.handedOut(20*time.Second, subjectOf(tm, 2)); again.Attempt != 1 || uuid.UUID(again.RunId) != tm.RunID {
		t.Errorf("it came back as attempt %d of %x", again.Attempt, again.RunId)
	}
}

// The fault: an executor works on what was cancelled, or on what SQL does not know any more, because the order to stop was lost. Its heartbeats are answered
// with the order.
func TestHeartbeatOfWhatNobodyWantsIsAnswered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.planner(nil, quick)
	r.owns(p)
	now := r.now()
	timers := r.submit(now, r.job(now, nil), r.job(now, nil))
	p.nudge()
	r.areOut(10*time.Second, timers, 1)
	cancelling, gone := &timers[0], &timers[1]
	_, _, err := r.store.ChangeJob(t.Context(), cancelling.Namespace, cancelling.JobID, func(_ *job.Job, rows []store.Timer, _ time.Time) (store.Change, error) {
		rows[0].Step, rows[0].Executor = job.StepCancelling, "x"
		return store.Change{Set: rows[:1]}, nil
	})
	check.OK(t, err)
	r.cancel(gone)
	orders := natstest.Orders(t, r.nc, "x")
	beat := &wirev1.Heartbeat{Executor: "x", Kinds: []string{"k"}, Queues: []string{"_/default"}}
	for i := range timers {
		tm := &timers[i]
		beat.Held = append(beat.Held, &wirev1.Held{RunId: tm.RunID[:], Dispatch: 1, Shard: uint32(tm.Shard), DueAt: tm.DueAt.UnixMicro()}) //nolint:gosec // shards are few
	}
	n := streams.NewNotifier(r.nc, quiet)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	over := time.After(20 * time.Second)
	got := map[uuid.UUID]string{}
	for len(got) < 2 {
		select {
		case c := <-orders:
			got[uuid.UUID(c.RunId)] = c.Reason
		case <-tick.C:
			n.Heartbeat(beat)
		case <-over:
			t.Fatalf("orders: %v", got)
		}
	}
	if got[cancelling.RunID] != "cancelled" || got[gone.RunID] != "refused" {
		t.Errorf("orders: %v", got)
	}
}

// The fault: nobody planned for six hours. Each series gets what its catch-up policy says and nothing more, every occurrence is accounted for, and however many
// runs are owed, no more of them wait for executors at one time than the limit of their lane.
func TestSixHoursOfDowntime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const limit, n = 10, 30
	now := r.now().Truncate(time.Minute)
	begin := now.Add(-6 * time.Hour)
	series := func(policy job.CatchUp) *job.Job {
		return r.job(now, func(j *job.Job) {
			j.Spec = job.Spec{CatchUp: policy, Schedule: schedule.Schedule{Kind: schedule.Every, Period: time.Minute, Anchor: begin}}
		})
	}
	var jobs []*job.Job
	for range n {
		jobs = append(jobs, series(job.CatchUpLatest), series(job.CatchUpNone))
	}
	r.submit(begin, jobs...)
	r.planner(nil, func(c *Config) { c.LaneLimit = limit })
	r.recorder()
	handed := map[uuid.UUID][]time.Time{}
	begun := map[string]bool{}
	told := streams.NewNotifier(r.nc, quiet)
	var most atomic.Int64
	check.Await(t, "the latest of each series", func() bool {
		out := r.outs()
		most.Store(max(most.Load(), int64(len(out)-len(begun))))
		for s := range out {
			if begun[s] {
				continue
			}
			begun[s] = true
			m := r.handedOut(time.Second, s)
			id := uuid.UUID(m.JobId)
			handed[id] = append(handed[id], time.UnixMicro(m.ScheduledAt))
			told.Recorded(&wirev1.Recorded{Rows: []*wirev1.RecordedRow{{RunId: m.RunId, Shard: m.Shard, Dispatch: m.Dispatch, Step: int32(job.StepRunning)}}})
		}
		done := 0
		for i := 0; i < len(jobs); i += 2 {
			if len(handed[jobs[i].ID]) > 0 {
				done++
			}
		}
		return done == n
	})
	if got := most.Load(); got > limit {
		t.Errorf("%d runs waited for executors at one time, want at most %d", got, limit)
	}
	for i, j := range jobs {
		at := handed[j.ID]
		// A minute may begin while the test goes on.
		if len(at) > 2 || (len(at) > 0 && at[0].Before(now.Add(-job.CatchUpGrace-time.Second))) {
			t.Errorf("series %d was handed out for %v", i, at)
		}
		check.Await(t, "every occurrence is accounted for", func() bool {
			skips, err := r.store.ListSkips(t.Context(), j.ID, time.Time{}, 100)
			check.OK(t, err)
			through := begin.Add(-time.Minute)
			for _, s := range slices.Backward(skips) {
				if s.Reason != "missed" {
					continue // a minute that began meanwhile, while the run of the one before was not over
				}
				if !s.NominalAt.Equal(through.Add(time.Minute)) || s.Count != int64(s.ThroughAt.Sub(s.NominalAt)/time.Minute)+1 {
					t.Fatalf("series %d: skip %+v follows %s", i, s, through)
				}
				through = s.ThroughAt
			}
			return !through.Before(now.Add(-2 * time.Minute))
		})
	}
}
