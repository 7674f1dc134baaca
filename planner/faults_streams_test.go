package planner

import (
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/internal/natstest"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/streams"
)

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
	check.Await(t, "all were tried", func() bool { return len(r.outs()) >= n })
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
		check.OK(t, take.msg.Ack())
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
				check.OK(t, os.CopyFS(backup, os.DirFS(folder)))
			}
			now := r.now()
			timers := r.submit(now, r.job(now, nil), r.job(now, nil))
			p.nudge()
			r.areStored(p, 10*time.Second, timers, 1)
			check.Await(t, "the planner has seen how far RUNS is", func() bool { return p.road.Load().lastSeq >= 2 })
			const generation = 2
			if fault == "deleted" {
				check.OK(t, r.js.DeleteStream(t.Context(), p.road.Load().runs.Name))
			} else {
				r.nats.Stop()
				if fault == "empty data" {
					backup = t.TempDir()
				}
				r.nats = natstest.Start(t, streams.EmbeddedOptions{Dir: backup, Listen: r.addr})
				check.Await(t, "the streams are made anew", func() bool { return p.road.Load().runs.Generation == generation })
				if fault == "empty data" {
					r.recorder()
				}
			}
			r.areStored(p, 25*time.Second, timers, 2)
			if got := p.road.Load().runs.Generation; got != generation {
				t.Errorf("generation %d, want %d", got, generation)
			}
			r.eachOnce()
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
		check.OK(t, err)
	}
	check.Await(t, "the road is closed", func() bool { return !p.road.Load().open })
	now := r.now()
	tm := &r.submit(now, r.job(now, nil))[0]
	p.readSoon(t, tm.Shard)
	p.nudge()
	awaitIn(t, p, "the row is ready", func() bool { return p.inLanes(func(l *lane) int { return l.count }) == 1 })
	if row := r.row(tm.TimerKey); row == nil || row.Step != job.StepDue || len(r.outs()) != 0 {
		t.Errorf("with STATUS half full the run is %+v", row)
	}
	c, err := r.js.CreateOrUpdateConsumer(t.Context(), streams.StatusStream, jetstream.ConsumerConfig{Durable: streams.RecorderConsumer, AckPolicy: jetstream.AckExplicitPolicy})
	check.OK(t, err)
	batch, err := c.Fetch(6)
	check.OK(t, err)
	for m := range batch.Messages() {
		check.OK(t, m.DoubleAck(t.Context()))
	}
	r.handedOut(10*time.Second, subjectOf(tm, 1))
}
