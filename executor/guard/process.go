package guard

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// orderTimeout bounds how long an order waits for a guard that does not read while the pipe is full; after it the pipe is closed, which the guard takes as
	// the executor's death.
	orderTimeout = 10 * time.Second
	// pipeDelay bounds how long Wait waits for the ends of the output pipes after the guard has ended. It only matters when a descendant
	// survived its guard, or an output writer blocks.
	pipeDelay = 2 * time.Second
)

// Process is a command that runs under its guard. Its methods may be called at any time and by several goroutines at once.
type Process struct {
	guard   *exec.Cmd
	pid     int
	reports *gob.Decoder

	mu     sync.Mutex
	pipe   *os.File
	orders *gob.Encoder
	closed bool

	done chan struct{}
	exit Exit
	err  error
}

// Start starts the command under a guard that kills it at until unless it is fed before. It returns when the command is running, or a
// *StartError that says why it is not; then nothing is left of it. The end of ctx kills the tree at once, like Kill; if ctx is over
// already, its cause is returned.
//
// until should come from time.Now, so that it is compared on the monotonic clock.
func Start(ctx context.Context, c Command, until time.Time) (*Process, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if os.Getenv(marker) != "" {
		// Otherwise a program that forgot the call would start itself without end.
		return nil, &StartError{Field: "guard", Err: errNoMain}
	}
	path, err := resolve(c)
	if err != nil {
		return nil, err
	}
	p := &Process{done: make(chan struct{})}
	reports, err := p.startGuard(c)
	if err != nil {
		return nil, &StartError{Field: "guard", Err: err}
	}
	// Errors of this order show as a missing report.
	_ = p.send(order{Start: &startOrder{Path: path, Argv: c.Argv, Env: c.Env, Dir: c.Dir}, Until: deadline(until)})
	release := context.AfterFunc(ctx, p.Kill)

	var first report
	decodeErr := p.reports.Decode(&first)
	if decodeErr != nil || first.Started == 0 {
		release()
		p.closeOrders()
		waitErr := p.guard.Wait()
		_ = reports.Close()
		return nil, startError(c, path, first, decodeErr, waitErr)
	}
	p.pid = first.Started
	go func() {
		defer close(p.done)
		defer release()
		p.exit, p.err = p.watch()
		p.closeOrders()
		_ = reports.Close()
	}()
	return p, nil
}

// startGuard executes the guard with its two pipes; the caller closes the returned end.
func (p *Process) startGuard(c Command) (*os.File, error) {
	self, err := ownBinary()
	if err != nil {
		return nil, err
	}
	ordersRead, ordersWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ordersRead.Close()
	reportsRead, reportsWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, ordersWrite.Close())
	}
	defer reportsWrite.Close()

	p.guard = &exec.Cmd{
		Path: self, Args: []string{processName}, Env: guardEnv(),
		Stdout: c.Stdout, Stderr: c.Stderr, ExtraFiles: []*os.File{ordersRead, reportsWrite},
		// A session of its own keeps the terminal's Ctrl-C, meant for the executor, from the guard.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		WaitDelay:   pipeDelay,
	}
	var stdin io.WriteCloser
	if file, ok := c.Stdin.(*os.File); ok {
		p.guard.Stdin = file
	} else if c.Stdin != nil {
		if stdin, err = p.guard.StdinPipe(); err != nil {
			return nil, errors.Join(err, ordersWrite.Close(), reportsRead.Close())
		}
	}
	if err := p.guard.Start(); err != nil {
		return nil, errors.Join(err, ordersWrite.Close(), reportsRead.Close())
	}
	if stdin != nil {
		go func() {
			// A command that does not read its input to the end is not at fault.
			_, _ = io.Copy(stdin, c.Stdin)
			_ = stdin.Close()
		}()
	}
	p.pipe, p.orders, p.reports = ordersWrite, gob.NewEncoder(ordersWrite), gob.NewDecoder(reportsRead)
	return reportsRead, nil
}

