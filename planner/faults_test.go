package planner

import (
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

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
	await(r.t, "the watch looks", func() bool {
		check, ok := ask(p, func() time.Time {
			if fl := p.flights.byRun[t.RunID]; fl != nil {
				return fl.check
			}
			return time.Time{}
		})
		if ok && !check.IsZero() && !check.Equal(last) {
			if !last.IsZero() {
				times--
			}
			last = check
		}
		return times <= 0
	})
}

// once fails unless each run was handed out once, as dispatch 1, and its message is there.
func (r *rig) once(p *Planner, timers []store.Timer) {
	r.t.Helper()
	for i := range timers {
		tm := &timers[i]
		if row := r.row(tm.TimerKey); row == nil || row.Step != job.StepDispatched || row.Dispatch != 1 {
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
	for i := range timers {
		r.handedOut(10*time.Second, subjectOf(&timers[i], 1))
	}
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
	r := newRig(t)
	l := newLink(t, r.nats.Addr())
	nc := l.connect(t)
	p := r.planner(nil, func(c *Config) { quick(c); c.Conn = nc })
	r.recorder()
	r.owns(p)
	now := r.now()
	timers := r.submit(now, r.job(now.Add(time.Second), nil), r.job(now.Add(1001*time.Millisecond), nil))
	p.readSoon(t, timers[0].Shard)
	// Else its word on the streams grows old before their time, and nothing is handed out.
	await(t, "a fresh word on the streams", func() bool { return time.Since(p.road.Load().heardAt) < 200*time.Millisecond })
	l.back.Lock()
	for i := range timers {
		r.handedOut(10*time.Second, subjectOf(&timers[i], 1))
	}
	l.cut()
	l.back.Unlock()
	for i := range timers {
		r.looked(p, &timers[i], 2)
	}
	r.once(p, timers)
}

// The fault: what a planner publishes is held up on its way, until another has found the run without a message and handed it out again; then it is stored after
// all. Its time to be stored is over by then, by the server's own clock, which is what executors go by; the newer hand-over is good.
func TestPublishThatIsHeldUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := newLink(t, r.nats.Addr())
	nc := l.connect(t)
	a := r.planner(nil, func(c *Config) { c.Conn = nc })
	r.recorder()
	r.owns(a)
	now := r.now()
	tm := &r.submit(now, r.job(now.Add(300*time.Millisecond), nil))[0]
	a.readSoon(t, tm.Shard)
	l.there.Lock()
	held := true
	defer func() {
		if held {
			l.there.Unlock()
		}
	}()
	await(t, "the mark", func() bool {
		row := r.row(tm.TimerKey)
		return row != nil && row.Step == job.StepDispatched
	})
	await(t, "it is sent", func() bool { return !departing(a, tm) && a.window.Unanswered() > 0 })
	b := r.planner(alone{r.store}, quick)
	second := r.handedOut(20*time.Second, subjectOf(tm, 2))
	if r.outs()[subjectOf(tm, 1)] != 0 {
		t.Fatal("the first hand-over was not held up")
	}
	held = false
	l.there.Unlock()
	first := r.handedOut(10*time.Second, subjectOf(tm, 1))
	s, err := r.js.Stream(t.Context(), b.road.Load().runs.Name)
	check(t, err)
	for _, c := range []struct {
		m    *wirev1.RunMessage
		good bool
	}{{first, false}, {second, true}} {
		var stored *jetstream.RawStreamMsg
		await(t, "it is stored", func() bool {
			stored, err = s.GetLastMsgForSubject(t.Context(), subjectOf(tm, c.m.Dispatch))
			return err == nil
		})
		if good := !stored.Time.After(time.UnixMicro(c.m.PublishBy)); good != c.good {
			t.Errorf("dispatch %d was stored at %s and is good until %s", c.m.Dispatch, stored.Time, time.UnixMicro(c.m.PublishBy))
		}
	}
}

// The fault: RUNS is full. What it refuses comes back and is handed out when executors have made room: each run is delivered once, and none is lost.
func TestStreamThatIsFullAndDrains(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.planner(nil, func(c *Config) { c.Limits = streams.Limits{RunsBytes: 64 << 10} })
	r.recorder()
	r.owns(p)
	const n = 40
	now := r.now()
	jobs := make([]*job.Job, n)
	for i := range jobs {
		jobs[i] = r.job(now, func(j *job.Job) { j.Payload = make([]byte, 4<<10) })
	}
	timers := r.submit(now, jobs...)
	p.nudge()
	await(t, "all were tried", func() bool { return len(r.outs()) >= n })
	got := map[uuid.UUID]int64{}
	take := r.pull(p, laneOf(&timers[0]))
	again := 0
	for len(got) < n {
		if err := take.fetch(); err != nil {
			t.Fatalf("%d of %d runs were delivered: %v", len(got), n, err)
		}
		m := r.handedOut(time.Second, take.subject)
		run := uuid.UUID(m.RunId)
		if before, twice := got[run]; twice {
			t.Errorf("run %s was delivered as dispatch %d and %d", run, before, m.Dispatch)
		}
		got[run] = m.Dispatch
		if m.Dispatch > 1 {
			again++
		}
		check(t, take.msg.Ack())
	}
	if again == 0 {
		t.Error("nothing was refused: nothing was tried")
	}
	if row := r.row(timers[0].TimerKey); row == nil && got[timers[0].RunID] == 1 {
		t.Error("a run that was delivered at once has lost its row")
	}
}

// The fault: RUNS is deleted, or NATS comes back without its data, or with data of an earlier day. What was handed out and is not there any more is handed out
// again, in a stream of a new generation where the old is gone.
func TestStreamsThatAreLost(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"deleted", "empty data", "older data"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			folder, backup := t.TempDir(), t.TempDir()
			r := newRigIn(t, folder, true)
			p := r.planner(nil, quick)
			r.recorder()
			r.owns(p)
			if fault == "older data" {
				check(t, os.CopyFS(backup, os.DirFS(folder)))
			}
			now := r.now()
			timers := r.submit(now, r.job(now, nil), r.job(now, nil))
			p.nudge()
			for i := range timers {
				r.handedOut(10*time.Second, subjectOf(&timers[i], 1))
				await(t, "its message is stored", func() bool { return r.stored(p, &timers[i], 1) })
			}
			await(t, "the planner has seen how far RUNS is", func() bool { return p.road.Load().lastSeq >= 2 })
			const generation = 2
			if fault == "deleted" {
				check(t, r.js.DeleteStream(t.Context(), p.road.Load().runs.Name))
			} else {
				r.nats.Stop()
				if fault == "empty data" {
					backup = t.TempDir()
				}
				var err error
				r.nats, err = streams.StartEmbedded(streams.EmbeddedOptions{Dir: backup, Listen: r.addr, Logger: quiet})
				check(t, err)
				await(t, "the streams are made anew", func() bool { return p.road.Load().runs.Generation == generation })
				if fault == "empty data" {
					r.recorder()
				}
			}
			for i := range timers {
				r.handedOut(25*time.Second, subjectOf(&timers[i], 2))
				await(t, "its message is stored", func() bool { return r.stored(p, &timers[i], 2) })
			}
			if got := p.road.Load().runs.Generation; got != generation {
				t.Errorf("generation %d, want %d", got, generation)
			}
			for s, n := range r.outs() {
				if n != 1 {
					t.Errorf("%s was published %d times", s, n)
				}
			}
		})
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
	check(t, take.fetch())
	check(t, take.msg.DoubleAck(t.Context()))
	next := store.NewTimer(series, schedule.Occurrence{At: now.Add(time.Hour)}, now)
	await(t, "the series goes on", func() bool { return r.row(next.TimerKey) != nil })
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
	for i := range timers {
		r.handedOut(10*time.Second, subjectOf(&timers[i], 1))
	}
	cancelling, gone := &timers[0], &timers[1]
	_, _, err := r.store.ChangeJob(t.Context(), cancelling.Namespace, cancelling.JobID, func(_ *job.Job, rows []store.Timer, _ time.Time) (store.Change, error) {
		rows[0].Step, rows[0].Executor = job.StepCancelling, "x"
		return store.Change{Set: rows[:1]}, nil
	})
	check(t, err)
	r.cancel(gone)
	r.tell(gone, 1, job.StepCancelled)
	orders := make(chan *wirev1.Control, 100)
	subs, err := streams.OnControl(r.nc, "x", func(c *wirev1.Control) { orders <- c })
	check(t, err)
	defer func() {
		for _, s := range subs {
			_ = s.Unsubscribe() // the connection is closed next
		}
	}()
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
	await(t, "the latest of each series", func() bool {
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
		await(t, "every occurrence is accounted for", func() bool {
			skips, err := r.store.ListSkips(t.Context(), j.ID, time.Time{}, 100)
			check(t, err)
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

// The fault: recorders are away and STATUS fills up. At half the planner hands nothing out any more, so that what runs can report; when it drains, it goes on.
func TestStatusThatFillsUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.planner(nil, func(c *Config) { c.Limits = streams.Limits{StatusBytes: 1 << 20} })
	r.owns(p)
	for range 6 {
		_, err := r.js.Publish(t.Context(), streams.StatusSubject("x"), make([]byte, 100<<10))
		check(t, err)
	}
	await(t, "the road is closed", func() bool { return !p.road.Load().open })
	now := r.now()
	tm := &r.submit(now, r.job(now, nil))[0]
	p.readSoon(t, tm.Shard)
	p.nudge()
	await(t, "the row is ready", func() bool {
		ready, _ := ask(p, func() bool {
			for _, l := range p.board.lanes {
				if l.count == 1 {
					return true
				}
			}
			return false
		})
		return ready
	})
	if row := r.row(tm.TimerKey); row == nil || row.Step != job.StepDue || len(r.outs()) != 0 {
		t.Errorf("with STATUS half full the run is %+v", row)
	}
	c, err := r.js.CreateOrUpdateConsumer(t.Context(), streams.StatusStream, jetstream.ConsumerConfig{Durable: streams.RecorderConsumer, AckPolicy: jetstream.AckExplicitPolicy})
	check(t, err)
	batch, err := c.Fetch(6)
	check(t, err)
	for m := range batch.Messages() {
		check(t, m.DoubleAck(t.Context()))
	}
	r.handedOut(10*time.Second, subjectOf(tm, 1))
}
