package guard

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fixtureEnv makes the test binary play one of the commands below instead of running tests.
const fixtureEnv = "GUARD_FIXTURE"

const noRaceDelay = "atexit_sleep_ms=0"

var fixtureEnviron = []string{fixtureEnv + "=1", "GORACE=" + noRaceDelay}

func TestMain(m *testing.M) {
	if Main() {
		return
	}
	if os.Getenv(fixtureEnv) != "" {
		os.Exit(play(os.Args[1], os.Args[2:]))
	}
	// Guards take this over: the race detector otherwise delays the end of each process by a second.
	if err := os.Setenv("GORACE", noRaceDelay); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// fixture is the command that plays mode.
func fixture(t *testing.T, mode string, args ...string) Command {
	t.Helper()
	return Command{Argv: append([]string{ownPath(), mode}, args...), Env: slices.Clone(fixtureEnviron)}
}

func ownPath() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

func play(mode string, args []string) int {
	switch mode {
	case "exit":
		code, _ := strconv.Atoi(args[0])
		return code
	case "signal":
		number, _ := strconv.Atoi(args[0])
		_ = syscall.Kill(os.Getpid(), syscall.Signal(number))
		return block()
	case "say":
		fmt.Print(args[0])
		fmt.Fprint(os.Stderr, args[1])
		return 0
	case "cat":
		if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
			return 1
		}
		return 0
	case "surroundings":
		dir, _ := os.Getwd()
		fmt.Println(dir)
		for _, entry := range os.Environ() {
			fmt.Println(entry)
		}
		fmt.Println(strings.Join(args, "\x00"))
		return 0
	case "burn":
		for begin := time.Now(); time.Since(begin) < 200*time.Millisecond; {
			continue
		}
		return 0
	case "block":
		return block()
	case "polite":
		// Ends with its own code on SIGTERM.
		terms := make(chan os.Signal, 1)
		signal.Notify(terms, syscall.SIGTERM)
		beat(args[0], terms)
		return 42
	case "close":
		// Has nothing more to say, and works on.
		fmt.Print(args[0])
		_ = os.Stdout.Close()
		return block()
	case "beat":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		beat(args[0], nil)
		return 0
	case "hop":
		return hop(args[0])
	case "fork":
		// Starts the rest of the arguments in a session of their own, and ends.
		return spawn(args[0], args[1:]...)
	case "family":
		return family(args[0], args[1])
	case "executor":
		return playExecutor(args[0], args[1])
	}
	fmt.Fprintln(os.Stderr, "unknown fixture", mode)
	return 99
}

// block returns only through a signal's death.
func block() int {
	never := make(chan os.Signal, 1)
	signal.Notify(never, syscall.SIGUSR2)
	<-never
	return 98
}

// beat appends the instant to a file of its own in dir every millisecond until end has something.
func beat(dir string, end <-chan os.Signal) {
	file, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(os.Getpid())), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	tick := time.NewTicker(time.Millisecond)
	for {
		fmt.Fprintln(file, int64(now()))
		select {
		case <-end:
			return
		case <-tick.C:
		}
	}
}

func spawn(mode string, args ...string) int {
	child := exec.Command(ownPath(), append([]string{mode}, args...)...)
	// It holds on to the run's output.
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 97
	}
	return 0
}

// hop is a process that is never the same for long: each leaves its pid, starts the next in a new session and ends.
func hop(dir string) int {
	if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(os.Getpid())), nil, 0o600); err != nil {
		return 96
	}
	return spawn("hop", dir)
}

// family leaves one process in its own session below it, one that was forked twice, one in the same group, and itself; all ignore SIGTERM. When all
// beat, it goes on beating itself, or exits with 7 if last is "exit".
func family(dir, last string) int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	spawn("beat", dir)
	if err := exec.Command(ownPath(), "fork", "fork", "beat", dir).Run(); err != nil {
		return 95
	}
	same := exec.Command(ownPath(), "beat", dir)
	same.Stdout = os.Stdout
	if err := same.Start(); err != nil {
		return 94
	}
	if last == "exit" {
		for range time.Tick(2 * time.Millisecond) {
			if len(beaters(dir)) == 3 {
				return 7
			}
		}
	}
	beat(dir, nil)
	return 0
}

// playExecutor runs a family under a guard, feeds it, says the pids of command and guard, and at the end how it ended.
func playExecutor(dir, lease string) int {
	length, _ := time.ParseDuration(lease)
	c := Command{Argv: []string{ownPath(), "family", dir, "stay"}, Env: fixtureEnviron}
	p, err := Start(context.Background(), c, time.Now().Add(time.Minute))
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	for range time.Tick(2 * time.Millisecond) {
		if len(beaters(dir)) == 4 {
			break
		}
	}
	feed := time.NewTicker(length / 10)
	fed := p.Feed(time.Now().Add(length))
	fmt.Println(p.Pid(), p.guard.Process.Pid)
	for fed == nil {
		<-feed.C
		fed = p.Feed(time.Now().Add(length))
	}
	exit, err := p.Wait()
	fmt.Println(exit.Reason, exit.Signal, err)
	return 0
}

// beaters are the pids that have written to dir.
func beaters(dir string) []int {
	entries, _ := os.ReadDir(dir)
	var pids []int
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && info.Size() > 0 {
			pid, _ := strconv.Atoi(entry.Name())
			pids = append(pids, pid)
		}
	}
	return pids
}

// lastBeat is the latest instant that any process has written to dir.
func lastBeat(t *testing.T, dir string) instant {
	t.Helper()
	var last instant
	for _, pid := range beaters(dir) {
		text, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(pid)))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Fields(string(text))
		at, err := strconv.ParseInt(lines[len(lines)-1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		last = max(last, instant(at))
	}
	return last
}

// gone reports whether the process runs no more; a zombie, which only waits for its parent to look, does not run.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func allGone(pids []int) bool {
	for _, pid := range pids {
		if !gone(pid) {
			return false
		}
	}
	return true
}

// waitFor looks every two milliseconds; what is waited for happens in another process that has no other way to tell.
func waitFor(t *testing.T, what string, happened func() bool) {
	t.Helper()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	limit := time.After(30 * time.Second)
	for !happened() {
		select {
		case <-look.C:
		case <-limit:
			t.Fatalf("waited 30 s in vain until %s", what)
		}
	}
}
