package planner

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/chaos/proxy"
	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/streams"
)

// cancel ends a run in SQL and tells that its first hand-over is over, as a user's cancel does.
func (r *rig) cancel(t *store.Timer) {
	r.t.Helper()
	r.cancelSilently(t)
	r.tell(t, 1, job.StepCancelled)
}

// cancelSilently ends a run in SQL and tells nobody.
func (r *rig) cancelSilently(t *store.Timer) {
	r.t.Helper()
	_, _, err := r.store.ChangeJob(r.t.Context(), t.Namespace, t.JobID, func(_ *job.Job, timers []store.Timer, now time.Time) (store.Change, error) {
		row := timers[0]
		return store.Change{Remove: []store.TimerKey{row.TimerKey}, Runs: []store.RunRow{row.History(job.StepCancelled, true, "cancelled", now)}}, nil
	})
	check.OK(r.t, err)
}

// pause holds a job in SQL, where what was handed out goes on, and asks for the first hand-over of its run to be taken back.
func (r *rig) pause(t *store.Timer) (taken <-chan struct{}) {
	r.t.Helper()
	_, _, err := r.store.ChangeJob(r.t.Context(), t.Namespace, t.JobID, func(j *job.Job, _ []store.Timer, now time.Time) (store.Change, error) {
		held := *j
		held.State, held.Version, held.Pause = job.Paused, j.Version+1, &job.Pause{By: "test", At: now}
		return store.Change{Job: &held}, nil
	})
	check.OK(r.t, err)
	taken, forget := streams.NewNotifier(r.nc, quiet).Ask(recorded(t, 1, job.StepWaiting))
	r.t.Cleanup(forget)
	check.OK(r.t, r.nc.Flush())
	return taken
}

// tell passes the word on a hand-over, as whoever changed SQL does.
func (r *rig) tell(t *store.Timer, dispatch int64, step job.Step) {
	r.t.Helper()
	streams.NewNotifier(r.nc, quiet).Recorded(recorded(t, dispatch, step))
	check.OK(r.t, r.nc.Flush())
}

// waits waits until the run of a paused job is a row that waits, and nothing else is left of it.
func (r *rig) waits(t *store.Timer) {
	r.t.Helper()
	check.Await(r.t, "the run of a paused job waits", func() bool {
		j, err := r.store.Job(r.t.Context(), t.Namespace, t.JobID)
		check.OK(r.t, err)
		rows, err := r.store.Timers(r.t.Context(), []*job.Job{j})
		check.OK(r.t, err)
		got := rows[t.JobID]
		if len(got) != 1 || got[0].RunID != t.RunID {
			r.t.Fatalf("the paused job has %+v", got)
		}
		return got[0].Step == job.StepWaiting
	})
}

// stored tells whether the message of a hand-over is in RUNS.
func (r *rig) stored(p *Planner, t *store.Timer, dispatch int64) bool {
	r.t.Helper()
	_, found, err := streams.FindRun(r.t.Context(), r.js, p.road.Load().runs, subjectOf(t, dispatch))
	check.OK(r.t, err)
	return found
}

// departing tells whether a marked run has not been sent yet.
func departing(p *Planner, t *store.Timer) bool {
	p.publisher.mu.Lock()
	defer p.publisher.mu.Unlock()
	for _, d := range p.publisher.heap {
		if d.row.RunID == t.RunID {
			return true
		}
	}
	return false
}

// The fault: a run is cancelled, or its job paused, after it was marked and before its message is sent. It is not sent at all; what was paused comes back and
// waits.
func TestWithdrawnBetweenMarkAndPublish(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"cancelled", "paused"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			p := r.planner(nil, nil)
			r.recorder()
			r.owns(p)
			// A mark takes along what is due up to 250 ms later: those are marked and wait for their time. On a machine that is slower than that, again.
			for round := 0; ; round++ {
				now := r.now()
				at := now.Add(300 * time.Millisecond)
				late := at.Add(200 * time.Millisecond)
				timers := r.submit(now, r.job(at, nil), r.job(late, nil), r.job(late, nil), r.job(late.Add(time.Millisecond), nil))
				first, taken, last := &timers[0], timers[1:3], &timers[3]
				p.readSoon(t, first.Shard)
				r.handedOut(10*time.Second, subjectOf(first, 1))
				inTime := true
				for i := range taken {
					inTime = inTime && departing(p, &taken[i])
				}
				var answers []<-chan struct{}
				if inTime {
					for i := range taken {
						if name == "cancelled" {
							r.cancel(&taken[i])
						} else {
							answers = append(answers, r.pause(&taken[i]))
						}
					}
					// The word comes to the planner by its own connection; a word on the first, after it, shows that it was heard.
					r.tell(first, 1, job.StepSucceeded)
					awaitIn(t, p, "the word was heard", func() bool { return p.flights.byRun[first.RunID] == nil })
					inTime = r.now().Before(late)
				}
				r.handedOut(10*time.Second, subjectOf(last, 1)) // sent in the order of their times: by now the others would have been
				if !inTime && round < 40 {
					continue
				}
				if !inTime {
					t.Fatal("never quick enough to come between mark and publish")
				}
				for i := range taken {
					if n := r.outs()[subjectOf(&taken[i], 1)]; n != 0 {
						t.Errorf("run %d was sent", i)
					}
					if name == "paused" {
						check.Receive(t, "the answer to the pause", answers[i])
						r.waits(&taken[i])
					} else if row := r.row(taken[i].TimerKey); row != nil {
						t.Errorf("run %d was cancelled and is %+v", i, row)
					}
				}
				return
			}
		})
	}
}

