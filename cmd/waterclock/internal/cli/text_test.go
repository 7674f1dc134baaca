package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode"

	"connectrpc.com/connect"

	"github.com/waterclock-io/waterclock/job/fielderr"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain é 日本 🙂": "plain é 日本 🙂", "": "", "a\nb\tc\rd": `a\nb\tc\rd`, "\x1b[2J\x07\x00\x7f": `\x1b[2J\x07\x00\x7f`,
		"bad \xff\xc3": `bad \xff\xc3`, "c1 \u009b": `c1 \u009b`, "turn \u202e": `turn \u202e`, "tag \U000e0001": `tag \U000e0001`, "\ufffd": "\ufffd",
	} {
		if got := clean(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

// However the output is cut into pieces, a terminal gets the same, and nothing in it that could steer it.
func FuzzEscaper(f *testing.F) {
	for _, s := range []string{"é\r\nx\ry\x1b[2J", "\xff\xe6\x97", "\r", "日本\u202e\t\n", "\x9b\xc2\x9b"} {
		f.Add(s, 1)
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, size int) {
		size = max(1, min(size, len(s)))
		var whole, pieces bytes.Buffer
		write := func(e *escaper, parts ...string) {
			for _, p := range parts {
				if n, err := e.Write([]byte(p)); err != nil || n != len(p) {
					t.Fatalf("wrote %d of %d: %v", n, len(p), err)
				}
			}
			if err := e.flush(); err != nil {
				t.Fatal(err)
			}
		}
		write(&escaper{w: &whole}, s)
		var cut []string
		for rest := s; rest != ""; {
			n := min(size, len(rest))
			cut, rest = append(cut, rest[:n]), rest[n:]
		}
		write(&escaper{w: &pieces}, cut...)
		if whole.String() != pieces.String() {
			t.Errorf("whole %q, in pieces %q", &whole, &pieces)
		}
		steers := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
		if rest := strings.ReplaceAll(whole.String(), "\r\n", "\n"); strings.ContainsFunc(rest, steers) {
			t.Errorf("%q steers the terminal", rest)
		}
	})
}

func TestShortDurations(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 250 * time.Millisecond: "250ms", time.Second: "1s", 61 * time.Second: "1m1s", time.Hour: "1h", 25 * time.Hour: "1d1h",
		49*time.Hour + 5*time.Minute: "2d1h", time.Hour + 5*time.Second: "1h",
	} {
		if got := short(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
	if relative(-2*time.Second) != "2s ago" || relative(2*time.Second) != "in 2s" || relative(-time.Millisecond) != "now" {
		t.Error("relative times")
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for code, want := range map[connect.Code]int{
		connect.CodeInvalidArgument: 2, connect.CodeOutOfRange: 2, connect.CodeNotFound: 3, connect.CodeAlreadyExists: 4, connect.CodeAborted: 4,
		connect.CodeFailedPrecondition: 4, connect.CodeUnauthenticated: 5, connect.CodePermissionDenied: 5, connect.CodeUnavailable: 6,
		connect.CodeDeadlineExceeded: 6, connect.CodeCanceled: 130, connect.CodeInternal: 1, connect.CodeUnknown: 1, connect.CodeUnimplemented: 1,
		connect.CodeResourceExhausted: 1, connect.CodeDataLoss: 1,
	} {
		if got := ExitCode(fmt.Errorf("x: %w", connect.NewError(code, errors.New("e")))); got != want {
			t.Errorf("%v: got %d, want %d", code, got, want)
		}
	}
	for _, test := range []struct {
		err  error
		want int
	}{
		{nil, 0}, {errors.New("x"), 1}, {&fielderr.FieldError{}, 2}, {fielderr.FieldErrors{{Field: "a"}}, 2}, {context.Canceled, 130},
		{errors.Join(&runError{code: 42}, connect.NewError(connect.CodeUnavailable, errors.New("no log"))), 42},
	} {
		if got := ExitCode(test.err); got != test.want {
			t.Errorf("%v: got %d, want %d", test.err, got, test.want)
		}
	}
}

// A run that failed is told about together with a log that could not be read.
func TestExplainTellsBoth(t *testing.T) {
	t.Parallel()
	got := strings.Join(explain(errors.Join(&runError{text: "the run failed"}, connect.NewError(connect.CodeUnavailable, errors.New("no\nlog\x1b")))), "|")
	if want := `the run failed|no; log\x1b (unavailable)`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// An exit code is passed on only where it is one: not the status of an HTTP call, nor a number that no process can end with.
func TestOnlyExitCodesArePassedOn(t *testing.T) {
	t.Parallel()
	const failed = waterclockv1.RunState_RUN_STATE_FAILED
	for _, test := range []struct {
		kind, reason string
		code         int32
		want         int
	}{{"exec", "exit", 3, 3}, {"exec", "exit", 0, 1}, {"exec", "exit", -1, 1}, {"exec", "exit", 256, 1}, {"exec", "timeout", 3, 1}, {"http", "exit", 200, 1}} {
		r := &waterclockv1.Run{Kind: test.kind, State: failed, Outcome: &waterclockv1.Outcome{Reason: test.reason, Code: test.code}}
		if got := ExitCode(ended(r, false)); got != test.want {
			t.Errorf("%s %s %d: got %d, want %d", test.kind, test.reason, test.code, got, test.want)
		}
	}
}

// Interrupted while it waits, submit says that the job goes on.
func TestInterruptedWait(t *testing.T) {
	t.Parallel()
	f, url := newFake(t)
	const run1 = `{"run": {"runId": "5f0c7a52-3b7e-5d5e-9c1b-0a8f4f1f0001", "jobId": "` + testJob + `", "state": "RUN_STATE_RUNNING"}}`
	f.lay("SubmitJob", answer{messages: `{"job": {"jobId": "` + testJob + `"}, ` + run1[1:]})
	f.lay("WatchRun", answer{messages: run1, err: connect.NewError(connect.CodeUnavailable, errors.New("restarting"))})
	env, _, stderr := testEnv(url)
	ctx, interrupt := context.WithCancel(context.Background())
	defer interrupt()
	env.IsTerminal = func(io.Writer) bool { return true }
	env.Stderr = writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "running") {
			interrupt()
		}
		return stderr.Write(p)
	})
	if code := run(ctx, env, []string{"submit", "--wait", "--", "true"}); code != ExitInterrupted {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(stderr.String(), "no longer waiting; the job goes on, waterclock job get "+testJob) {
		t.Errorf("said %s", stderr)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A server that stays away is given up after some tries.
func TestFollowGivesUp(t *testing.T) {
	t.Parallel()
	f, url := newFake(t)
	f.lay("WatchRun", answer{messages: `{"run": {"runId": "r", "state": "RUN_STATE_RUNNING"}}`})
	f.lay("+WatchRun", answer{err: connect.NewError(connect.CodeUnavailable, errors.New("gone"))})
	env, _, stderr := testEnv(url)
	if code := run(context.Background(), env, []string{"run", "watch", testJob}); code != ExitUnavailable || !strings.Contains(stderr.String(), "gone (unavailable)") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if n := len(f.asked()); n < maxReconnects || n > maxReconnects+2 {
		t.Errorf("tried %d times", n)
	}
}
