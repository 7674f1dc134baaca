package streams

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

var laneA = Lane{Namespace: job.SharedNamespace, Queue: "q", Priority: job.Normal}

func (r *rig) names() []string {
	r.t.Helper()
	var out []string
	l := r.js.StreamNames(r.t.Context())
	for n := range l.Name() {
		out = append(out, n)
	}
	check.OK(r.t, l.Err())
	return out
}

// runsIs fails unless there is exactly one RUNS, the given one, and it is found without SQL.
func (r *rig) runsIs(want Runs) {
	r.t.Helper()
	var got []string
	for _, n := range r.names() {
		if _, ours := generationOf(n); ours {
			got = append(got, n)
		}
	}
	if d := cmp.Diff([]string{want.Name}, got); d != "" {
		r.t.Errorf("RUNS (-want +got):\n%s", d)
	}
	found, err := Discover(r.t.Context(), r.js)
	check.OK(r.t, err)
	if found != want || r.reg.current().Generation != want.Generation {
		r.t.Errorf("discovered %v, SQL says %v, want %v", found, r.reg.current(), want)
	}
}

func TestEnsureByEightAtOnce(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"nothing", "gone", "rolled back", "foreign"} {
		t.Run(before, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			first := int64(1)
			switch before {
			case "gone":
				runs := r.ensure()
				check.OK(t, r.js.DeleteStream(t.Context(), runs.Name))
				first = 2
			case "rolled back":
				r.ensure()
				r.reg.set(func(m *memory) { m.stream.LastSeq = 1000 })
				first = 2
			case "foreign":
				r.ensure()
				r.reg = newMemory()
			}
			var wg sync.WaitGroup
			got := make([]Runs, 8)
			for i := range got {
				nc := r.connect()
				wg.Go(func() {
					var err error
					if got[i], err = Ensure(t.Context(), jsOf(t, nc), r.reg, Limits{}, quiet); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			last := r.reg.current().Generation
			if last < first {
				t.Errorf("generation %d, want at least %d", last, first)
			}
			r.runsIs(Runs{runsName(last), last})
			r.publish(laneA)
			again := r.ensure()
			if again.Generation != last || r.count(again.Name) != 1 {
				t.Errorf("ensured again it is %v with %d messages", again, r.count(again.Name))
			}
		})
	}
}

// Somebody who counted a generation and was held up must not delete, or be content with less than, the one that was counted after it.
func TestEnsureByOneWhoIsHeldUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	slow := &heldUp{memory: r.reg, overtake: func() {
		// RUNS-1 is counted and not made: who looks now counts on.
		runs := r.ensure()
		if runs.Generation != 2 {
			t.Errorf("the quick one made %v", runs)
		}
		r.publish(laneA)
	}}
	runs, err := Ensure(t.Context(), r.js, slow, Limits{}, quiet)
	check.OK(t, err)
	r.runsIs(Runs{"RUNS-2", 2})
	if runs.Generation != 2 || r.count("RUNS-2") != 1 {
		t.Errorf("the slow one has %v; %d messages are left", runs, r.count("RUNS-2"))
	}
}

type heldUp struct {
	*memory
	overtake func()
	once     sync.Once
}

func (h *heldUp) NextGeneration(ctx context.Context, name string, from int64) (s store.Stream, err error) {
	s, err = h.memory.NextGeneration(ctx, name, from)
	h.once.Do(h.overtake)
	return s, err
}

func TestChangedLimitsAreApplied(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	r.publish(laneA)
	l := Limits{RunsBytes: 5 << 20, StatusBytes: 6 << 20, SubmitBytes: 7 << 20, LiveBytes: 8 << 20}
	again, err := Ensure(t.Context(), r.js, r.reg, l, quiet)
	check.OK(t, err)
	if again != runs {
		t.Errorf("RUNS was %v and is %v", runs, again)
	}
	for name, want := range map[string]int64{runs.Name: 5 << 20, StatusStream: 6 << 20, SubmitStream: 7 << 20, LiveStream: 8 << 20} {
		s, err := r.js.Stream(t.Context(), name)
		check.OK(t, err)
		if got := s.CachedInfo().Config.MaxBytes; got != want {
			t.Errorf("%s: %d bytes, want %d", name, got, want)
		}
	}
	if n := r.count(runs.Name); n != 1 {
		t.Errorf("%d messages are left of one", n)
	}
}

// Streams that another store left hold what this store never had: also RUNS of the very generation that this store makes next, or of a higher one.
func TestStreamsOfAnotherStore(t *testing.T) {
	t.Parallel()
	for name, generations := range map[string]int{"the same generation": 1, "a higher one": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			for range generations {
				runs := r.ensure()
				r.publish(laneA)
				if runs.Generation < int64(generations) {
					check.OK(t, r.js.DeleteStream(t.Context(), runs.Name))
				}
			}
			for _, s := range []string{StatusSubject("x"), "enqueue.x", LiveSubject("x", uuid.New()), DeadSubject("status", "")} {
				_, err := r.js.Publish(t.Context(), s, nil)
				check.OK(t, err)
			}
			r.reg = newMemory()
			runs := r.ensure()
			r.runsIs(Runs{"RUNS-1", 1})
			for _, s := range []string{runs.Name, StatusStream, SubmitStream, LiveStream, DeadStream} {
				if n := r.count(s); n != 0 {
					t.Errorf("%s still has %d messages of another store", s, n)
				}
			}
		})
	}
}

