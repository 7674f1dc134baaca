package command

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock-io/waterclock/executor"
	"github.com/waterclock-io/waterclock/executor/guard"
)

func TestMain(m *testing.M) {
	if guard.Main() {
		return
	}
	// Guards take this over: the race detector otherwise delays the end of each process by a second.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// held is a lease that ends a given time after each look at it, or at a fixed moment.
type held struct {
	length time.Duration
	until  time.Time
	looks  atomic.Int32
	output
}

func (h *held) LeaseUntil() time.Time {
	h.looks.Add(1)
	if !h.until.IsZero() {
		return h.until
	}
	return time.Now().Add(h.length)
}

func (h *held) Stderr() io.Writer { return &h.output }

// output is a buffer that tells when it is written to.
type output struct {
	mu      sync.Mutex
	b       bytes.Buffer
	written chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.written != nil && o.b.Len() == 0 {
		close(o.written)
	}
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func shell(script string, out io.Writer) guard.Command {
	return guard.Command{Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: out, Stderr: out}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script, want string
		outcome            executor.Outcome
	}{
		{"success", "exit 0", "", executor.Outcome{}},
		{"exit code", "exit 3", "exit code 3", executor.Outcome{Reason: "exit", Code: 3}},
		{"signal", "kill -KILL $$", "killed by SIGKILL", executor.Outcome{Reason: "exit", Code: 137}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := supervise(t.Context(), shell(c.script, nil), &held{length: time.Minute}, time.Second)
			if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if got := executor.OutcomeOf(err); got != c.outcome {
				t.Errorf("got %+v, want %+v", got, c.outcome)
			}
		})
	}
}

func TestCannotStart(t *testing.T) {
	t.Parallel()
	for name, cmd := range map[string]guard.Command{
		"no such file": {Argv: []string{"/no/such/file"}},
		"no folder":    {Argv: []string{"/bin/sh"}, Dir: "/no/such/folder"},
		"not for us":   {Argv: []string{"/etc/passwd"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := supervise(t.Context(), cmd, &held{length: time.Minute}, time.Second)
			var start *guard.StartError
			if !errors.As(err, &start) || start.Retriable() {
				t.Fatalf("got %v, want a start error that stays", err)
			}
			if !executor.OutcomeOf(err).Fatal {
				t.Error("it is not marked as fatal")
			}
		})
	}
}

func TestLeaseOverBeforeTheStart(t *testing.T) {
	t.Parallel()
	err := supervise(t.Context(), shell("exit 0", nil), &held{until: time.Now()}, time.Second)
	var start *guard.StartError
	if !errors.As(err, &start) || !start.Retriable() || executor.OutcomeOf(err).Fatal {
		t.Errorf("got %v, want a start error that may pass", err)
	}
}

func TestStops(t *testing.T) {
	t.Parallel()
	const polite = `trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done`
	const deaf = `trap '' TERM; echo up; while :; do sleep 0.05; done`
	for _, c := range []struct {
		name, script string
		cause        error
		grace        time.Duration
		bye          bool
	}{
		{"cancelled, ends by itself", polite, executor.ErrCancelled, time.Minute, true},
		{"timed out, ends by itself", polite, executor.ErrTimeout, time.Minute, true},
		{"drained, killed after the grace", deaf, executor.ErrDraining, 100 * time.Millisecond, false},
		{"lease lost, killed at once", polite, executor.ErrLeaseLost, time.Minute, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out := &output{written: make(chan struct{})}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			go func() {
				<-out.written
				cancel(c.cause)
			}()
			began := time.Now()
			err := supervise(ctx, shell(c.script, out), &held{length: time.Hour}, c.grace)
			if !errors.Is(err, c.cause) {
				t.Errorf("got %v, want the cause %v, even where the exit code is 0", err, c.cause)
			}
			if got := strings.Contains(out.String(), "bye"); got != c.bye {
				t.Errorf("output %q; ended by itself: %v, want %v", out.String(), got, c.bye)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func TestEndedContextStartsNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(executor.ErrCancelled)
	out := &output{}
	if err := supervise(ctx, shell("echo up", out), &held{length: time.Minute}, time.Second); !errors.Is(err, executor.ErrCancelled) || out.String() != "" {
		t.Errorf("got %v and output %q", err, out.String())
	}
}

func TestGraceEndsWithTheLease(t *testing.T) {
	t.Parallel()
	out := &output{written: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() {
		<-out.written
		cancel(executor.ErrCancelled)
	}()
	until := time.Now().Add(2 * time.Second)
	err := supervise(ctx, shell(`trap '' TERM; echo up; while :; do sleep 0.05; done`, out), &held{until: until}, time.Hour)
	if err == nil || time.Now().Before(until.Add(-time.Second)) || time.Since(until) > 10*time.Second {
		t.Errorf("got %v, %s after the lease", err, time.Since(until))
	}
}

func TestLeaseIsFed(t *testing.T) {
	t.Parallel()
	// Each look at the lease lengthens it by less than the command runs.
	l := &held{length: 2 * time.Second}
	if err := supervise(t.Context(), shell("sleep 3; exit 7", nil), l, time.Second); err == nil || err.Error() != "exit code 7" {
		t.Errorf("got %v, want that the command ends by itself", err)
	}
	if l.looks.Load() < 5 {
		t.Errorf("the guard was fed %d times in 3 s", l.looks.Load())
	}
}

func TestUnfedIsKilled(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(700 * time.Millisecond)
	err := supervise(t.Context(), shell("sleep 60", nil), &held{until: until}, time.Second)
	if !errors.Is(err, executor.ErrLeaseLost) {
		t.Errorf("got %v, want that the lease is lost", err)
	}
	if late := time.Since(until); late < 0 || late > 10*time.Second {
		t.Errorf("ended %s after the lease", late)
	}
}

func TestFailingOutputDoesNotChangeTheOutcome(t *testing.T) {
	t.Parallel()
	l := &held{length: time.Minute}
	cmd := shell("echo x", nil)
	cmd.Stdout = failing{}
	if err := supervise(t.Context(), cmd, l, time.Second); err != nil {
		t.Errorf("got %v, want success", err)
	}
	if !strings.Contains(l.String(), "output is incomplete") {
		t.Errorf("the log does not say that output is missing: %q", l.String())
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("full") }
