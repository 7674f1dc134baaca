package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/waterclock-io/waterclock/chaos/fault"
)

const (
	// upLimit is how long a process may take until it is up, all tries together.
	upLimit = 2 * time.Minute
	// addressTries is how often a start is tried that finds its address in use: a command that was being started when its executor was killed holds the
	// executor's sockets for a moment.
	addressTries = 20
	probeEvery   = 25 * time.Millisecond
	probeLimit   = time.Second
)

// errEnded says that a process ended by itself while it started.
var errEnded = errors.New("the process ended while it started")

// Process is a process of the deployment. It keeps its name, address and data from one life to the next. Its methods may be called by several goroutines at
// once; who wants it for himself for a while takes its turn (see turn).
type Process struct {
	name, role string
	turn       turn

	path, dir  string
	args, env  []string
	credential *syscall.Credential // nil: as the caller
	end        syscall.Signal      // asks it to end in order
	probe      func(ctx context.Context) error
	log        *os.File

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed at the end of its last life
}

// Name is the name by which Cluster.Process finds it: "executor-1".
func (p *Process) Name() string { return p.name }

// Role is "api", "planner", "recorder", "executor", "nats" or "sql".
func (p *Process) Role() string { return p.role }

// Start starts the process with variables added to its environment for this life, and returns once it is up. It must not be running.
func (p *Process) Start(ctx context.Context, env ...string) error {
	return p.start(ctx, p.path, env...)
}

func (p *Process) start(ctx context.Context, path string, env ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, upLimit, fmt.Errorf("it is not up %s after its start", upLimit))
	defer cancel()
	for tries := 1; ; tries++ {
		if err := p.launch(path, env...); err != nil {
			return err
		}
		err := p.awaitUp(ctx)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errEnded) || tries == addressTries || !p.addressInUse() {
			return fmt.Errorf("start %s (see %s): %w", p.name, p.log.Name(), err)
		}
		if err := fault.Wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// launch runs the process and does not wait until it is up.
func (p *Process) launch(path string, env ...string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alive() {
		return fmt.Errorf("start %s: it is running", p.name)
	}
	cmd := exec.Command(path, p.args...)
	cmd.Dir, cmd.Env = p.dir, append(append([]string(nil), p.env...), env...)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	// Whatever becomes of this process, it leaves none behind; and a signal from the terminal is ours alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: p.credential}
	p.note("started with %q", env)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.done = cmd, make(chan struct{})
	go func(done chan struct{}) {
		_ = cmd.Wait() // killed, as a rule
		p.note("ended: %s", cmd.ProcessState)
		close(done)
	}(p.done)
	return nil
}

// awaitUp returns nil once the process answers, and errEnded where it ends before.
func (p *Process) awaitUp(ctx context.Context) error {
	done := p.ended()
	for {
		one, cancel := context.WithTimeout(ctx, probeLimit)
		err := p.probe(one)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-done:
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("%w; at last: %w", context.Cause(ctx), err)
		case <-time.After(probeEvery):
		}
	}
}

// addressInUse tells whether the last life ended because it could not listen.
func (p *Process) addressInUse() bool {
	return strings.Contains(strings.ToLower(p.lastLife()), "address already in use")
}

// lastLife is what the process has said since it was started, or the end of that.
func (p *Process) lastLife() string {
	b, err := os.ReadFile(p.log.Name())
	if err != nil {
		return ""
	}
	text := string(b[max(0, len(b)-100_000):])
	return text[max(0, strings.LastIndex(text, "started with")):]
}

// ended is closed at the end of the process's last life.
func (p *Process) ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return p.done
}

// Running says whether the process was started and has not ended.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.alive()
}

// killed says whether the process's last life was ended by SIGKILL.
func (p *Process) killed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.alive() {
		return false
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// alive is Running for who holds mu.
func (p *Process) alive() bool {
	if p.done == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// pid is 0 where the process is not running.
func (p *Process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() {
		return 0
	}
	return p.cmd.Process.Pid
}

// signal goes to the process alone, not to its group: an executor's guards are what looks after its commands.
func (p *Process) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() {
		return fmt.Errorf("%s to %s: %w", s, p.name, os.ErrProcessDone)
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("%s to %s: %w", s, p.name, err)
	}
	return nil
}

// Kill is kill -9; it returns when the process is gone. The error says that there was none to kill.
func (p *Process) Kill() error {
	err := p.signal(syscall.SIGKILL)
	<-p.ended()
	return err
}

// Stop is SIGSTOP, Cont its end. Of PostgreSQL they reach the postmaster alone.
func (p *Process) Stop() error { return p.signal(syscall.SIGSTOP) }

// Cont is SIGCONT.
func (p *Process) Cont() error { return p.signal(syscall.SIGCONT) }

// Terminate asks the process to end in order and returns when it has; where it does not end within the limit it is killed, and that is an error.
func (p *Process) Terminate(limit time.Duration) error {
	if err := p.signal(p.end); err != nil {
		return err
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-p.ended():
		return nil
	case <-t.C:
		_ = p.Kill() // it may have ended in this moment
		return fmt.Errorf("%s did not end within %s of %s (see %s)", p.name, limit, p.end, p.log.Name())
	}
}

// note puts a line of the harness beside what the process says.
func (p *Process) note(format string, args ...any) {
	_, _ = io.WriteString(p.log, "--- "+time.Now().UTC().Format(time.RFC3339Nano)+" "+fmt.Sprintf(format, args...)+"\n") // for whoever reads it
}

// turn lets one fault at a time have what it belongs to: two at once could not say what either did.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// try takes the turn if nobody has it.
func (t turn) try() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t turn) release() { <-t }