func TestRunsThatIsNotWhatSQLKnows(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(r *rig, runs Runs){
		"missing":     func(r *rig, runs Runs) { check.OK(r.t, r.js.DeleteStream(r.t.Context(), runs.Name)) },
		"rolled back": func(r *rig, _ Runs) { r.reg.set(func(m *memory) { m.stream.LastSeq = 2 }) },
		"of another store": func(r *rig, _ Runs) {
			r.reg.set(func(m *memory) { m.cluster.StoreID = uuid.New() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			runs := r.ensure()
			r.publish(laneA)
			r.reg.set(func(m *memory) { m.stream.LastSeq = 1 })
			if again := r.ensure(); again != runs || r.count(runs.Name) != 1 {
				t.Fatalf("with nothing spoilt, %v became %v", runs, again)
			}
			spoil(r, runs)
			next := r.ensure()
			if next.Generation != runs.Generation+1 {
				t.Errorf("%v became %v", runs, next)
			}
			r.runsIs(next)
			if n := r.count(next.Name); n != 0 {
				t.Errorf("the new one has %d messages", n)
			}
		})
	}
}

// A database that was restored from a backup knows a lower generation than the stream has.
func TestDatabaseThatWentBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for range 3 {
		runs := r.ensure()
		check.OK(t, r.js.DeleteStream(t.Context(), runs.Name))
	}
	r.ensure()
	r.reg.set(func(m *memory) { m.stream.Generation = 2 })
	r.runsIs(r.ensure())
}

func TestDiscoverNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if runs, err := Discover(t.Context(), r.js); !errors.Is(err, ErrNoRuns) {
		t.Errorf("got %v, %v", runs, err)
	}
	if _, err := PollRuns(t.Context(), r.js, Runs{"RUNS-1", 1}); !errors.Is(err, jetstream.ErrStreamNotFound) || !Gone(err) {
		t.Errorf("got %v", err)
	}
}

func TestFindAndDeleteRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.ensure()
	r.publish(laneA)
	id := r.publish(laneA)
	subject := RunSubject(laneA, id, 1)
	seq, found, err := FindRun(t.Context(), r.js, runs, subject)
	if err != nil || !found || seq != 2 {
		t.Fatalf("got %d, %v, %v", seq, found, err)
	}
	for range 2 { // the second time it is gone, which is as good
		check.OK(t, DeleteRun(t.Context(), r.js, runs, seq))
	}
	if _, found, err := FindRun(t.Context(), r.js, runs, subject); err != nil || found {
		t.Errorf("deleted, it is found: %v, %v", found, err)
	}
	state, err := PollRuns(t.Context(), r.js, runs)
	if err != nil || state.LastSeq != 2 || state.Messages != 1 {
		t.Errorf("got %+v, %v", state, err)
	}
}

func TestStatusFill(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if _, err := Ensure(t.Context(), r.js, r.reg, Limits{StatusBytes: 1 << 20}, quiet); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		_, err := r.js.Publish(t.Context(), StatusSubject("x"), make([]byte, 5000))
		check.OK(t, err)
	}
	fill, last, applied, err := StatusFill(t.Context(), r.js)
	if err != nil || fill < .45 || fill > .55 || last != 100 || applied != 0 {
		t.Fatalf("got %v %d %d %v", fill, last, applied, err)
	}
	c, err := r.js.CreateConsumer(t.Context(), StatusStream, jetstream.ConsumerConfig{Durable: RecorderConsumer, AckPolicy: jetstream.AckExplicitPolicy})
	check.OK(t, err)
	msgs, err := c.Fetch(50)
	check.OK(t, err)
	for m := range msgs.Messages() {
		check.OK(t, m.DoubleAck(t.Context()))
	}
	fill, last, applied, err = StatusFill(t.Context(), r.js)
	if err != nil || fill < .2 || fill > .3 || last != 100 || applied != 50 {
		t.Errorf("half applied: got %v %d %d %v", fill, last, applied, err)
	}
}

// A message is deleted as soon as NATS answers again; for how long it may not is up to the caller.
func TestDeleteHandOverWaitsForNATS(t *testing.T) {
	t.Parallel()
	r := newRigByURL(t)
	addr := r.srv.Addr()
	runs := r.ensure()
	tm := store.Timer{TimerKey: store.TimerKey{RunID: uuid.New()}, QueueNamespace: laneA.Namespace, Queue: laneA.Queue, Priority: laneA.Priority, Dispatch: 1}
	_, err := r.js.Publish(t.Context(), RunSubject(laneA, tm.RunID, 1), []byte("a run"))
	check.OK(t, err)
	current := func(context.Context) (Runs, error) { return runs, nil }
	r.srv.Stop()
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := DeleteHandOver(short, r.js, current, tm); err == nil {
		t.Error("deleted, with nobody there to delete it")
	}
	done := make(chan error, 1)
	go func() { done <- DeleteHandOver(t.Context(), r.js, current, tm) }()
	r.serve(addr)
	check.OK(t, check.Receive(t, "the end of the deletion", done))
	_, found, err := FindRun(t.Context(), r.js, runs, RunSubject(laneA, tm.RunID, 1))
	if err != nil || found {
		t.Errorf("it is there: %v, %v", found, err)
	}
}

func TestServerThatIsTooOld(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	check.OK(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	r := &rig{t: t, reg: newMemory()}
	r.nc = r.dial(Dial{URL: s.ClientURL()})
	r.subscribe(r.nc, "$JS.API.INFO", func(m *nats.Msg) { _ = m.Respond([]byte(`{"api":{"level":1}}`)) }) // as NATS 2.11
	check.OK(t, r.nc.Flush())
	_, err = Ensure(t.Context(), jsOf(t, r.nc), r.reg, Limits{}, quiet)
	if err == nil || !strings.Contains(err.Error(), "given API level 1, allowed: 2 and above, which is NATS 2.12 or later") {
		t.Errorf("got %v", err)
	}
}
