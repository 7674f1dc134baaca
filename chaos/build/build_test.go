package build

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterclock-io/waterclock/internal/failpoint"
)

func TestSkewTimeRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"func Now() Time {\n\tsec, nsec, mono := clock()\n": "is there 0 times; allowed: once",
		plainNow + plainNow:                   "is there 2 times; allowed: once",
		plainNow + "}\nfunc skewedNow() {}\n": "has a skewedNow already",
	} {
		if got, err := skewTime(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("skewTime(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
}

// The wall clock is wrong by what was asked for, and all that does not depend on it is right.
func TestSkew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "clock")
	if err := program(t.Context(), path, "./testdata/clock", nil); err != nil {
		t.Fatal(err)
	}
	for _, skew := range []string{"", "0s", "1h", "-1h", "30s", "-30.7s", "999999999ns", "-1ns"} {
		t.Run("skew="+skew, func(t *testing.T) {
			t.Parallel()
			want, _ := time.ParseDuration(skew) // zero for none
			cmd := exec.CommandContext(t.Context(), path)
			cmd.Env = append(os.Environ(), SkewVariable+"="+skew)
			before := time.Now()
			out, err := cmd.CombinedOutput()
			after := time.Now()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var wall, timer, deadline, conn, lasted int64
			if _, err := fmt.Sscan(string(out), &wall, &timer, &deadline, &conn, &lasted); err != nil {
				t.Fatalf("%q: %v", out, err)
			}
			if at := time.Unix(0, wall).Add(-want); at.Before(before) || at.After(after) {
				t.Errorf("its wall clock said %v, which is %v from the true one; want %v", time.Unix(0, wall), time.Unix(0, wall).Sub(before), want)
			}
			most := after.Sub(before).Milliseconds()
			for name, took := range map[string]int64{"timer": timer, "deadline of a context": deadline, "deadline of a connection": conn, "wall time of the timer": lasted} {
				if took < 99 || took > most {
					t.Errorf("%s of 100 ms took %d ms; all together took %d ms", name, took, most)
				}
			}
		})
	}
	cmd := exec.CommandContext(t.Context(), path)
	cmd.Env = append(os.Environ(), SkewVariable+"=an hour")
	if out, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(out, []byte(`WATERCLOCK_CLOCK_SKEW: time: invalid duration "an hour"`)) {
		t.Errorf("with a skew that is none: %v\n%s", err, out)
	}
}

// host is a waterclock that runs everything on a data folder.
type host struct {
	cmd  *exec.Cmd
	url  string
	done chan struct{}
	errs bytes.Buffer // to be read when done
}

func start(t *testing.T, binary, folder, armed string) *host {
	t.Helper()
	h := &host{done: make(chan struct{})}
	h.cmd = exec.CommandContext(t.Context(), binary, "dev", "--data.dir", folder, "--http.listen", "127.0.0.1:0", "--nats.listen", "127.0.0.1:0",
		"--lease.ack_wait", "2s", "--lease.heartbeat", "300ms", "--lease.margin", "300ms")
	h.cmd.Env = append(os.Environ(), failpoint.Variable+"="+armed)
	h.cmd.Stderr = &h.errs
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	up := make(chan string, 1)
	go func() {
		defer close(h.done)
		s := bufio.NewScanner(out)
		for s.Scan() {
			if url, ok := strings.CutPrefix(s.Text(), "HTTP   "); ok {
				up <- url
			}
		}
		_ = h.cmd.Wait() // how it ended is in its state
	}()
	t.Cleanup(func() {
		_ = h.cmd.Process.Kill() // fails where it has ended
		<-h.done
	})
	select {
	case h.url = <-up:
	case <-h.done:
		t.Fatalf("it did not come up: %v\n%s", h.cmd.ProcessState, h.errs.String())
	case <-time.After(time.Minute):
		t.Fatal("it did not come up within a minute")
	}
	return h
}

func TestDiesAtAPointAndComesBack(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	binary, ran := filepath.Join(folder, "waterclock"), filepath.Join(folder, "ran")
	if err := Waterclock(t.Context(), binary, TrueClock()); err != nil {
		t.Fatal(err)
	}
	submit := func(h *host, args ...string) error {
		args = append([]string{"submit", "--server", h.url, "--idempotency-key", "one"}, args...)
		cmd := exec.CommandContext(t.Context(), binary, append(args, "--", "/bin/sh", "-c", "echo $WATERCLOCK_DISPATCH >>"+strconv.Quote(ran))...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	}
	data := filepath.Join(folder, "data")

	first := start(t, binary, data, failpoint.PlannerMarked+"=kill@1")
	_ = submit(first) // the answer may not come any more: the job may be marked before
	select {
	case <-first.done:
	case <-time.After(20 * time.Second):
		t.Fatal("it went on")
	}
	if got := first.cmd.ProcessState.String(); got != "signal: killed" || !strings.HasSuffix(first.errs.String(), "failpoint planner.marked: killed at pass 1\n") {
		t.Fatalf("it ended by %q:\n%s", got, first.errs.String())
	}
	if _, err := os.Stat(ran); err == nil {
		t.Fatal("the job ran although its process died before it could be published")
	}

	second := start(t, binary, data, "")
	if err := submit(second, "--wait"); err != nil {
		t.Fatalf("the job did not succeed: %v", err)
	}
	// The first hand-over was marked and never published; so the second is the one that ran.
	if text, err := os.ReadFile(ran); err != nil || string(text) != "2\n" {
		t.Fatalf("it ran by the hand-overs %q, %v; want 2 alone", text, err)
	}
}
