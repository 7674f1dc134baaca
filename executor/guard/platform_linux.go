package guard

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownBinary is this very file, even after an upgrade has replaced it on disk: executor and guard must be of one build.
func ownBinary() (string, error) { return "/proc/self/exe", nil }

// adoptDescendants makes orphans of the tree children of this process, and keeps descriptors that were leaked into the guard from the command.
func adoptDescendants() error {
	// Kernels before 5.11 refuse the flag; leaked descriptors are then leaked as they always were.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

func commandAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

const (
	oomScoreFile = "/proc/self/oom_score_adj"
	// oomScore, of 1000: a command that eats the memory is killed before its guard and its executor.
	oomScore = 500
)

// preferAsOOMVictim raises the score that the command inherits and returns what sets the guard's own back. A machine that does not let us
// is no reason to refuse a run.
func preferAsOOMVictim() func() {
	before, err := os.ReadFile(oomScoreFile)
	if err != nil {
		return func() {}
	}
	if score, err := strconv.Atoi(strings.TrimSpace(string(before))); err != nil || score >= oomScore {
		return func() {}
	}
	if os.WriteFile(oomScoreFile, []byte(strconv.Itoa(oomScore)), 0) != nil {
		return func() {}
	}
	return func() { _ = os.WriteFile(oomScoreFile, before, 0) }
}

// descendants lists the processes below this one. The kernel's own lists of children cost as much as the tree is large; where they are not
// built in, all processes of the machine are looked at.
func descendants() []int {
	if below, err := descendantsByLists(os.Getpid()); err == nil {
		return below
	}
	return descendantsByScan(os.Getpid())
}

func descendantsByLists(root int) ([]int, error) {
	found, err := children(root)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(found); i++ {
		// A process that has gone meanwhile has left its children to us.
		if below, err := children(found[i]); err == nil {
			found = append(found, below...)
		}
	}
	return found, nil
}

func children(pid int) ([]int, error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, task := range tasks {
		list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		if os.IsNotExist(err) && task.Name() == strconv.Itoa(pid) {
			return nil, err
		}
		for _, field := range strings.Fields(string(list)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids, nil
}

func descendantsByScan(root int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	below := map[int][]int{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if parent, ok := parentOf(pid); ok {
			below[parent] = append(below[parent], pid)
		}
	}
	found := below[root]
	for i := 0; i < len(found); i++ {
		found = append(found, below[found[i]]...)
	}
	return found
}

func parentOf(pid int) (int, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// The name, in parentheses, may hold anything; state and parent follow the last one.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, err == nil
}
