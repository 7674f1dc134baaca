package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	// upLimit is how long a process may take until it answers, downLimit until it has ended.
	upLimit, downLimit = 60 * time.Second, 30 * time.Second
	probeEvery         = 20 * time.Millisecond
)

// process is a server that the benchmark started.
type process struct {
	name string
	cmd  *exec.Cmd
	end  syscall.Signal
	said *tail
	done chan struct{} // closed when it has ended

	once sync.Once
	err  error
}

// startProcess starts cmd, which ends by the signal end, and returns when probe succeeds.
func startProcess(ctx context.Context, name string, cmd *exec.Cmd, end syscall.Signal, probe func(context.Context) error) (*process, error) {
	p := &process{name: name, cmd: cmd, end: end, said: &tail{}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.said, p.said
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// A Ctrl-C is for us alone, and should we be killed, it ends as well.
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGQUIT
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = cmd.Wait() // how it ends is told by what it said
		close(p.done)
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, upLimit, fmt.Errorf("it does not answer %s after its start", upLimit))
	defer cancel()
	for {
		err := probe(ctx)
		if err == nil {
			return p, nil
		}
		select {
		case <-p.done:
			return nil, fmt.Errorf("start %s: it ended at once and said:\n%s", name, p.said)
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("start %s: %w: %w; it said:\n%s", name, context.Cause(ctx), err, p.said), p.stop())
		case <-time.After(probeEvery):
		}
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop asks the process to end and returns when it has. It may be called more than once.
func (p *process) stop() error {
	p.once.Do(func() {
		_ = p.cmd.Process.Signal(p.end) // it may have ended
		limit := time.NewTimer(downLimit)
		defer limit.Stop()
		select {
		case <-p.done:
		case <-limit.C:
			_ = p.cmd.Process.Kill()
			<-p.done
			p.err = fmt.Errorf("%s had to be killed %s after %s; it said:\n%s", p.name, downLimit, p.end, p.said)
		}
	})
	return p.err
}

// tail keeps the end of what a process says.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if extra := len(t.text) - tailSize; extra > 0 {
		t.text = t.text[extra:]
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.text))
}

// unprivileged is whom PostgreSQL, which refuses root, runs as: nil, the caller, or where the caller is root its usual user or nobody.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	var failed []error
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(errUID, errGID); err != nil {
			failed = append(failed, fmt.Errorf("user %s: %w", name, err))
			continue
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no other user to run it: %w", errors.Join(failed...))
}