// guardEnv is small, for the guard needs nothing; a build with race detector or coverage is set up like its executor's.
func guardEnv() []string {
	env := []string{marker + "=1", "GOMAXPROCS=1"}
	for _, key := range []string{"GORACE", "GOCOVERDIR", "GODEBUG"} {
		if value, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+value)
		}
	}
	return env
}

func startError(c Command, path string, first report, decodeErr, waitErr error) error {
	switch {
	case first.LeaseOver:
		return &StartError{Field: "until", Err: errLeaseOver}
	case first.Errno != 0:
		return &StartError{Field: "argv[0]", Value: c.Argv[0], Err: fmt.Errorf("execute %q: %w", path, syscall.Errno(first.Errno))}
	default:
		return &StartError{Field: "guard", Err: fmt.Errorf("%w: %w", errNoReport, errors.Join(decodeErr, waitErr))}
	}
}

// watch waits for the guard's report and end. Wait of the guard also waits for the output to be copied, which ends because the tree is dead.
func (p *Process) watch() (Exit, error) {
	var last report
	decodeErr := p.reports.Decode(&last)
	waitErr := p.guard.Wait()
	if decodeErr != nil || last.Exit == nil {
		// The kernel has sent SIGKILL to the command; its group is still to be killed. ESRCH means that nothing is left.
		_ = unix.Kill(-p.pid, unix.SIGKILL)
		return Exit{Code: -1, Reason: ReasonGuardLost}, fmt.Errorf("the guard of process %d died: %w", p.pid, errors.Join(decodeErr, waitErr))
	}
	e := last.Exit
	exit := Exit{Code: e.Code, Reason: e.Reason, KilledAt: e.KilledAt, UserTime: e.UserTime, SystemTime: e.SystemTime, Stragglers: e.Stragglers}
	if e.Signal != 0 {
		exit.Signal = unix.SignalName(syscall.Signal(e.Signal))
	}
	if waitErr != nil {
		return exit, fmt.Errorf("copy the output of process %d: %w", p.pid, waitErr)
	}
	return exit, nil
}

// Feed moves the end of the lease to until. It must be called before the lease in force is over: a guard that finds it over kills, even if a
// later order is waiting. It returns ErrEnded when there is nothing left to feed.
func (p *Process) Feed(until time.Time) error { return p.send(order{Until: deadline(until)}) }

// Stop asks the command to end: SIGTERM to its process group now, SIGKILL to the tree after grace. When the command ends within grace,
// what is left of its tree is killed at once. A second Stop can only shorten the grace. It does not wait.
func (p *Process) Stop(grace time.Duration) {
	// An error means that the tree is dead, or that the closed pipe makes the guard kill it.
	_ = p.send(order{Stop: true, Grace: max(grace, 0)})
}

// Kill sends SIGKILL to the tree now. It does not wait.
func (p *Process) Kill() { _ = p.send(order{Kill: true}) }

// Wait waits until the whole tree is dead and its output is copied, and says how the command ended. It may be called more than once. The
// error is not nil if the guard was lost or output could not be copied; Exit is valid in both cases.
func (p *Process) Wait() (Exit, error) {
	<-p.done
	return p.exit, p.err
}

// Pid is the process id of the command itself, also the id of its process group and session.
func (p *Process) Pid() int { return p.pid }

func (p *Process) send(o order) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrEnded
	}
	err := p.pipe.SetWriteDeadline(time.Now().Add(orderTimeout))
	if err == nil {
		err = p.orders.Encode(o)
	}
	if err != nil {
		// Half an order may be in the pipe: nothing more can be said, and the guard must not wait for it.
		p.closed = true
		return fmt.Errorf("%w: %w", ErrEnded, errors.Join(err, p.pipe.Close()))
	}
	return nil
}

func (p *Process) closeOrders() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		_ = p.pipe.Close()
	}
}
