package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is the process that is measured.
type server struct {
	cmd        *exec.Cmd
	http, nats string
	ended      chan error
}

// startServer starts "waterclock dev" with nothing kept, and returns when it says where it listens.
func startServer(ctx context.Context, binary string) (*server, error) {
	s := &server{ended: make(chan error, 1)}
	s.cmd = exec.Command(binary, "dev", "--ephemeral", "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0")
	s.cmd.Stderr = os.Stderr
	// Should this process be killed, so is the server.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	ready := make(chan struct{})
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			switch name, address, _ := strings.Cut(lines.Text(), "   "); name {
			case "HTTP":
				s.http = strings.TrimSpace(address)
			case "NATS":
				s.nats = strings.TrimSpace(address)
				if s.http != "" {
					close(ready)
				}
			}
		}
		s.ended <- s.cmd.Wait()
	}()
	select {
	case <-ready:
		return s, nil
	case err := <-s.ended:
		return nil, errors.Join(errors.New("it ended before it was ready"), err)
	case <-ctx.Done():
	case <-time.After(30 * time.Second):
	}
	s.stop()
	return nil, errors.New("it was not ready within 30s")
}

// stop ends the process, by force where it takes too long.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(15 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

// idle is what the process costs while it has nothing to do.
type idle struct {
	resident   int64   // bytes
	cpuPercent float64 // of one core
}

func (s *server) watchIdle(ctx context.Context, d time.Duration) (idle, error) {
	// What the submits left behind (checkpoints, garbage) is not idleness.
	if err := wait(ctx, 3*time.Second); err != nil {
		return idle{}, err
	}
	before, err := s.cpu()
	if err != nil {
		return idle{}, err
	}
	began := time.Now()
	if err := wait(ctx, d); err != nil {
		return idle{}, err
	}
	after, err := s.cpu()
	if err != nil {
		return idle{}, err
	}
	gone := time.Since(began)
	resident, err := s.resident()
	return idle{resident, 100 * (after - before).Seconds() / gone.Seconds()}, err
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// cpu reads how much time the process has had of a core, from fields 14 and 15 of /proc/PID/stat, in ticks of 10 ms.
func (s *server) cpu() (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The name in parentheses may hold spaces.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/PID/stat has %d fields", len(fields))
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

func (s *server) resident() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("/proc/PID/status has no VmRSS")
}
