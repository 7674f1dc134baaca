package executor_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/executor"
	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/job"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
)

func oneSlot(cfg *executor.Config) { cfg.Slots = 1 }

func TestOrderOfPriority(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	for i := len(job.Priorities) - 1; i >= 0; i-- {
		m := p.message("note")
		m.Priority = job.Priorities[i].String()
		p.publish(m)
	}
	order := make(chan string, len(job.Priorities))
	p.employ(map[string]executor.Handler{"note": func(_ context.Context, run *executor.Run) error { order <- run.Priority; return nil }}, oneSlot)
	var got []string
	for range job.Priorities {
		got = append(got, check.Receive(t, "a run", order))
	}
	if d := cmp.Diff([]string{"critical", "high", "normal", "low"}, got); d != "" {
		t.Errorf("order (-want +got):\n%s", d)
	}
}

func TestSurplusIsGivenBack(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	begun, release := make(chan *executor.Run, 1), make(chan struct{})
	p.employ(map[string]executor.Handler{"waits": untilReleased(begun, release)}, oneSlot)
	m := p.message("waits")
	m.Priority = job.Low.String()
	check.Await(t, "pull parked on the lowest lane", func() bool {
		c, err := p.js.Consumer(context.Background(), p.runs.Name, p.consumer(m))
		return err == nil && c.CachedInfo().NumWaiting > 0
	})
	first := p.publish(p.message("waits"))
	check.Receive(t, "the handler", begun)
	// The pull takes a run that there is no slot for.
	run := p.publish(m)
	if s := p.ended(run); s.Kind != wirev1.StatusKind_STATUS_KIND_RELEASED || s.Reason != "surplus" {
		t.Errorf("%s %s, want that it is given back", s.Kind, s.Reason)
	}
	p.gone(m)
	close(release)
	p.ends("the run that had the slot", first, wirev1.StatusKind_STATUS_KIND_SUCCEEDED)
}

func TestStopDrains(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	begun, why := make(chan *executor.Run, 1), make(chan error, 1)
	quick, release := make(chan struct{}, 1), make(chan struct{})
	e := p.employ(map[string]executor.Handler{
		"stops": untilStopped(begun, why),
		"quick": func(context.Context, *executor.Run) error { quick <- struct{}{}; <-release; return nil },
	}, func(cfg *executor.Config) { cfg.DrainGrace = time.Second })
	long, short := p.message("stops"), p.message("quick")
	p.publish(long)
	p.publish(short)
	check.Receive(t, "the long handler", begun)
	check.Receive(t, "the short handler", quick)

	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		e.Stop(context.Background())
		e.Stop(context.Background())
	}()
	close(release)
	p.ends("what ended in time", uuid.UUID(short.RunId), wirev1.StatusKind_STATUS_KIND_SUCCEEDED)
	if got := check.Receive(t, "the end of its context", why); !errors.Is(got, executor.ErrDraining) {
		t.Errorf("cause %v, want that it drains", got)
	}
	if s := p.ended(uuid.UUID(long.RunId)); s.Kind != wirev1.StatusKind_STATUS_KIND_RELEASED || s.Reason != "drained" {
		t.Errorf("what did not end in time: %s %s", s.Kind, s.Reason)
	}
	check.Receive(t, "Stop", stopped)
	p.gone(short)
	p.gone(long)

	after := p.message("quick")
	p.publish(after)
	check.OK(t, p.nc.FlushTimeout(check.Patience))
	if !p.there(after) || len(p.words(uuid.UUID(after.RunId))) != 0 {
		t.Error("a run was taken after Stop")
	}
}

func TestStopWithoutGrace(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	begun, why := make(chan *executor.Run, 1), make(chan error, 1)
	e := p.employ(map[string]executor.Handler{"stops": untilStopped(begun, why)}, func(cfg *executor.Config) { cfg.DrainGrace = time.Hour })
	run := p.publish(p.message("stops"))
	check.Receive(t, "the handler", begun)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	e.Stop(over)
	p.ends("want that it is given back", run, wirev1.StatusKind_STATUS_KIND_RELEASED)
}

func TestStopWithoutStart(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	e, err := executor.New(executor.Config{Conn: p.nc, Handlers: map[string]executor.Handler{"x": nil}})
	check.OK(t, err)
	e.Stop(context.Background())
}

func TestStartWithoutStreams(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	check.OK(t, p.js.DeleteStream(context.Background(), p.runs.Name))
	e, err := executor.New(executor.Config{Conn: p.nc, Handlers: map[string]executor.Handler{"x": nil}})
	check.OK(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := e.Start(ctx); err == nil {
		t.Error("it started without streams")
	}
	e.Stop(context.Background())
	if err := e.Start(context.Background()); err == nil {
		t.Error("it started again")
	}
}

func TestManyRuns(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.employ(map[string]executor.Handler{"ok": succeed})
	var messages []*wirev1.RunMessage
	for i := range 200 {
		m := p.message("ok")
		m.Priority = job.Priorities[i%len(job.Priorities)].String()
		messages = append(messages, m)
		p.publish(m)
	}
	for _, m := range messages {
		// With more runs than slots some may be given back, which a planner would hand out again.
		if s := p.ended(uuid.UUID(m.RunId)); s.Kind != wirev1.StatusKind_STATUS_KIND_SUCCEEDED && s.Reason != "surplus" {
			t.Errorf("%s %s", s.Kind, s.Reason)
		}
		p.gone(m)
	}
}
