package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// markVariable is in the environment of every process of a cluster and of what these start; its value is the cluster's folder.
const markVariable = "CHAOS_CLUSTER"

// FreePort finds an address that nobody listens on. It is below those that the kernel gives to outgoing connections, so none of them takes it while the process
// is down.
func FreePort() (string, error) {
	var last error
	for range 100 {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return "", fmt.Errorf("find a free port: %w", err)
		}
		port := 10_000 + l.Addr().(*net.TCPAddr).Port%20_000
		_ = l.Close() // nothing was sent
		address := fmt.Sprintf("127.0.0.1:%d", port)
		if l, last = net.Listen("tcp4", address); last == nil {
			return address, l.Close()
		}
	}
	return "", fmt.Errorf("find a free port: %w", last)
}

// portOf is the port of an address.
func portOf(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// baseEnvironment is the harness's own without settings of a Waterclock of the user's.
func baseEnvironment(dir string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "WATERCLOCK_") })
	return append(env, markVariable+"="+dir)
}

// marked lists the processes that belong to a cluster, with what they run.
func marked(dir string) (map[int]string, error) {
	found := map[int]string{}
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	mark := []byte(markVariable + "=" + dir + "\x00")
	for _, folder := range folders {
		env, err := os.ReadFile(filepath.Join(folder, "environ"))
		if err != nil || !bytes.Contains(append(env, 0), mark) {
			continue // gone meanwhile, or of another user
		}
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(folder, "cmdline")) // empty where it has gone meanwhile
		found[pid] = string(bytes.ReplaceAll(bytes.TrimRight(line, "\x00"), []byte{0}, []byte{' '}))
	}
	return found, nil
}

// sweep waits until no process of the cluster is left. What outlives the limit is killed, and an error: guards end by themselves once their executor has.
func sweep(dir string, limit time.Duration) error {
	for over := time.Now().Add(limit); ; {
		left, err := marked(dir)
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
		for pid, line := range left {
			errs = append(errs, fmt.Errorf("process %d outlives the cluster by %s: %s", pid, limit, line))
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				errs = append(errs, fmt.Errorf("kill process %d: %w", pid, err))
			}
		}
		return errors.Join(errs...)
	}
}

// descendants lists the processes below one, the parents first.
func descendants(pid int) []int {
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
