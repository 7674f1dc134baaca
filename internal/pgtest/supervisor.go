package pgtest

import (
	"bufio"
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
)

// supervisor is the shell script between the test process and postgres. A line on its standard input is the signal by which postgres
// is to end; the end of the input means that the test process is gone, by its exit, a panic or SIGKILL: then postgres ends at once and
// the folder ($1) goes. It keeps no output open, so that the output ends when the last process of PostgreSQL does. A process group of
// its own keeps a Ctrl-C at the terminal from ending it before its work is done.
const supervisor = `
folder=$1
shift
trap '' INT TERM HUP
"$@" </dev/null &
exec >/dev/null 2>&1
if read -r signal; then
  kill -s "$signal" $!
  wait $!
else
  kill -s QUIT $!
  wait $!
  rm -rf "$folder"
fi
`

var (
	errPortTaken = errors.New("the port is taken")
	errEnded     = errors.New("postgres ended before it took connections")
)

// server is one life of postgres, from its start to its end.
type server struct {
	supervisor *exec.Cmd
	orders     io.WriteCloser
	gone       chan struct{} // closed when no process of PostgreSQL is left

	mu   sync.Mutex
	tail []string // the last lines of the server's log
}

// tailLines is how much of the server's log an error shows.
const tailLines = 40

// start starts postgres at h.port and returns when it takes connections.
func (h *home) start() (*server, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	args := append([]string{"-c", supervisor, "pgtest", h.folder, filepath.Join(h.bin, "postgres")}, h.arguments()...)
	cmd := exec.Command("/bin/sh", args...)
	cmd.Dir, cmd.Env = h.folder, environment()
	cmd.Stdout, cmd.Stderr = write, write
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: h.credential, Setpgid: true}
	orders, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if closeErr := write.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, errors.Join(err, read.Close())
	}
	s := &server{supervisor: cmd, orders: orders, gone: make(chan struct{})}
	ready := make(chan struct{})
	go s.follow(read, ready)

	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case <-ready:
		return s, nil
	case <-s.gone:
		err = errEnded
		if strings.Contains(s.log(), "could not create any TCP/IP sockets") {
			err = errPortTaken
		}
	case <-limit.C:
		err = fmt.Errorf("postgres took no connections within %s", startLimit)
	}
	return nil, fmt.Errorf("%w (%s)%s\n%s", err, h.addr(), note(s.end("QUIT")), s.log())
}

// follow keeps the tail of the log, closes ready at the line that says so, and gone at the end.
func (s *server) follow(output io.ReadCloser, ready chan<- struct{}) {
	defer close(s.gone)
	defer output.Close()
	lines := bufio.NewReader(output)
	told := false
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			s.mu.Lock()
			s.tail = append(s.tail, line)
			if len(s.tail) > tailLines {
				s.tail = s.tail[1:]
			}
			s.mu.Unlock()
		}
		if !told && strings.Contains(line, "database system is ready to accept connections") {
			told = true
			close(ready)
		}
		if err != nil {
			return
		}
	}
}

func (s *server) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.tail, "")
}

// end has the supervisor send the signal and returns when all processes are gone, or with an error when they are not in time.
func (s *server) end(signal string) error {
	_, err := io.WriteString(s.orders, signal+"\n")
	if err != nil {
		return fmt.Errorf("tell the supervisor: %w", err)
	}
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case <-s.gone:
	case <-limit.C:
		return fmt.Errorf("PostgreSQL is still there %s after SIG%s\n%s", startLimit, signal, s.log())
	}
	if err := s.supervisor.Wait(); err != nil {
		// The shell's exit status is postgres's own, which a signal makes what it is.
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return fmt.Errorf("wait for the supervisor: %w", err)
		}
	}
	return nil
}