// readSoon makes the planner read what is due soon, though its forward cursor may have passed it.
func (p *Planner) readSoon(t testing.TB, shard int32) {
	t.Helper()
	now := p.clock.Now()
	_, err := p.readPages([]store.ShardCursor{{Shard: shard, From: store.TimerKey{Shard: shard, DueAt: now}}}, now.Add(p.cfg.Horizon))
	check.OK(t, err)
}

// The fault: the word that a run is cancelled, or its job paused, overtakes the answer to the mark of that run. It is not sent; what was paused comes back and
// waits; what nobody spoke of is sent.
func TestWithdrawnWhileItsMarkIsUnderWay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var held atomic.Bool
	hold := make(chan struct{})
	p := r.planner(&faulty{r.store, func(_ context.Context, _ store.Mark, do func() ([]store.MarkResult, error)) ([]store.MarkResult, error) {
		results, err := do()
		if held.CompareAndSwap(false, true) {
			<-hold
		}
		return results, err
	}}, nil)
	r.recorder()
	r.owns(p)
	now := r.now()
	timers := r.submit(now, r.job(now, nil), r.job(now, nil), r.job(now, nil))
	cancelled, paused, other := &timers[0], &timers[1], &timers[2]
	p.nudge()
	check.Await(t, "the mark", held.Load)
	for i := range timers {
		if row := r.row(timers[i].TimerKey); !markedOnce(row) {
			t.Fatalf("run %d is %+v, want all three in one mark", i, row)
		}
	}
	r.cancel(cancelled)
	taken := r.pause(paused)
	awaitIn(t, p, "the word was heard", func() bool { return len(p.withdrawn) == 2 })
	close(hold)
	r.handedOut(10*time.Second, subjectOf(other, 1))
	check.Receive(t, "the answer to the pause", taken)
	r.waits(paused)
	for _, tm := range []*store.Timer{cancelled, paused} {
		if n := r.outs()[subjectOf(tm, 1)]; n != 0 {
			t.Errorf("%s was sent", tm.RunID)
		}
	}
	if row := r.row(cancelled.TimerKey); row != nil {
		t.Errorf("the cancelled run is %+v", row)
	}
	left, _ := ask(p, func() [3]int { return [3]int{len(p.withdrawn), p.inLanes(queued), len(p.flights.byRun)} })
	if left != [3]int{0, 1, 1} {
		t.Errorf("withdrawn, queued and in flight are %v, want none, one and one", left)
	}
}

// The fault: a run is cancelled, or its job paused, when its message is in the stream and no executor has got it. The message is taken out; what was paused
// comes back and waits. What an executor has got is left to it by a pause.
func TestWithdrawnBeforeItsDelivery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.planner(nil, nil)
	r.recorder()
	r.owns(p)
	now := r.now()
	jobs := []*job.Job{r.job(now, nil), r.job(now.Add(time.Millisecond), nil), r.job(now.Add(2*time.Millisecond), nil)}
	got := r.pull(p, laneOfJob(jobs[0])) // else it could not be told that nothing was delivered
	timers := r.submit(now, jobs...)
	p.nudge()
	r.areStored(p, 10*time.Second, timers, 1)
	check.OK(t, got.fetch())
	delivered := &timers[0]
	if got.subject != subjectOf(delivered, 1) {
		for i := range timers {
			if got.subject == subjectOf(&timers[i], 1) {
				timers[0], timers[i] = timers[i], timers[0]
			}
		}
	}
	cancelled, paused := &timers[1], &timers[2]
	left, taken := r.pause(delivered), r.pause(paused)
	r.cancel(cancelled)
	check.Receive(t, "the answer to the pause of what an executor has got", left)
	check.Receive(t, "the answer to the pause", taken)
	for _, tm := range []*store.Timer{cancelled, paused} {
		check.Await(t, "its message is gone", func() bool { return !r.stored(p, tm, 1) })
	}
	r.waits(paused)
	if !r.stored(p, delivered, 1) {
		t.Error("the message that an executor has got was taken out")
	}
	if row := r.row(delivered.TimerKey); !markedOnce(row) {
		t.Errorf("what an executor has got is %+v", row)
	}
	for i := range timers {
		if n := r.outs()[subjectOf(&timers[i], 1)]; n != 1 {
			t.Errorf("run %d was sent %d times", i, n)
		}
	}
}

