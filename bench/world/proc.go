package world

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of CPU time in /proc: USER_HZ is 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// stat is what /proc/PID/stat tells of a process.
type stat struct {
	parent int
	// cpu is user and system time of the process and of the children that it has waited for, theirs included.
	cpu time.Duration
}

// parseStat reads the text of /proc/PID/stat. The name of the process, in parentheses, may hold spaces and parentheses itself.
func parseStat(text string) (stat, error) {
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return stat{}, fmt.Errorf("stat: no name in parentheses in %q", text)
	}
	fields := strings.Fields(text[end+1:])
	if len(fields) < 15 {
		return stat{}, fmt.Errorf("stat: %d fields after the name, at least 15 are needed", len(fields))
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return stat{}, fmt.Errorf("stat: parent: %w", err)
	}
	s := stat{parent: parent}
	for _, f := range fields[11:15] { // utime, stime, cutime, cstime
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return stat{}, fmt.Errorf("stat: CPU time: %w", err)
		}
		s.cpu += time.Duration(ticks) * tick
	}
	return s, nil
}

// parseWritten reads from the text of /proc/PID/io how many bytes the process, and children that it has waited for, caused to be written to the disk.
func parseWritten(text string) (int64, error) { return labelled(text, "write_bytes:", "") }

// parsePSS reads from the text of /proc/PID/smaps_rollup the memory of the process in bytes, with what it shares divided among those who share it.
func parsePSS(text string) (int64, error) {
	kib, err := labelled(text, "Pss:", " kB")
	return kib << 10, err
}

func labelled(text, label, unit string) (int64, error) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, label); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), unit)), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s %w", label, err)
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("no line %q", label)
}

// family returns the processes among parents (child → parent) that are one of the roots or descend from one, roots included where they live.
func family(parents map[int]int, roots []int) []int {
	in := make(map[int]bool, len(parents))
	for _, r := range roots {
		in[r] = true
	}
	var out []int
	for pid := range parents {
		for at, steps := pid, 0; at > 0 && steps < 100; at, steps = parents[at], steps+1 {
			if in[at] {
				out = append(out, pid)
				break
			}
		}
	}
	return out
}

// processes returns the stat of every process that there is.
func processes() (map[int]stat, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	out := make(map[int]stat, len(entries))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := readOf(pid, "stat")
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s, err := parseStat(text)
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
		out[pid] = s
	}
	return out, nil
}

func readOf(pid int, file string) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	return string(b), err
}

// gone tells whether a process ended between its listing and its reading.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }
