package guard

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// slack is what a busy machine may add between the end of a lease and the last trace of the command.
const slack = 750 * time.Millisecond

var notKilledAt = cmpopts.IgnoreFields(Exit{}, "KilledAt")

// endsWhole waits for the end of p and checks that no process that wrote to dir outlived Wait.
func endsWhole(t *testing.T, p *Process, dir string, members int) Exit {
	t.Helper()
	exit := wait(t, p)
	pids := beaters(dir)
	if len(pids) != members {
		t.Errorf("%d processes left a trace, want %d", len(pids), members)
	}
	if !allGone(pids) {
		t.Errorf("some of %v outlived Wait", pids)
	}
	return exit
}

func TestStopKillsTheTree(t *testing.T) {
	t.Parallel()
	dir, out := t.TempDir(), bytes.Buffer{}
	c := fixture(t, "family", dir, "stay")
	c.Stdout = &out
	p := start(t, c, long())
	waitFor(t, "the family beats", func() bool { return len(beaters(dir)) == 4 })
	p.Stop(time.Hour)
	asked := time.Now() // before the word is sent: the guard counts from when it gets it
	p.Stop(50 * time.Millisecond)
	exit := endsWhole(t, p, dir, 4)
	want := Exit{Code: -1, Signal: "SIGKILL", Reason: ReasonStopped}
	if diff := cmp.Diff(want, exit, notKilledAt); diff != "" {
		t.Error(diff)
	}
	if after := exit.KilledAt.Sub(asked); after < 40*time.Millisecond {
		t.Errorf("killed %v after the request, before the grace was over", after)
	}
}

func TestStopLetsACommandEndByItself(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, fixture(t, "polite", dir), long())
	waitFor(t, "it listens", func() bool { return len(beaters(dir)) == 1 })
	// Also when it is stopped itself.
	if err := syscall.Kill(p.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.Stop(time.Minute)
	if diff := cmp.Diff(Exit{Code: 42, Reason: ReasonStopped}, endsWhole(t, p, dir, 1)); diff != "" {
		t.Error(diff)
	}
}

func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, fixture(t, "family", dir, "stay"), long())
	waitFor(t, "the family beats", func() bool { return len(beaters(dir)) == 4 })
	p.Kill()
	if diff := cmp.Diff(Exit{Code: -1, Signal: "SIGKILL", Reason: ReasonStopped}, endsWhole(t, p, dir, 4), notKilledAt); diff != "" {
		t.Error(diff)
	}
}

func TestNothingOutlivesTheCommand(t *testing.T) {
	t.Parallel()
	dir, out := t.TempDir(), bytes.Buffer{}
	c := fixture(t, "family", dir, "exit")
	// The three that stay hold the pipe open; Wait must not wait for them.
	c.Stdout = &out
	p := start(t, c, long())
	if diff := cmp.Diff(Exit{Code: 7, Reason: ReasonExited, Stragglers: 3}, endsWhole(t, p, dir, 3)); diff != "" {
		t.Error(diff)
	}
}

func TestAProcessThatKeepsForkingAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, fixture(t, "fork", "hop", dir), long())
	if exit := wait(t, p); exit.Code != 0 || exit.Reason != ReasonExited {
		t.Errorf("exit %+v", exit)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		var pid int
		if _, err := fmt.Sscan(entry.Name(), &pid); err != nil || !gone(pid) {
			t.Errorf("hopper %q lives on (%v)", entry.Name(), err)
		}
	}
}

func TestFeeding(t *testing.T) {
	t.Parallel()
	dir, lease := t.TempDir(), 1500*time.Millisecond
	p := start(t, fixture(t, "beat", dir), long())
	waitFor(t, "it beats", func() bool { return len(beaters(dir)) == 1 })
	begin, fed := now(), time.Now()
	feed := time.NewTicker(lease / 15)
	defer feed.Stop()
	for now() < begin+instant(2*lease) {
		fed = time.Now()
		if err := p.Feed(fed.Add(lease)); err != nil {
			t.Fatalf("fed every %v it ended: %v", lease/15, err)
		}
		<-feed.C
	}
	exit := endsWhole(t, p, dir, 1)
	if diff := cmp.Diff(Exit{Code: -1, Signal: "SIGKILL", Reason: ReasonFenced}, exit, notKilledAt); diff != "" {
		t.Error(diff)
	}
	if after := exit.KilledAt.Sub(fed); after < lease-5*time.Millisecond || after > lease+slack {
		t.Errorf("killed %v after the last feed, want about %v", after, lease)
	}
}

func TestALeaseThatIsOverStaysOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, fixture(t, "beat", dir), long())
	guard := p.guard.Process.Pid
	waitFor(t, "it beats", func() bool { return len(beaters(dir)) == 1 })
	until := time.Now().Add(300 * time.Millisecond)
	if err := p.Feed(until); err != nil {
		t.Fatal(err)
	}
	// A machine that is frozen stops the guard too; what was fed late must not count when it thaws.
	if err := syscall.Kill(guard, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the lease is over", func() bool { return time.Now().After(until) })
	if err := p.Feed(long()); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(guard, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if exit := endsWhole(t, p, dir, 1); exit.Reason != ReasonFenced {
		t.Errorf("reason %q, want fenced", exit.Reason)
	}
}

// helper is an executor of its own process, which runs a family of four.
type helper struct {
	cmd            *exec.Cmd
	out            *bufio.Reader
	dir            string
	command, guard int
}

func startHelper(t *testing.T, lease time.Duration) *helper {
	t.Helper()
	h := &helper{dir: t.TempDir()}
	h.cmd = exec.Command(ownPath(), "executor", h.dir, lease.String())
	h.cmd.Env = fixtureEnviron
	pipe, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
		for _, pid := range beaters(h.dir) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	h.out = bufio.NewReader(pipe)
	if _, err := fmt.Fscanln(h.out, &h.command, &h.guard); err != nil {
		t.Fatalf("the executor does not run its command: %v", err)
	}
	return h
}

func TestExecutorStopped(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	h := startHelper(t, lease)
	if err := h.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := now()
	waitFor(t, "the family is dead", func() bool { return allGone(beaters(h.dir)) })
	after := time.Duration(lastBeat(t, h.dir) - stopped)
	t.Logf("last beat %v after the stop of the executor; its lease was %v, renewed at most %v before", after, lease, lease/10)
	if after > lease+slack {
		t.Errorf("the command worked for %v after the executor had stopped", after)
	}
	if after < lease/2 {
		t.Errorf("the command was dead after %v, long before its lease was over", after)
	}
	if err := h.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if line, err := h.out.ReadString('\n'); line != "fenced SIGKILL <nil>\n" {
		t.Errorf("the executor says %q (%v)", line, err)
	}
}

func TestExecutorKilled(t *testing.T) {
	t.Parallel()
	h := startHelper(t, time.Minute)
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "family and guard are gone", func() bool { return allGone(append(beaters(h.dir), h.guard)) })
}

func TestGuardKilledWhileTheExecutorIsStopped(t *testing.T) {
	t.Parallel()
	h := startHelper(t, time.Minute)
	if err := h.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(h.guard, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The kernel does it alone, for the command itself.
	waitFor(t, "the command is dead", func() bool { return gone(h.command) })
	if err := h.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	line, err := h.out.ReadString('\n')
	if !strings.HasPrefix(line, "guard lost ") {
		t.Errorf("the executor says %q (%v)", line, err)
	}
	// The rest of the group dies by the executor's hand; who had left the group is beyond reach, as the package comment says.
	waitFor(t, "the group is dead", func() bool { return syscall.Kill(-h.command, 0) != nil })
}

func TestGuardKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := fixture(t, "polite", dir)
	p := start(t, c, long())
	waitFor(t, "it beats", func() bool { return len(beaters(dir)) == 1 })
	if err := p.guard.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	exit, err := p.Wait()
	if diff := cmp.Diff(Exit{Code: -1, Reason: ReasonGuardLost}, exit); diff != "" || err == nil {
		t.Errorf("%s, error %v", diff, err)
	}
	waitFor(t, "the command is gone", func() bool { return gone(p.Pid()) })
}

func TestGuardIgnoresSignalsOfATerminal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, fixture(t, "polite", dir), long())
	waitFor(t, "it beats", func() bool { return len(beaters(dir)) == 1 })
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if err := p.guard.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	before := lastBeat(t, dir)
	waitFor(t, "it beats on", func() bool { return lastBeat(t, dir) > before+instant(50*time.Millisecond) })
	p.Stop(time.Minute)
	if exit := endsWhole(t, p, dir, 1); exit.Code != 42 {
		t.Errorf("exit %+v, want 42", exit)
	}
}

func TestCommandIsTheFirstOOMVictim(t *testing.T) {
	t.Parallel()
	p := start(t, fixture(t, "block"), long())
	score := func(pid int) string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	if got := score(p.Pid()); got != fmt.Sprint(oomScore) {
		t.Errorf("score %s of the command, want %d", got, oomScore)
	}
	if got, want := score(p.guard.Process.Pid), score(os.Getpid()); got != want {
		t.Errorf("score %s of the guard, want %s like the executor", got, want)
	}
	p.Kill()
	wait(t, p)
}

func TestDescendants(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, fixture(t, "family", dir, "stay"), long())
	waitFor(t, "the family beats", func() bool { return len(beaters(dir)) == 4 })
	guard := p.guard.Process.Pid
	var byLists []int
	// The process that forked twice may still be on its way out.
	waitFor(t, "both ways find the same four", func() bool {
		var err error
		if byLists, err = descendantsByLists(guard); err != nil {
			t.Fatal(err)
		}
		byScan := descendantsByScan(guard)
		slices.Sort(byLists)
		slices.Sort(byScan)
		return len(byLists) == 4 && slices.Equal(byLists, byScan)
	})
	want := beaters(dir)
	slices.Sort(want)
	if diff := cmp.Diff(want, byLists); diff != "" {
		t.Error(diff)
	}
	p.Kill()
	wait(t, p)
}

func TestNoLeakedDescriptors(t *testing.T) {
	t.Parallel()
	p := start(t, fixture(t, "block"), long())
	links := func() []string {
		entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Pid()))
		var found []string
		for _, entry := range entries {
			link, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", p.Pid(), entry.Name()))
			if strings.HasPrefix(link, "pipe:") {
				found = append(found, link)
			}
		}
		return found
	}
	if got := links(); len(got) != 0 {
		t.Errorf("the command holds pipes of its guard: %v", got)
	}
	p.Kill()
	wait(t, p)
}
