package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/waterclock-io/waterclock/chaos/cluster"
	"github.com/waterclock-io/waterclock/chaos/fault"
)

// upLimit is how long a process may take to say where it listens; a start after a kill reads what the one before left.
const upLimit = 60 * time.Second

// hostSlots is more than the default: commands that wait need no processor.
const hostSlots = 40

// host is the single host: one `waterclock dev` at a time, always on the same ports and the same data. It is a world.
type host struct {
	args []string
	path string
	dir  string // data
	url  string
	nats string
	log  *os.File
	// lease is the AckWait of its executor.
	lease time.Duration

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
}

func newHost(o Options, dir string) (*host, error) {
	logFile, err := os.Create(filepath.Join(dir, "process.log"))
	if err != nil {
		return nil, fmt.Errorf("log of the process: %w", err)
	}
	h := &host{path: o.Binary, dir: filepath.Join(dir, "data"), log: logFile, lease: o.Lease}
	var ports [2]string
	for i := range ports {
		if ports[i], err = cluster.FreePort(); err != nil {
			return nil, err
		}
	}
	h.url, h.nats = "http://"+ports[0], "nats://"+ports[1]
	h.args = []string{
		"dev", "--data", h.dir, "--http", ports[0], "--nats", ports[1], "--log.level", "info", "--executor.slots", strconv.Itoa(hostSlots),
		"--lease.ack_wait", o.Lease.String(), "--lease.heartbeat", (o.Lease / 6).String(), "--lease.margin", (o.Lease / 3).String(),
	}
	return h, nil
}

// addressTries is how often a start is tried that finds its address in use. A command that was being started when its executor was killed holds the sockets of
// the executor for a moment, until it has been executed; whoever looks after the process starts it again.
const addressTries = 10

// start runs the process and returns once it listens.
func (h *host) start(ctx context.Context) error {
	limit := time.NewTimer(upLimit)
	defer limit.Stop()
	for tries := 1; ; tries++ {
		up, done, err := h.launch(nil)
		if err != nil {
			return err
		}
		select {
		case <-up:
			return nil
		case <-done:
			if tries == addressTries || !h.addressInUse() {
				return errors.New("the process ended while it started; see process.log")
			}
		case <-limit.C:
			return fmt.Errorf("the process did not come up within %s; see process.log", upLimit)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := fault.Wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// addressInUse tells whether the last that the process said was that it cannot listen.
func (h *host) addressInUse() bool { return strings.Contains(h.lastWords(), "address already in use") }

// lastWords are the end of what the process said since it was started.
func (h *host) lastWords() string {
	b, err := os.ReadFile(h.log.Name())
	if err != nil {
		return ""
	}
	text := string(b[max(0, len(b)-1000):])
	return text[max(0, strings.LastIndex(text, "--- started at")):]
}

// launch runs the process, with more in its environment. The first channel is closed when it listens, the second when it has ended.
func (h *host) launch(env []string) (up, done chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	cmd := exec.Command(h.path, h.args...)
	cmd.Stderr, cmd.Env = h.log, append(os.Environ(), env...)
	// Whatever becomes of this process, it leaves none behind; and a signal from the terminal is ours alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", h.path, err)
	}
	fmt.Fprintf(h.log, "--- started at %s %v\n", time.Now().UTC().Format(time.RFC3339Nano), env) // for whoever reads it
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", h.path, err)
	}
	up, done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		listens := false
		for s := bufio.NewScanner(out); s.Scan(); {
			if !listens && strings.HasPrefix(s.Text(), "HTTP   ") {
				listens = true
				close(up)
			}
		}
		_ = cmd.Wait() // killed, as a rule
	}()
	h.cmd, h.done = cmd, done
	return up, done, nil
}

// signal sends a signal to the process, not to its group: its guards are what looks after the commands.
func (h *host) signal(s syscall.Signal) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cmd == nil {
		return errors.New("no process")
	}
	select {
	case <-h.done:
		return os.ErrProcessDone
	default:
		return h.cmd.Process.Signal(s)
	}
}

// kill is kill -9, and waits for the end. It tells whether there was a process to kill.
func (h *host) kill() bool {
	landed := h.signal(syscall.SIGKILL) == nil
	h.wait()
	return landed
}

// stopLimit is how long the process may take to end by itself.
const stopLimit = 30 * time.Second

// stop asks the process to end, and kills it where it does not.
func (h *host) stop(context.Context) error {
	if err := h.signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	t := time.AfterFunc(stopLimit, func() { _ = h.signal(syscall.SIGKILL) })
	h.wait()
	if !t.Stop() {
		return fmt.Errorf("the process did not stop within %s of SIGTERM", stopLimit)
	}
	return nil
}

func (h *host) wait() {
	h.mu.Lock()
	done := h.done
	h.mu.Unlock()
	if done != nil {
		<-done
	}
}

func (h *host) close() error {
	h.kill()
	return h.log.Close()
}

func (h *host) apis() []string          { return []string{h.url} }
func (h *host) storeURL() string        { return "sqlite:" + filepath.Join(h.dir, "waterclock.db") }
func (h *host) natsURL() string         { return h.nats }
func (h *host) keys() map[string]string { return nil }
func (h *host) slots() map[string]int   { return map[string]int{"default": hostSlots} }
func (h *host) murders() int            { return 0 }
func (h *host) logs() []string          { return []string{h.log.Name()} }
func (h *host) unavailable() []string   { return nil }

// note puts a line of the harness beside what the process says.
func (h *host) note(format string, args ...any) {
	_, _ = io.WriteString(h.log, "--- "+time.Now().UTC().Format(time.RFC3339Nano)+" "+fmt.Sprintf(format, args...)+"\n")
}
