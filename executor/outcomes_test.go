package executor_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/executor"
	"github.com/waterclock-io/waterclock/executor/runlog"
	"github.com/waterclock-io/waterclock/internal/check"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/streams"
)

// end is what a test compares of a status.
type end struct {
	Kind      wirev1.StatusKind
	Reason    string
	Message   string
	Code      int32
	Result    string
	Retriable bool
	Delay     time.Duration
}

func endOf(s said) end {
	return end{s.Kind, s.Reason, s.Message, s.Code, string(s.Result), s.Retriable, time.Duration(s.Delay) * time.Microsecond}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	stops := func(ctx context.Context, _ *executor.Run) error {
		<-ctx.Done()
		return errors.New("stopped")
	}
	e := p.employ(map[string]executor.Handler{
		"ok":     func(_ context.Context, run *executor.Run) error { run.SetResult([]byte("42")); return nil },
		"error":  func(context.Context, *executor.Run) error { return io.ErrUnexpectedEOF },
		"fatal":  func(context.Context, *executor.Run) error { return executor.Fatal(io.EOF) },
		"code":   func(context.Context, *executor.Run) error { return executor.WithCode(io.EOF, "exit", 3) },
		"later":  func(context.Context, *executor.Run) error { return executor.RetryAfter(io.EOF, time.Minute) },
		"snooze": func(context.Context, *executor.Run) error { return executor.Snooze(time.Minute) },
		"panic":  func(context.Context, *executor.Run) error { panic("no luck") },
		"stops":  stops,
	})
	const failed = wirev1.StatusKind_STATUS_KIND_FAILED
	lost := end{Kind: wirev1.StatusKind_STATUS_KIND_LOST, Reason: "lost", Message: "published too late"}
	for _, c := range []struct {
		name, kind string
		change     func(*wirev1.RunMessage)
		want       end
	}{
		{"success", "ok", nil, end{Kind: wirev1.StatusKind_STATUS_KIND_SUCCEEDED, Reason: "ok", Result: "42"}},
		{"error", "error", nil, end{Kind: failed, Reason: "error", Message: "unexpected EOF", Retriable: true}},
		{"fatal", "fatal", nil, end{Kind: failed, Reason: "fatal", Message: "EOF"}},
		{"code", "code", nil, end{Kind: failed, Reason: "exit", Message: "EOF", Code: 3, Retriable: true}},
		{"retry after", "later", nil, end{Kind: failed, Reason: "error", Message: "EOF", Retriable: true, Delay: time.Minute}},
		{"snooze", "snooze", nil, end{Kind: wirev1.StatusKind_STATUS_KIND_SNOOZED, Reason: "snoozed", Message: "snoozed for 1m0s", Retriable: true, Delay: time.Minute}},
		{"panic", "panic", nil, end{Kind: failed, Reason: "panic", Message: "handler panicked: no luck", Retriable: true}},
		{
			"time-out", "stops", func(m *wirev1.RunMessage) { m.AttemptTimeout = 20_000 },
			end{Kind: failed, Reason: "timeout", Message: executor.ErrTimeout.Error(), Retriable: true},
		},
		{
			"deadline", "stops", func(m *wirev1.RunMessage) { m.DeadlineLeft = 20_000 },
			end{Kind: failed, Reason: "deadline", Message: executor.ErrDeadline.Error()},
		},
		{"unknown kind", "other", nil, end{Kind: wirev1.StatusKind_STATUS_KIND_RELEASED, Reason: "unknown_kind", Delay: 5 * time.Millisecond}},
		{
			"unknown kind, again", "other", func(m *wirev1.RunMessage) { m.Dispatch = 1000 },
			end{Kind: wirev1.StatusKind_STATUS_KIND_RELEASED, Reason: "unknown_kind", Delay: time.Second},
		},
		{"published too late", "ok", func(m *wirev1.RunMessage) { m.PublishBy = time.Now().Add(-time.Second).UnixMicro() }, lost},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := p.message(c.kind)
			if c.change != nil {
				c.change(m)
			}
			s := p.ended(p.publish(m))
			if d := cmp.Diff(c.want, endOf(s)); d != "" {
				t.Errorf("status (-want +got):\n%s", d)
			}
			earliest, latest := m.PublishedAt-1_000_000, s.EndedAt
			if c.want.Reason == "unknown_kind" || c.want.Reason == "lost" {
				earliest, latest = 0, 0 // it did not begin
			}
			if s.executor != e.ID() || s.dispatch != m.Dispatch || s.StartedAt < earliest || s.StartedAt > latest || s.EndedAt < m.PublishedAt-1_000_000 {
				t.Errorf("said by %s of dispatch %d, from %d to %d", s.executor, s.dispatch, s.StartedAt, s.EndedAt)
			}
			p.gone(m)
			if words := p.words(uuid.UUID(m.RunId)); len(words) != 1 {
				t.Errorf("STATUS has %v, want the end alone of so short a run", words)
			}
		})
	}
}

