package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// long is a lease that does not end while a test runs.
func long() time.Time { return time.Now().Add(time.Minute) }

func start(t *testing.T, c Command, until time.Time) *Process {
	t.Helper()
	p, err := Start(t.Context(), c, until)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// wait is Wait with what differs between machines removed.
func wait(t *testing.T, p *Process) Exit {
	t.Helper()
	exit, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	exit.UserTime, exit.SystemTime = 0, 0
	return exit
}

func TestExit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want Exit
	}{
		{[]string{"exit", "0"}, Exit{Code: 0, Reason: ReasonExited}},
		{[]string{"exit", "3"}, Exit{Code: 3, Reason: ReasonExited}},
		{[]string{"exit", "255"}, Exit{Code: 255, Reason: ReasonExited}},
		{[]string{"signal", "9"}, Exit{Code: -1, Signal: "SIGKILL", Reason: ReasonExited}},
		{[]string{"signal", "15"}, Exit{Code: -1, Signal: "SIGTERM", Reason: ReasonExited}},
		{[]string{"signal", "1"}, Exit{Code: -1, Signal: "SIGHUP", Reason: ReasonExited}},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			p := start(t, fixture(t, tt.args[0], tt.args[1:]...), long())
			if diff := cmp.Diff(tt.want, wait(t, p)); diff != "" {
				t.Error(diff)
			}
			if err := p.Feed(long()); !errors.Is(err, ErrEnded) {
				t.Errorf("Feed after the end: %v, want ErrEnded", err)
			}
			p.Stop(0)
			p.Kill()
			if diff := cmp.Diff(tt.want, wait(t, p)); diff != "" {
				t.Errorf("second Wait: %s", diff)
			}
		})
	}
}

func TestStreams(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	c := fixture(t, "say", "to stdout", "to stderr")
	c.Stdout, c.Stderr = &stdout, &stderr
	wait(t, start(t, c, long()))
	if stdout.String() != "to stdout" || stderr.String() != "to stderr" {
		t.Errorf("stdout %q, stderr %q", &stdout, &stderr)
	}

	input := strings.Repeat("0123456789", 100_000)
	var echo bytes.Buffer
	c = fixture(t, "cat")
	c.Stdin, c.Stdout = strings.NewReader(input), &echo
	wait(t, start(t, c, long()))
	if echo.String() != input {
		t.Errorf("%d bytes came back of %d", echo.Len(), len(input))
	}

	// A reader that never ends holds up neither the command nor Wait.
	never, hold := io.Pipe()
	defer hold.Close()
	c = fixture(t, "exit", "0")
	c.Stdin = never
	wait(t, start(t, c, long()))
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

func TestOutputWriterFails(t *testing.T) {
	t.Parallel()
	c := fixture(t, "say", "something", "")
	c.Stdout = brokenWriter{}
	exit, err := start(t, c, long()).Wait()
	if err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("error %v does not name the writer's", err)
	}
	if exit.Reason != ReasonExited {
		t.Errorf("reason %q", exit.Reason)
	}
}

func TestACommandMayCloseItsOutput(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	c := fixture(t, "close", "all I say")
	c.Stdout = write
	p := start(t, c, long())
	if err := errors.Join(write.Close(), read.SetReadDeadline(long())); err != nil {
		t.Fatal(err)
	}
	// Comes to its end only if the guard has let go of the pipe as well.
	out, err := io.ReadAll(read)
	if string(out) != "all I say" || err != nil {
		t.Errorf("read %q, %v", out, err)
	}
	p.Kill()
	if exit := wait(t, p); exit.Reason != ReasonStopped {
		t.Errorf("it had ended before its output: %+v", exit)
	}
}

