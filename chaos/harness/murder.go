package harness

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// murder kills the executor that this process works for: an ancestor of its own, beyond the guard that stands between.
func murder() error {
	pid, err := executorAbove("/proc", os.Getppid())
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill executor %d: %w", pid, err)
	}
	return nil
}

// executorAbove walks up from a process to the one that is an executor of Waterclock and nothing else. A host with all roles in one process is not: killing
// that would be the end of more than an executor.
func executorAbove(proc string, pid int) (int, error) {
	for pid > 1 {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			return 0, fmt.Errorf("look for the executor: %w", err)
		}
		args := strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
		if args[0] != "waterclock-guard" { // which is the same binary
			if slices.Contains(args[1:], "executor") {
				return pid, nil
			}
			return 0, fmt.Errorf("process %d above is %q; wanted: an executor", pid, args)
		}
		status, err := os.ReadFile(filepath.Join(dir, "status"))
		if err != nil {
			return 0, fmt.Errorf("look for the executor: %w", err)
		}
		if pid, err = parentOf(status); err != nil {
			return 0, err
		}
	}
	return 0, errors.New("no executor above: the guard is an orphan")
}

func parentOf(status []byte) (int, error) {
	for line := range bytes.Lines(status) {
		if rest, found := bytes.CutPrefix(line, []byte("PPid:")); found {
			return strconv.Atoi(string(bytes.TrimSpace(rest)))
		}
	}
	return 0, errors.New("a process has no parent")
}