func TestRunIsWhatWasHandedOut(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	got := make(chan executor.Run, 1)
	p.employ(map[string]executor.Handler{"look": func(ctx context.Context, run *executor.Run) error {
		if of, ok := executor.FromContext(ctx); !ok || of != run {
			t.Error("the context does not have the run")
		}
		if left := time.Until(run.LeaseUntil()); left <= 0 || left > 3*time.Second {
			t.Errorf("the lease ends in %s", left)
		}
		got <- *run
		return nil
	}})
	m := p.message("look")
	m.Payload, m.Labels, m.Name, m.Civil, m.Attempt, m.Dispatch = []byte("in"), map[string]string{"a": "b"}, "nightly", "2027-01-01T00:00:00", 2, 9
	p.publish(m)
	want := executor.Run{
		JobID: uuid.UUID(m.JobId), ID: uuid.UUID(m.RunId), Namespace: "team-a", Name: "nightly", Kind: "look", Queue: "default", Priority: "normal", Payload: []byte("in"),
		Labels: map[string]string{"a": "b"}, Attempt: 2, MaxAttempts: 3, Dispatch: 9, ScheduledAt: time.UnixMicro(m.ScheduledAt).UTC(), Civil: "2027-01-01T00:00:00",
	}
	run := check.Receive(t, "the handler", got)
	if d := cmp.Diff(want, run, cmpopts.IgnoreUnexported(executor.Run{})); d != "" {
		t.Errorf("run (-want +got):\n%s", d)
	}
	if run.IdempotencyKey() != run.ID.String() {
		t.Errorf("idempotency key %q", run.IdempotencyKey())
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	begun, why := make(chan *executor.Run, 1), make(chan error, 1)
	e := p.employ(map[string]executor.Handler{"stops": untilStopped(begun, why)})
	control := streams.NewNotifier(p.nc, nil)
	for _, c := range []struct {
		name, to, reason string
		upTo             int64
		cause            error
		kind             wirev1.StatusKind
	}{
		{"cancelled", e.ID(), "cancelled", 5, executor.ErrCancelled, wirev1.StatusKind_STATUS_KIND_CANCELLED},
		{"all executors are told", "", "cancelled", 6, executor.ErrCancelled, wirev1.StatusKind_STATUS_KIND_CANCELLED},
		{"refused, so nothing is said", e.ID(), executor.ControlRefused, 5, executor.ErrLeaseLost, 0},
	} {
		m := p.message("stops")
		m.Dispatch = 5
		run := p.publish(m)
		check.Receive(t, "the handler", begun)
		control.Control(c.to, run, 4, c.reason) // of a hand-over before
		control.Control(c.to, uuid.New(), c.upTo, c.reason)
		control.Control(c.to, run, c.upTo, c.reason)
		if got := check.Receive(t, "the end of its context", why); !errors.Is(got, c.cause) {
			t.Errorf("%s: cause %v, want %v", c.name, got, c.cause)
		}
		if c.kind != 0 {
			if s := p.ended(run); s.Kind != c.kind {
				t.Errorf("%s: %s", c.name, s.Kind)
			}
			p.gone(m)
		} else if words := p.words(run); len(words) != 0 || !p.there(m) {
			t.Errorf("%s: said %v", c.name, words)
		}
	}
}

func TestOldOrdersAreIgnored(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	begun, release := make(chan struct{}, 1), make(chan struct{})
	e := p.employ(map[string]executor.Handler{"waits": func(ctx context.Context, _ *executor.Run) error {
		begun <- struct{}{}
		<-release
		return ctx.Err()
	}})
	m := p.message("waits")
	m.Dispatch = 5
	run := p.publish(m)
	check.Receive(t, "the handler", begun)
	control := streams.NewNotifier(p.nc, nil)
	control.Control(e.ID(), run, 4, "cancelled")
	// The roll-call is answered after the order was obeyed: they come on one connection.
	beats := make(chan *wirev1.Heartbeat, 16)
	sub, err := streams.OnHeartbeat(p.nc, func(h *wirev1.Heartbeat) { beats <- h })
	check.OK(t, err)
	defer func() { _ = sub.Unsubscribe() }()
	control.RollCall()
	beat := check.Receive(t, "a heartbeat", beats)
	if beat.Executor != e.ID() || beat.Busy != 1 || len(beat.Held) != 1 || uuid.UUID(beat.Held[0].RunId) != run || beat.Held[0].Dispatch != 5 {
		t.Errorf("heartbeat %v does not list the run", beat)
	}
	close(release)
	p.ends("an order about an earlier hand-over stopped this one", run, wirev1.StatusKind_STATUS_KIND_SUCCEEDED)
}

func TestRedeliveredIsNotExecuted(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	m := p.message("never")
	run := p.publish(m)
	// Somebody gets it first and lets go of it.
	check.OK(t, p.take(m, 30*time.Second).Nak())
	p.employ(map[string]executor.Handler{"never": neverRun(t)})
	if d := cmp.Diff(end{Kind: wirev1.StatusKind_STATUS_KIND_LOST, Reason: "lost", Message: "delivered before"}, endOf(p.ended(run))); d != "" {
		t.Errorf("status (-want +got):\n%s", d)
	}
	p.gone(m)
}

func TestResultSizes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		blobs *memory
		size  int
		kind  wirev1.StatusKind
		where string // inline, blob or nowhere
		text  string
	}{
		{"inline", &memory{}, executor.MaxInlineResult, wirev1.StatusKind_STATUS_KIND_SUCCEEDED, "inline", ""},
		{"blob", &memory{}, executor.MaxInlineResult + 1, wirev1.StatusKind_STATUS_KIND_SUCCEEDED, "blob", ""},
		{"largest", &memory{}, executor.MaxResult, wirev1.StatusKind_STATUS_KIND_SUCCEEDED, "blob", ""},
		{"too large", &memory{}, executor.MaxResult + 1, wirev1.StatusKind_STATUS_KIND_FAILED, "nowhere", "10485761 bytes given; allowed: at most 10485760"},
		{"inline without blobs", nil, executor.MaxInlineResult, wirev1.StatusKind_STATUS_KIND_SUCCEEDED, "inline", ""},
		{"too large without blobs", nil, executor.MaxInlineResult + 1, wirev1.StatusKind_STATUS_KIND_FAILED, "nowhere", "at most 16384"},
		{"blobs fail", &memory{fails: true}, executor.MaxInlineResult + 1, wirev1.StatusKind_STATUS_KIND_FAILED, "nowhere", "could not be stored: disk full"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPlant(t)
			result := bytes.Repeat([]byte{'r'}, c.size)
			p.employ(map[string]executor.Handler{"big": func(_ context.Context, run *executor.Run) error {
				run.SetResult([]byte("an earlier one"))
				run.SetResult(result)
				return nil
			}}, func(cfg *executor.Config) {
				if c.blobs != nil {
					cfg.Blobs = c.blobs
				}
			})
			s := p.ended(p.publish(p.message("big")))
			if s.Kind != c.kind || !strings.Contains(s.Message, c.text) || s.Retriable != (c.name == "blobs fail") {
				t.Errorf("%s %q, retriable %v", s.Kind, s.Message, s.Retriable)
			}
			if inline := bytes.Equal(s.Result, result); inline != (c.where == "inline") || !inline && len(s.Result) > 0 {
				t.Errorf("%d bytes are in the status", len(s.Result))
			}
			if (s.ResultRef != "") != (c.where == "blob") {
				t.Errorf("reference %q", s.ResultRef)
			}
			if c.where == "blob" && !bytes.Equal(c.blobs.get(s.ResultRef), result) {
				t.Errorf("the blob %s is not the result", s.ResultRef)
			}
		})
	}
}

