package process

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// Ended is closed at the end of the process's last life; of one that was never started it is closed too.
func (p *Process) Ended() <-chan struct{} {
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

// Fate is how the last life of a process ended: "exit status 1", "signal: killed"; empty where it goes on, or never was.
func (p *Process) Fate() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.alive() {
		return ""
	}
	return p.cmd.ProcessState.String()
}

// Killed says whether the process's last life was ended by SIGKILL.
func (p *Process) Killed() bool {
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

// PID is 0 where the process is not running.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() {
		return 0
	}
	return p.cmd.Process.Pid
}

// Signal goes to the process alone, not to its group: an executor's guards are what looks after its commands. The error is os.ErrProcessDone where it does not run.
func (p *Process) Signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() {
		return fmt.Errorf("%s to %s: %w", s, p.o.Name, os.ErrProcessDone)
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("%s to %s: %w", s, p.o.Name, err)
	}
	return nil
}

// Kill is kill -9; it returns when the process is gone. The error says that there was none to kill.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	<-p.Ended()
	return err
}

// Stop is SIGSTOP, Cont its end. Of PostgreSQL they reach the postmaster alone.
func (p *Process) Stop() error { return p.Signal(syscall.SIGSTOP) }

// Cont is SIGCONT.
func (p *Process) Cont() error { return p.Signal(syscall.SIGCONT) }

// Terminate asks the process to end in order and returns when it has; where it does not end within the limit it is killed, and that is an error.
func (p *Process) Terminate(limit time.Duration) error {
	if err := p.Signal(p.o.End); err != nil {
		return err
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-p.Ended():
		return nil
	case <-t.C:
		_ = p.Kill() // it may have ended in this moment
		return fmt.Errorf("%s did not end within %s of %s (see %s)", p.o.Name, limit, p.o.End, p.log.Name())
	}
}
