package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waterclock-io/waterclock/internal/failpoint"
)

// shell is a process that runs a script, and is up once it has said so.
func shell(t *testing.T, script string) *Process {
	t.Helper()
	dir := t.TempDir()
	var p *Process
	p, err := New(Options{
		Name: "shell", Path: "/bin/sh", Args: []string{"-c", script}, Dir: dir, LogDir: dir, Env: Environment(dir), End: syscall.SIGTERM,
		Up: func(context.Context) error {
			if !p.Said("up") {
				return errors.New("it has not said so")
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Kill() // it has ended, as a rule
		_ = p.Close()
	})
	return p
}

func TestLivesFollowEachOther(t *testing.T) {
	t.Parallel()
	p := shell(t, `trap 'exit 3' TERM; echo up $WHO; while :; do sleep 0.05; done`)
	if p.Running() || p.PID() != 0 || p.Fate() != "" {
		t.Error("it runs before it was started")
	}
	if err := p.Kill(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a kill of nobody: %v", err)
	}
	if err := p.Start(t.Context(), "WHO=first"); err != nil {
		t.Fatal(err)
	}
	if p.Start(t.Context()) == nil {
		t.Error("it was started twice")
	}
	if !p.Said("up first") || p.PID() == 0 {
		t.Error("what it said is not known")
	}
	if err := p.Kill(); err != nil || !p.Killed() {
		t.Errorf("kill: %v, %s", err, p.Fate())
	}
	if err := p.Start(t.Context(), "WHO=second"); err != nil {
		t.Fatal(err)
	}
	if p.Said("up first") {
		t.Error("what it said in its last life counts for this one")
	}
	if err := p.Terminate(time.Minute); err != nil || p.Killed() || p.Fate() != "exit status 3" {
		t.Errorf("terminate: %v, %s", err, p.Fate())
	}
}

func TestStartThatEndsIsTold(t *testing.T) {
	t.Parallel()
	if err := shell(t, "exit 1").Start(t.Context()); !errors.Is(err, ErrEnded) {
		t.Errorf("a process that ends at once: %v", err)
	}
	// Whose address is in use for a moment is started again.
	once := filepath.Join(t.TempDir(), "once")
	if err := shell(t, `[ -e `+once+` ] || { : >`+once+`; echo listen: address already in use; exit 1; }; echo up; exec sleep 600`).Start(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestReachTellsADeathAtThePointFromOthers(t *testing.T) {
	t.Parallel()
	point := failpoint.PlannerMarked
	dies := "echo '" + failpoint.Struck(point) + "killed at pass 2'; kill -9 $$"
	for name, tt := range map[string]struct {
		script  string
		reached bool
		fails   string
	}{
		"there, when it is provoked": {`echo up; until [ -e provoked ]; do :; done; [ "$WATERCLOCK_FAILPOINTS" = planner.marked=kill@2 ] && ` + dies, true, ""},
		"there, before it is up":     {dies, true, ""},
		"killed by something else":   {"echo up; kill -9 $$", false, ""},
		"by itself":                  {"echo up; exit 7", false, "ended by itself (exit status 7) before it reached planner.marked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := shell(t, tt.script)
			reached, err := p.Reach(t.Context(), point, 2, time.Second, func(context.Context) error {
				return os.WriteFile(filepath.Join(p.o.Dir, "provoked"), nil, 0o600)
			})
			if reached != tt.reached || (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("reached: %t, %v", reached, err)
			}
		})
	}
}

func TestOutlivingProcessIsSeenAndKilled(t *testing.T) {
	t.Parallel()
	p := shell(t, "sleep 600")
	if err := p.Launch(); err != nil {
		t.Fatal(err)
	}
	if err := Sweep(p.o.Dir, 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "outlives the run") {
		t.Errorf("a process that outlives its run: %v", err)
	}
	<-p.Ended()
	if !p.Killed() {
		t.Error("it was not killed")
	}
	if err := Sweep(p.o.Dir, time.Second); err != nil {
		t.Error(err)
	}
}

func TestProcessesAreFoundByAnArgument(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "lines")
	cmd := exec.Command("sh", "-c", "read line", "sh", file)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if found, err := Find("cmdline", file); len(found) != 1 || err != nil {
		t.Errorf("%v are seen, want 1: %v", found, err)
	}
	_ = in.Close()
	_ = cmd.Wait()
	if found, err := Find("cmdline", file); len(found) != 0 || err != nil {
		t.Errorf("%v are seen, want none: %v", found, err)
	}
}