func TestLogIsKept(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		p := newPlant(t)
		blobs := &memory{fails: fails}
		p.employ(map[string]executor.Handler{"talk": func(_ context.Context, run *executor.Run) error {
			_, _ = io.WriteString(run.Stdout(), "out\n")
			_, _ = io.WriteString(run.Stderr(), "err\n")
			panic("and over")
		}}, func(cfg *executor.Config) { cfg.Blobs = blobs })
		m := p.message("talk")
		s := p.ended(p.publish(m))
		if s.Reason != "panic" || (s.LogRef == "") != fails {
			t.Errorf("blobs fail: %v; %s, log %q", fails, s.Reason, s.LogRef)
		}
		if fails {
			continue
		}
		var got []string
		for entry, err := range runlog.Decode(bytes.NewReader(blobs.get(s.LogRef))) {
			check.OK(t, err)
			got = append(got, entry.Stream.String()+" "+string(entry.Data))
		}
		if len(got) != 2 || got[0] != "stdout out\n" || !strings.HasPrefix(got[1], "stderr err\npanic: and over\ngoroutine ") {
			t.Errorf("log %q", got)
		}
		var live []string
		for l, err := range streams.NewLiveReader(p.js).Live(t.Context(), m.Namespace, uuid.UUID(m.RunId)) {
			check.OK(t, err)
			live = append(live, string(l.Data))
		}
		if text := strings.Join(live, ""); !strings.HasPrefix(text, "out\nerr\npanic") {
			t.Errorf("live log %q", text)
		}
	}
}

func TestUnreadableMessageIsBuried(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	dead := p.buried()
	p.employ(map[string]executor.Handler{"x": succeed})
	m := p.message("x")
	if _, err := p.js.Publish(context.Background(), subject(m), []byte("\xff\xff")); err != nil {
		t.Fatal(err)
	}
	got := dead()
	if string(got.Data) != "\xff\xff" || got.Header.Get("Waterclock-Subject") != subject(m) || !strings.Contains(got.Header.Get("Waterclock-Reason"), "cannot be read") {
		t.Errorf("dead letter %q with %v", got.Data, got.Header)
	}
	p.gone(m)
}
