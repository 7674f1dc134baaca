package harness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock-io/waterclock/chaos/checker"
)

func TestChildWritesItsLinesAndFailsAsTold(t *testing.T) {
	t.Setenv("WATERCLOCK_RUN_ID", "r")
	t.Setenv("WATERCLOCK_ATTEMPT", "2")
	t.Setenv("WATERCLOCK_DISPATCH", "5")
	file := filepath.Join(t.TempDir(), "lines")
	if err := Child([]string{"--file", file, "--number", "7", "--fails", "1"}); err != nil {
		t.Errorf("the second attempt fails: %v", err)
	}
	if Child([]string{"--file", file, "--number", "7", "--fails", "2"}) == nil {
		t.Error("the second attempt was to fail, and did not")
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := checker.ParseLines(string(b))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []checker.LineKind
	for _, l := range lines {
		kinds = append(kinds, l.Kind)
		if l.RunID != "r" || l.Attempt != 2 || l.Dispatch != 5 || l.Number != 7 || l.Group == 0 || l.At.IsZero() {
			t.Errorf("line %+v", l)
		}
	}
	if diff := cmp.Diff([]checker.LineKind{checker.Start, checker.End, checker.Start, checker.End}, kinds); diff != "" {
		t.Error(diff)
	}
	t.Setenv("WATERCLOCK_DISPATCH", "")
	if err := Child([]string{"--file", file}); err == nil || !strings.Contains(err.Error(), "WATERCLOCK_DISPATCH") {
		t.Errorf("without a dispatch: %v", err)
	}
}

func TestExecutorIsFoundAboveItsGuards(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	put := func(pid, parent int, args ...string) {
		dir := filepath.Join(proc, fmt.Sprint(pid))
		if err := errors.Join(os.Mkdir(dir, 0o700),
			os.WriteFile(filepath.Join(dir, "cmdline"), []byte(strings.Join(args, "\x00")+"\x00"), 0o600),
			os.WriteFile(filepath.Join(dir, "status"), fmt.Appendf(nil, "Name:\tx\nPPid:\t%d\n", parent), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	put(10, 1, "/bin/waterclock", "executor", "--log.level", "info")
	put(11, 10, "waterclock-guard")
	put(20, 1, "/bin/waterclock", "dev")
	put(21, 20, "waterclock-guard")
	put(31, 1, "waterclock-guard")
	if pid, err := executorAbove(proc, 11); pid != 10 || err != nil {
		t.Errorf("got %d, %v", pid, err)
	}
	for _, from := range []int{21, 31, 99} {
		if pid, err := executorAbove(proc, from); err == nil {
			t.Errorf("from %d process %d would be killed", from, pid)
		}
	}
}