// onItsWay hands one run out, and returns its message as if the stream had not stored it yet.
func onItsWay(t *testing.T) (*rig, *Planner, *store.Timer, *jetstream.RawStreamMsg) {
	t.Helper()
	r := newRig(t)
	p := r.planner(nil, nil)
	r.recorder()
	r.owns(p)
	now := r.now()
	j := r.job(now, nil)
	r.pull(p, laneOfJob(j))
	tm := &r.submit(now, j)[0]
	p.nudge()
	r.areStored(p, 10*time.Second, []store.Timer{*tm}, 1)
	awaitIn(t, p, "that is confirmed", func() bool { return p.flights.byRun[tm.RunID].stored.CompareAndSwap(true, false) })
	s, err := r.js.Stream(t.Context(), p.road.Load().runs.Name)
	check.OK(t, err)
	m, err := s.GetLastMsgForSubject(t.Context(), subjectOf(tm, 1))
	check.OK(t, err)
	check.OK(t, s.DeleteMsg(t.Context(), m.Sequence))
	return r, p, tm, m
}

// The fault: a job is paused while the message of its run is on its way to a stream that is slow to store it. It is taken out when it is there, and nobody is told
// so before.
func TestPausedBeforeItsMessageIsStored(t *testing.T) {
	t.Parallel()
	r, p, tm, m := onItsWay(t)
	looks := make(chan struct{}, 1000)
	sub, err := r.nc.Subscribe("$JS.API.STREAM.MSG.GET.>", func(*nats.Msg) { looks <- struct{}{} })
	check.OK(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() }) // the connection may be closed
	taken := r.pause(tm)
	for range 3 {
		check.Receive(t, "a look for the message", looks)
	}
	select {
	case <-taken:
		t.Error("the pause was answered before the message was there")
	default:
	}
	_, err = r.js.Publish(t.Context(), m.Subject, m.Data)
	check.OK(t, err)
	check.Receive(t, "the answer to the pause", taken)
	r.waits(tm)
	if r.stored(p, tm, 1) {
		t.Error("its message is there")
	}
}

// The fault: the message never comes. The pause is answered when it is too late for that, long before the run is found lost.
func TestPausedWhenItsMessageNeverComes(t *testing.T) {
	t.Parallel()
	r, p, tm, _ := onItsWay(t)
	check.Receive(t, "the answer to the pause", r.pause(tm))
	if by, _ := ask(p, func() time.Time { return p.flights.byRun[tm.RunID].publishBy }); !p.road.Load().serverTime.After(by) {
		t.Errorf("the pause was answered before %s, when the message could still come", by)
	}
	if row := r.row(tm.TimerKey); !markedOnce(row) {
		t.Errorf("its row is %+v", row)
	}
}

// The fault: a job is paused, and JetStream does not tell whether an executor got the message of its run before it was taken out, here as the lane has no consumer.
// The run is left alone for a lease, in which an executor would speak of it; nobody does, and it comes back and waits.
func TestPausedInTheMomentOfItsDelivery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.planner(nil, func(c *Config) { c.AckWait = 8 * time.Second })
	r.recorder()
	r.owns(p)
	now := r.now()
	tm := &r.submit(now, r.job(now, nil))[0]
	p.nudge()
	r.areStored(p, 10*time.Second, []store.Timer{*tm}, 1)
	begun := time.Now()
	check.Receive(t, "the answer to the pause", r.pause(tm))
	if r.stored(p, tm, 1) {
		t.Error("its message is there")
	}
	awaitIn(t, p, "a lease for whoever may have got it", func() bool {
		fl := p.flights.byRun[tm.RunID]
		return fl != nil && !fl.silentUntil.Before(begun.Add(p.cfg.AckWait)) && fl.check.Equal(fl.silentUntil)
	})
	p.do(func() { // a look before that changes nothing
		if fl := p.flights.byRun[tm.RunID]; fl != nil {
			p.flights.postpone(fl, time.Now())
		}
	})
	p.lookSoon()
	awaitIn(t, p, "the look", func() bool { fl := p.flights.byRun[tm.RunID]; return fl == nil || !fl.check.Before(fl.silentUntil) })
	if row := r.row(tm.TimerKey); !markedOnce(row) {
		t.Errorf("its row is %+v", row)
	}
	r.waits(tm)
	if wait := time.Since(begun); wait < p.cfg.AckWait {
		t.Errorf("it came back after %s, before the lease was over", wait)
	}
}

