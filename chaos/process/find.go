package process

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// mark is in the environment of every process that has an Environment, and of what inherits it; its value is the folder of the run.
const mark = "CHAOS_RUN"

// Environment is the caller's own without settings of a Waterclock of the user's, and marked with a folder, by which Sweep knows it.
func Environment(dir string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "WATERCLOCK_") })
	return append(env, Mark(dir))
}

// Mark is what marks an environment.
func Mark(dir string) string { return mark + "=" + dir }

// Find lists the processes, without the caller, that have an entry in a file of /proc whose entries end with a zero: "environ", "cmdline".
func Find(file, entry string) ([]int, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/" + file)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, path := range paths {
		entries, err := os.ReadFile(path)
		if err != nil || !slices.Contains(strings.Split(string(entries), "\x00"), entry) {
			continue // gone meanwhile, or of another user
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && pid != os.Getpid() {
			out = append(out, pid)
		}
	}
	return out, nil
}

// Sweep waits until no process that is marked with a folder is left. What outlives the limit is killed, and an error: guards end by themselves once their executor
// has.
func Sweep(dir string, limit time.Duration) error {
	for over := time.Now().Add(limit); ; {
		left, err := Find("environ", Mark(dir))
		if err != nil {
			return fmt.Errorf("look for processes that are left: %w", err)
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().Before(over) {
			<-time.After(20 * time.Millisecond) // no event tells of the end of a process that is not a child
			continue
		}
		var errs []error
		for _, pid := range left {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // empty where it has gone meanwhile
			errs = append(errs, fmt.Errorf("process %d outlives the run by %s: %s", pid, limit, bytes.ReplaceAll(bytes.TrimRight(line, "\x00"), []byte{0}, []byte{' '})))
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				errs = append(errs, fmt.Errorf("kill process %d: %w", pid, err))
			}
		}
		return errors.Join(errs...)
	}
}

// Descendants lists the processes below one, the parents first.
func Descendants(pid int) []int {
	var out []int
	for next := []int{pid}; len(next) > 0; {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", next[0], next[0])) // none where it has gone
		next = next[1:]
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				out, next = append(out, child), append(next, child)
			}
		}
	}
	return out
}

// FreeAddress finds an address of 127.0.0.1 that nobody listens on. Its port is below those that the kernel gives to outgoing connections, so none of them takes it
// while the process is down. No address is handed out twice.
func FreeAddress() (string, error) {
	ports.Lock()
	defer ports.Unlock()
	if ports.next == 0 {
		ports.next = lowestPort + rand.IntN(portCount)
	}
	var last error
	for range portCount {
		port := ports.next
		ports.next = lowestPort + (port+1-lowestPort)%portCount
		address := fmt.Sprintf("127.0.0.1:%d", port)
		var l net.Listener
		if l, last = net.Listen("tcp4", address); last == nil {
			return address, l.Close()
		}
	}
	return "", fmt.Errorf("find a free port: %w", last)
}

// The ports that are handed out, below those that a system gives to connections; ports remembers which comes next, as what is handed out may not be listened on yet.
const (
	lowestPort = 10_000
	portCount  = 20_000
)

var ports struct {
	sync.Mutex
	next int
}