func TestNothingIsAddedOrInterpreted(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := fixture(t, "surroundings", "$HOME", "`id`", "a b", "", "\xff\xfe", ";*")
	c.Env = append(c.Env, "BYTES=\xff")
	c.Dir, c.Stdout = dir, &out
	wait(t, start(t, c, long()))
	want := dir + "\n" + strings.Join(c.Env, "\n") + "\n" + strings.Join(c.Argv[2:], "\x00") + "\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestStartErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("neither ELF nor script"), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain, garbage := write("plain", 0o600), write("garbage", 0o700)
	type problem struct {
		Field, Value string
		Retriable    bool
	}
	for name, tt := range map[string]struct {
		command Command
		until   time.Time
		want    problem
		is      error
	}{
		"no argv":          {Command{}, long(), problem{"argv", "", false}, nil},
		"missing":          {Command{Argv: []string{"/nonexistent/x"}}, long(), problem{"argv[0]", "/nonexistent/x", false}, os.ErrNotExist},
		"missing in PATH":  {Command{Argv: []string{"nope"}, Env: []string{"PATH=/usr/bin"}}, long(), problem{"argv[0]", "nope", false}, os.ErrNotExist},
		"no PATH":          {Command{Argv: []string{"ls"}}, long(), problem{"argv[0]", "ls", false}, nil},
		"relative PATH":    {Command{Argv: []string{"garbage"}, Env: []string{"PATH=.:"}, Dir: dir}, long(), problem{"argv[0]", "garbage", false}, os.ErrNotExist},
		"not executable":   {Command{Argv: []string{plain}}, long(), problem{"argv[0]", plain, false}, os.ErrPermission},
		"denied in PATH":   {Command{Argv: []string{"plain"}, Env: []string{"PATH=" + dir}}, long(), problem{"argv[0]", "plain", false}, os.ErrPermission},
		"a folder":         {Command{Argv: []string{dir}}, long(), problem{"argv[0]", dir, false}, os.ErrPermission},
		"unknown format":   {Command{Argv: []string{garbage}}, long(), problem{"argv[0]", garbage, false}, syscall.ENOEXEC},
		"relative to dir":  {Command{Argv: []string{"./garbage"}, Dir: dir}, long(), problem{"argv[0]", "./garbage", false}, syscall.ENOEXEC},
		"argv too long":    {Command{Argv: []string{"/bin/true", strings.Repeat("x", 3<<20)}}, long(), problem{"argv[0]", "/bin/true", false}, syscall.E2BIG},
		"no such dir":      {Command{Argv: []string{"/bin/true"}, Dir: dir + "/no"}, long(), problem{"dir", dir + "/no", false}, os.ErrNotExist},
		"dir is a file":    {Command{Argv: []string{"/bin/true"}, Dir: plain}, long(), problem{"dir", plain, false}, syscall.ENOTDIR},
		"NUL in argv":      {Command{Argv: []string{"/bin/true", "a\x00b"}}, long(), problem{"argv[1]", "a\x00b", false}, nil},
		"env without =":    {Command{Argv: []string{"/bin/true"}, Env: []string{"SECRET"}}, long(), problem{"env", "", false}, nil},
		"lease over":       {Command{Argv: []string{"/bin/true"}}, time.Now().Add(-time.Second), problem{"until", "", true}, errLeaseOver},
		"dir with NUL":     {Command{Argv: []string{"/bin/true"}, Dir: "a\x00"}, long(), problem{"dir", "a\x00", false}, nil},
		"empty executable": {Command{Argv: []string{""}}, long(), problem{"argv", "", false}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := Start(t.Context(), tt.command, tt.until)
			var problemErr *StartError
			if p != nil || !errors.As(err, &problemErr) {
				t.Fatalf("Start: %v, %v; want a *StartError", p, err)
			}
			got := problem{problemErr.Field, problemErr.Value, problemErr.Retriable()}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%v: %s", err, diff)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("%v is not %v", err, tt.is)
			}
			if strings.Contains(err.Error(), "SECRET") {
				t.Errorf("%v shows the environment", err)
			}
		})
	}
}

func TestShortageIsRetriable(t *testing.T) {
	t.Parallel()
	shortage := fmt.Errorf("execute: %w", syscall.EAGAIN)
	if !(&StartError{Field: "argv[0]", Err: shortage}).Retriable() {
		t.Error("EAGAIN is not retriable")
	}
}

func TestLookUpInTheCommandsPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink(ownPath(), filepath.Join(dir, "tool")); err != nil {
		t.Fatal(err)
	}
	c := fixture(t, "exit", "5")
	c.Argv[0] = "tool"
	c.Env = append(c.Env, "PATH=/nonexistent::"+dir)
	if got := wait(t, start(t, c, long())); got.Code != 5 {
		t.Errorf("exit %+v", got)
	}
}

func TestContext(t *testing.T) {
	t.Parallel()
	cause := errors.New("drained")
	ctx, cancel := context.WithCancelCause(t.Context())
	p, err := Start(ctx, fixture(t, "block"), long())
	if err != nil {
		t.Fatal(err)
	}
	cancel(cause)
	want := Exit{Code: -1, Signal: "SIGKILL", Reason: ReasonStopped}
	got := wait(t, p)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Exit{}, "KilledAt")); diff != "" || got.KilledAt.IsZero() {
		t.Errorf("%s, killed at %v", diff, got.KilledAt)
	}
	if _, err := Start(ctx, fixture(t, "exit", "0"), long()); !errors.Is(err, cause) {
		t.Errorf("Start after the end of its context: %v, want its cause", err)
	}
}

func TestCPUTime(t *testing.T) {
	t.Parallel()
	exit, err := start(t, fixture(t, "burn"), long()).Wait()
	if err != nil {
		t.Fatal(err)
	}
	if used := exit.UserTime + exit.SystemTime; used <= 0 || used > 10*time.Second {
		t.Errorf("CPU time %v", used)
	}
}

func TestFiftyAtOnce(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			var out bytes.Buffer
			c := fixture(t, "say", fmt.Sprintf("number %d", i), "")
			c.Stdout = &out
			p, err := Start(t.Context(), c, long())
			if err != nil {
				t.Error(err)
				return
			}
			exit, err := p.Wait()
			if err != nil || exit.Code != 0 || out.String() != fmt.Sprintf("number %d", i) {
				t.Errorf("number %d: %+v, %v, output %q", i, exit, err, &out)
			}
		})
	}
	all.Wait()
}