// The fault: a run is cancelled when its message is held up on the way from the planner to NATS. Whoever cancels it is told so only when the message has come and is
// taken out.
func TestCancelWhileThePublishIsHeldUp(t *testing.T) {
	t.Parallel()
	r, l, p := linked(t, nil)
	hold := func() { l.Hold(proxy.ToServer) }
	r.atMark.Store(&hold)
	now := r.now()
	tm := &r.submit(now, r.job(now.Add(300*time.Millisecond), nil))[0]
	p.readSoon(t, tm.Shard)
	check.Await(t, "it is sent", func() bool {
		row := r.row(tm.TimerKey)
		return markedOnce(row) && !departing(p, tm) && p.window.Unanswered() > 0
	})
	row := r.row(tm.TimerKey)
	r.cancelSilently(tm)
	looks := make(chan struct{}, 1000)
	sub, err := r.nc.Subscribe("$JS.API.STREAM.MSG.GET.>", func(*nats.Msg) { looks <- struct{}{} })
	check.OK(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() }) // the connection may be closed
	done := make(chan error, 1)
	go func() {
		done <- streams.NewWithdrawer(r.js, streams.NewNotifier(r.nc, quiet), behind{r.clock}).Withdraw(t.Context(), *row, "cancelled")
	}()
	check.Receive(t, "a look for the message", looks)
	select {
	case err := <-done:
		t.Fatalf("the cancel was done while the message was held up: %v", err)
	default:
	}
	l.Heal()
	check.OK(t, check.Receive(t, "the end of the cancel", done))
	if r.stored(p, tm, 1) {
		t.Error("its message is there")
	}
}

// behind is a clock that leaves a busy machine time enough.
type behind struct{ Clock }

func (b behind) Now() time.Time { return b.Clock.Now().Add(-10 * time.Second) }

// still is a clock that stands.
type still time.Time

func (s still) Now() time.Time { return time.Time(s) }

// Whoever cancels a run that is not recorded yet, though its work is done and its message gone, is told so by the planner that handed it out, and need not wait until
// no message could come any more.
func TestCancelOfWhatIsDoneIsAnswered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.planner(nil, nil)
	r.recorder()
	r.owns(p)
	now := r.now()
	tm := &r.submit(now, r.job(now, nil))[0]
	p.nudge()
	r.areStored(p, 10*time.Second, []store.Timer{*tm}, 1)
	awaitIn(t, p, "the answer to its publish", func() bool { return p.flights.byRun[tm.RunID].stored.Load() })
	row := r.row(tm.TimerKey)
	s, err := r.js.Stream(t.Context(), p.road.Load().runs.Name)
	check.OK(t, err)
	check.OK(t, s.Purge(t.Context())) // as when it was acknowledged
	r.cancelSilently(tm)
	check.OK(t, streams.NewWithdrawer(r.js, streams.NewNotifier(r.nc, quiet), still(row.DispatchedAt)).Withdraw(t.Context(), *row, "cancelled"))
}

// The watch takes out the message of a run that was cancelled while nobody could be told: else an executor could get it at any later time.
func TestCancelThatNobodyWasToldOf(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.planner(nil, quick)
	r.owns(p)
	now := r.now()
	timers := r.submit(now, r.job(now, nil))
	p.nudge()
	r.areStored(p, 10*time.Second, timers, 1)
	r.cancelSilently(&timers[0])
	check.Await(t, "its message is gone", func() bool { return !r.stored(p, &timers[0], 1) })
}

// puller plays an executor's consumer of a lane.
type puller struct {
	c       jetstream.Consumer
	subject string // of the last message fetched
	msg     jetstream.Msg
}

func (r *rig) pull(p *Planner, l streams.Lane) *puller {
	r.t.Helper()
	c, err := r.js.CreateOrUpdateConsumer(r.t.Context(), p.road.Load().runs.Name, jetstream.ConsumerConfig{
		Durable: l.Namespace + "~" + l.Queue + "~" + l.Priority.String() + "~1", FilterSubject: "run." + l.Namespace + "." + l.Queue + "." + l.Priority.String() + ".>",
		AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1, AckWait: time.Hour,
	})
	check.OK(r.t, err)
	return &puller{c: c}
}

func (u *puller) fetch() (err error) {
	if u.msg, err = u.c.Next(jetstream.FetchMaxWait(10 * time.Second)); err == nil {
		u.subject = u.msg.Subject()
	}
	return err
}
