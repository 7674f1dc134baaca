package streams

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/internal/check"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
)

func beat(executor string, kinds ...string) *wirev1.Heartbeat {
	return &wirev1.Heartbeat{Executor: executor, Kinds: kinds, Queues: []string{"_/default", "acme/own"}}
}

func TestRegistryOffers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		is := func(when, namespace, queue, kind string, want bool) {
			t.Helper()
			if got := r.Offers(namespace, queue, kind); got != want {
				t.Errorf("%s: %s of %s/%s: %v", when, kind, namespace, queue, got)
			}
		}
		is("empty", "_", "default", "exec", false)
		if !r.Heard(beat("a", "exec", "http")) || r.Heard(beat("a", "exec", "http")) {
			t.Error("only its first word makes an executor new")
		}
		r.Take(beat("b", "http"))
		is("heard", "_", "default", "exec", true)
		is("heard", "acme", "own", "http", true)
		is("heard", "acme", "default", "exec", false)
		is("heard", "_", "own", "exec", false)
		is("heard", "_", "default", "sql", false)

		r.Heard(beat("a", "http"))
		is("a gave exec up", "_", "default", "exec", false)
		is("a gave exec up", "_", "default", "http", true)

		draining := beat("a", "http")
		draining.Draining = true
		r.Heard(draining)
		is("b still offers it", "_", "default", "http", true)
		<-time.After(executorSilent / 2)
		r.Heard(draining)
		<-time.After(executorSilent/2 + time.Second)
		is("b is silent, a drains", "_", "default", "http", false)
		if r.Heard(draining) || !r.Heard(beat("b", "http")) {
			t.Error("a was never silent, b is new again")
		}
		is("b is back", "_", "default", "http", true)
		if len(r.offers) != 2 {
			t.Errorf("offers are not counted well: %v", r.offers)
		}
		<-time.After(time.Hour)
		is("all are silent", "_", "default", "http", false)
		if len(r.offers)+len(r.executors) != 0 {
			t.Errorf("left over: %v, %v", r.offers, r.executors)
		}
	})
}

func TestRegistryHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		run := uuid.New()
		h := beat("a")
		h.Held = []*wirev1.Held{{RunId: run[:], Dispatch: 3}, {RunId: run[:5], Dispatch: 9}, {}}
		r.Heard(h)
		for d, want := range map[int64]bool{2: false, 3: true, 4: false} {
			if r.Holds(run, d) != want {
				t.Errorf("dispatch %d: %v", d, !want)
			}
		}
		if r.Holds(uuid.New(), 3) {
			t.Error("another run is held")
		}
		<-time.After(executorSilent)
		if !r.Holds(run, 3) {
			t.Error("the executor is forgotten too early")
		}
		<-time.After(2 * time.Second)
		if r.Holds(run, 3) {
			t.Error("a silent executor holds it")
		}
		r.Heard(h)
		r.Heard(beat("a"))
		if r.Holds(run, 3) {
			t.Error("it is held, and its executor does not say so any more")
		}
	})
}

func TestWatchers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := NewWatchers()
	sub, err := w.Start(r.nc)
	check.OK(t, err)
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closed next
	n := NewNotifier(r.nc, quiet)
	run, other := uuid.New(), uuid.New()
	a, stopA := w.Watch(run)
	b, stopB := w.Watch(run)
	c, stopC := w.Watch(other)
	row := func(id uuid.UUID) *wirev1.RecordedRow { return &wirev1.RecordedRow{RunId: id[:]} }
	// What is said often before anybody looks is one signal, and holds nobody up.
	for range 100 {
		n.Recorded(&wirev1.Recorded{Rows: []*wirev1.RecordedRow{row(run), {RunId: []byte("short")}, row(uuid.New())}})
	}
	check.Receive(t, "a signal", a)
	check.Receive(t, "a signal", b)
	stopA()
	stopA()
	n.Recorded(&wirev1.Recorded{Rows: []*wirev1.RecordedRow{row(run), row(other)}})
	check.Receive(t, "the last signal", c)
	check.Receive(t, "a signal", b)
	select {
	case <-c:
		t.Error("a run was signalled for another's sake")
	default:
	}
	stopB()
	stopC()
	if len(w.runs) != 0 {
		t.Errorf("%d runs are watched by nobody", len(w.runs))
	}
}

func TestNoticesThatCannotBeReadArePassedOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got := make(chan *wirev1.Control, 10)
	subs, err := OnControl(r.nc, "me", func(c *wirev1.Control) { got <- c })
	check.OK(t, err)
	defer func() {
		for _, s := range subs {
			_ = s.Unsubscribe()
		}
	}()
	check.OK(t, r.nc.Publish(controlSubject("me"), []byte{0xff}))
	n := NewNotifier(r.nc, quiet)
	run := uuid.New()
	n.Control("you", run, 1, "not for me")
	n.Control("me", run, 2, "cancelled")
	n.Control("", run, 3, "refused") // to all
	seen := map[int64]bool{}
	for range 2 {
		c := check.Receive(t, "an order", got)
		if uuid.UUID(c.RunId) != run || c.Dispatch == 1 || seen[c.Dispatch] {
			t.Errorf("got %v", c)
		}
		seen[c.Dispatch] = true
	}
}
