// Package process starts the processes of a fault run, sends them signals, lets them die at failpoints, and sees what is left of them.
//
// It knows no roles and draws nothing: package chaos/cluster makes a deployment of such processes, package chaos/harness a single host of one. It is for Linux.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/waterclock-io/waterclock/chaos/fault"
)

const (
	// UpLimit is how long a process may take until it is up, all tries together.
	UpLimit = 2 * time.Minute
	// addressTries is how often a start is tried that finds its address in use: a command that was being started when its executor was killed holds the
	// executor's sockets for a moment, until it has been executed.
	addressTries = 20
	addressEvery = 100 * time.Millisecond
	probeEvery   = 25 * time.Millisecond
	probeLimit   = time.Second
)

// ErrEnded says that a process ended by itself while it started.
var ErrEnded = errors.New("the process ended while it started")

// Options say what a process is. All but Credential are needed.
type Options struct {
	Name string
	Path string
	Args []string
	// Env is the whole environment; a start can add to it.
	Env []string
	// Dir is the working folder.
	Dir string
	// LogDir is where NAME.log goes: what the process says, and between it what was done to it.
	LogDir string
	// Credential is whom it runs as; nil: as the caller.
	Credential *syscall.Credential
	// End is the signal that asks it to end in order.
	End syscall.Signal
	// Up is nil where the process answers. It is asked while the process starts.
	Up func(ctx context.Context) error
}

// Process keeps its name, address and data from one life to the next. Its methods may be called by several goroutines at once.
type Process struct {
	o   Options
	log *os.File

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed at the end of its last life
	life int64         // where its last life begins in the log
}

// New opens the log of a process, and starts nothing.
func New(o Options) (*Process, error) {
	log, err := os.OpenFile(filepath.Join(o.LogDir, o.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", o.Name, err)
	}
	return &Process{o: o, log: log}, nil
}

// Name is as in Options.
func (p *Process) Name() string { return p.o.Name }

// LogFile is the path of its log.
func (p *Process) LogFile() string { return p.log.Name() }

// Close closes the log of a process that runs no more.
func (p *Process) Close() error { return p.log.Close() }

// Start starts the process with variables added to its environment for this life, and returns once it is up. It must not be running. The error is ErrEnded where
// it ends before.
func (p *Process) Start(ctx context.Context, env ...string) error {
	return p.StartOther(ctx, p.o.Path, env...)
}

// StartOther is Start with another binary.
func (p *Process) StartOther(ctx context.Context, path string, env ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, UpLimit, fmt.Errorf("it is not up %s after its start", UpLimit))
	defer cancel()
	for tries := 1; ; tries++ {
		if err := p.launch(path, env); err != nil {
			return err
		}
		err := p.AwaitUp(ctx)
		if err == nil {
			return nil
		}
		if !errors.Is(err, ErrEnded) || tries == addressTries || !p.AddressInUse() {
			return fmt.Errorf("start %s (see %s): %w", p.o.Name, p.log.Name(), err)
		}
		if err := fault.Wait(ctx, addressEvery); err != nil {
			return err
		}
	}
}

// Launch runs the process and does not wait until it is up.
func (p *Process) Launch() error { return p.launch(p.o.Path, nil) }

func (p *Process) launch(path string, env []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alive() {
		return fmt.Errorf("start %s: it is running", p.o.Name)
	}
	info, err := p.log.Stat()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.o.Name, err)
	}
	p.life = info.Size()
	cmd := exec.Command(path, p.o.Args...)
	cmd.Dir, cmd.Env = p.o.Dir, append(append([]string(nil), p.o.Env...), env...)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	// Whatever becomes of this process, it leaves none behind; and a signal from the terminal is ours alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: p.o.Credential}
	p.Note("started with %q", env)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.o.Name, err)
	}
	p.cmd, p.done = cmd, make(chan struct{})
	go func(done chan struct{}) {
		_ = cmd.Wait() // killed, as a rule
		p.Note("ended: %s", cmd.ProcessState)
		close(done)
	}(p.done)
	return nil
}

// AwaitUp returns nil once the process answers, and ErrEnded where it ends before.
func (p *Process) AwaitUp(ctx context.Context) error {
	done := p.Ended()
	for {
		one, cancel := context.WithTimeout(ctx, probeLimit)
		err := p.o.Up(one)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-done:
			return ErrEnded
		case <-ctx.Done():
			return fmt.Errorf("%w; at last: %w", context.Cause(ctx), err)
		case <-time.After(probeEvery):
		}
	}
}

// AddressInUse tells whether the process has said in its last life that it cannot listen.
func (p *Process) AddressInUse() bool {
	return p.Said("address already in use") || p.Said("Address already in use")
}

// Said tells whether the process has written a text in its last life. What it writes is there at once.
func (p *Process) Said(text string) bool {
	p.mu.Lock()
	from := p.life
	p.mu.Unlock()
	log, err := os.Open(p.log.Name())
	if err != nil {
		return false
	}
	defer func() { _ = log.Close() }() // only read
	said, err := io.ReadAll(io.NewSectionReader(log, from, 1<<62))
	return err == nil && strings.Contains(string(said), text)
}

// Note puts a line of the fault run beside what the process says.
func (p *Process) Note(format string, args ...any) { Note(p.log, format, args...) }

// Note writes a line with the time into a log, for whoever reads it.
func Note(w io.Writer, format string, args ...any) {
	_, _ = io.WriteString(w, "--- "+time.Now().UTC().Format(time.RFC3339Nano)+" "+fmt.Sprintf(format, args...)+"\n") // nothing depends on it
}
