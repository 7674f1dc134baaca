package pgtest

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterclock-io/waterclock/internal/pgbin"
)

// orphanVariable makes the test binary start a cluster, tell about it and wait to be killed.
const orphanVariable = "PGTEST_ORPHAN"

func TestMain(m *testing.M) {
	if os.Getenv(orphanVariable) != "" {
		if err := orphan(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func orphan() error {
	bin, err := pgbin.Find()
	if err != nil {
		return err
	}
	c, err := start(bin, Options{}, true)
	if err != nil {
		return err
	}
	pidFile, err := os.ReadFile(filepath.Join(c.home.data(), "postmaster.pid"))
	if err != nil {
		return err
	}
	postmaster, _, _ := strings.Cut(string(pidFile), "\n")
	fmt.Println(c.server.supervisor.Process.Pid, postmaster, c.home.folder)
	if os.Getenv(orphanVariable) == "exits" {
		os.Exit(0)
	}
	select {}
}

// TestEndsWithItsProcess shows that neither PostgreSQL nor its folder outlives the test process, however that ends.
func TestEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	Require(t)
	for _, how := range []string{"exits", "is killed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), orphanVariable+"="+how)
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatalf("the process did not start its cluster: %v", err)
			}
			said := strings.Fields(line)
			folder := said[2]
			watches := []int{watch(t, said[0]), watch(t, said[1])}
			if how == "is killed" {
				if err := cmd.Process.Signal(unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			_ = cmd.Wait() // killed, or ended well
			for i, name := range []string{"supervisor", "postmaster"} {
				if watches[i] >= 0 {
					await(t, name, watches[i])
				}
			}
			if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the folder of the cluster is still there: %s, %v", folder, err)
			}
		})
	}
}

// watch returns a descriptor that turns readable when the process ends, and -1 if it has ended already.
func watch(t *testing.T, pid string) int {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(n, 0)
	if errors.Is(err, unix.ESRCH) {
		return -1
	}
	if err != nil {
		t.Fatalf("watch process %d: %v", n, err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func await(t *testing.T, name string, fd int) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(deadline).Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			t.Errorf("the %s outlives the test process (%v)", name, err)
		}
		return
	}
}
