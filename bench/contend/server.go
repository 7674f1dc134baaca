package contend

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/nats-io/nats.go"

	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/proto/waterclock/v1/waterclockv1connect"
	"github.com/waterclock-io/waterclock/store/crdb"
	"github.com/waterclock-io/waterclock/streams"
)

// served is Waterclock as a process of its own, with a client and a worker in this one.
type served struct {
	closers
	http      string
	nc        *nats.Conn
	jobs      waterclockv1connect.JobServiceClient
	runs      waterclockv1connect.RunServiceClient
	submitted atomic.Int64

	mu  sync.Mutex
	ids []string // of the jobs that were submitted one by one
}

func openPostgresServer(ctx context.Context, env Env) (Contender, error) {
	if _, _, err := crdb.Migrate(ctx, env.PostgresDSN); err != nil {
		return nil, err
	}
	return openServer(ctx, env, "server", "WATERCLOCK_STORE_URL="+env.PostgresDSN)
}

func openSQLiteServer(ctx context.Context, env Env) (Contender, error) {
	return openServer(ctx, env, "dev")
}

func openServer(ctx context.Context, env Env, command string, environ ...string) (_ Contender, err error) {
	s := &served{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}()
	natsURL, err := s.start(ctx, env, command, environ)
	if err != nil {
		return nil, err
	}
	if s.nc, err = streams.Connect(streams.Dial{URL: natsURL, Name: "bench", Logger: logger()}); err != nil {
		return nil, err
	}
	s.add(func(context.Context) error { s.nc.Close(); return nil })
	// As many connections as there are clients: the standard library's two would be opened and closed all the time.
	transport := &http.Transport{MaxIdleConns: maxClients, MaxIdleConnsPerHost: maxClients}
	s.add(func(context.Context) error { transport.CloseIdleConnections(); return nil })
	client := &http.Client{Transport: transport}
	s.jobs, s.runs = waterclockv1connect.NewJobServiceClient(client, s.http), waterclockv1connect.NewRunServiceClient(client, s.http)
	return s, nil
}

// maxClients is how many goroutines submit at a time at most.
const maxClients = 256

// start starts the server and returns the URL of its NATS.
func (s *served) start(ctx context.Context, env Env, command string, environ []string) (string, error) {
	cmd := exec.Command(env.Binary, command, "--http", "127.0.0.1:0", "--nats.listen", "127.0.0.1:0", "--data", filepath.Join(env.Dir, "data"), "--log.level", "warn")
	cmd.Env = append(os.Environ(), environ...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	ended := make(chan struct{})
	ready := make(chan string, 1)
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			switch name, address, _ := strings.Cut(lines.Text(), "   "); name {
			case "HTTP":
				s.http = strings.TrimSpace(address)
			case "NATS":
				ready <- strings.TrimSpace(address)
			}
		}
		_ = cmd.Wait() // it says itself what was wrong
	}()
	s.add(func(context.Context) error {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
			return errors.New("the server had to be killed 30s after SIGTERM")
		}
		return nil
	})
	select {
	case url := <-ready:
		return url, nil
	case <-ended:
		return "", errors.New("the server ended before it was ready")
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (s *served) Submit(ctx context.Context, j Job) error {
	s.submitted.Add(1)
	res, err := s.jobs.SubmitJob(ctx, connect.NewRequest(request(j)))
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.ids = append(s.ids, res.Msg.GetJob().GetJobId())
	s.mu.Unlock()
	return nil
}

// Read implements Reader.
func (s *served) Read(ctx context.Context, i int) error {
	s.mu.Lock()
	if len(s.ids) == 0 {
		s.mu.Unlock()
		return errors.New("nothing was submitted")
	}
	id := s.ids[i%len(s.ids)]
	s.mu.Unlock()
	_, err := s.runs.GetRun(ctx, connect.NewRequest(&waterclockv1.GetRunRequest{JobId: id}))
	return err
}

func (s *served) SubmitMany(ctx context.Context, jobs []Job) error {
	s.submitted.Add(int64(len(jobs)))
	req := &waterclockv1.SubmitJobsRequest{Requests: make([]*waterclockv1.SubmitJobRequest, len(jobs))}
	for i := range jobs {
		req.Requests[i] = request(jobs[i])
	}
	res, err := s.jobs.SubmitJobs(ctx, connect.NewRequest(req))
	if err != nil {
		return err
	}
	for i, r := range res.Msg.Results {
		if r.GetJob() == nil {
			return fmt.Errorf("job %d: %v", jobs[i].Number, r.GetError())
		}
	}
	return nil
}

// Work starts the worker. What was due before has been handed to NATS by then, where it waits.
func (s *served) Work(ctx context.Context, started Started) error {
	e, err := startExecutor(ctx, s.nc, nil, started)
	if err != nil {
		return err
	}
	s.add(func(ctx context.Context) error { e.Stop(ctx); return nil })
	return nil
}

// Done reads the server's own count of results that it has applied.
func (s *served) Done(ctx context.Context) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.http+"/metrics", nil)
	if err != nil {
		return false, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, err
	}
	defer res.Body.Close() //nolint:errcheck // it was read to its end
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), `waterclock_statuses_total{kind="succeeded"} `); ok {
			n, err := strconv.ParseFloat(value, 64)
			return int64(n) >= s.submitted.Load(), err
		}
	}
	return false, lines.Err()
}

func (s *served) Close(ctx context.Context) error { return s.close(ctx) }
