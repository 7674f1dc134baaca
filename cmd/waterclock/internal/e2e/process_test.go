package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/internal/pgtest"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/proto/waterclock/v1/waterclockv1connect"
	"github.com/waterclock-io/waterclock/streams"
)

// binary builds the program once for all tests that run it as a process.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "waterclock-e2e-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "waterclock")
	out, err := exec.Command("go", "build", "-o", path, "github.com/waterclock-io/waterclock/cmd/waterclock").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// process is one waterclock process.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	url  string
	done chan struct{}
	errs *tail
}

// tail keeps the last output of a process for the message of a failing test.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (w *tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b = append(w.b, p...)
	if len(w.b) > 8<<10 {
		w.b = w.b[len(w.b)-8<<10:]
	}
	return len(p), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.b)
}

// start runs the program and waits until it says where it listens.
func start(t testing.TB, args ...string) *process {
	t.Helper()
	path, err := binary()
	check.OK(t, err)
	p := &process{t: t, cmd: exec.Command(path, args...), done: make(chan struct{}), errs: &tail{}}
	p.cmd.Env = append(os.Environ(), "GOGC=") // the product's own, whatever this test runs under
	p.cmd.Stderr = p.errs
	// Should this test process die, the program does too.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := p.cmd.StdoutPipe()
	check.OK(t, err)
	check.OK(t, p.cmd.Start())
	t.Cleanup(p.kill)
	up := make(chan string, 1)
	go func() {
		defer close(p.done)
		s := bufio.NewScanner(out)
		for s.Scan() {
			if url, ok := strings.CutPrefix(s.Text(), "HTTP   "); ok {
				up <- url
			}
		}
		_ = p.cmd.Wait()
	}()
	select {
	case p.url = <-up:
	case <-p.done:
		t.Fatalf("%v ended: %s", args, p.errs)
	case <-time.After(60 * time.Second):
		t.Fatalf("%v did not come up: %s", args, p.errs)
	}
	return p
}

// kill is kill -9, and waits for the end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *process) jobs() waterclockv1connect.JobServiceClient {
	return waterclockv1connect.NewJobServiceClient(http.DefaultClient, p.url)
}

func (p *process) runs() waterclockv1connect.RunServiceClient {
	return waterclockv1connect.NewRunServiceClient(http.DefaultClient, p.url)
}

// note is a command that appends its job's number and its attempt to a file when it begins, and again when it ends.
func note(file string, i int, sleep string) *waterclockv1.JobSpec {
	script := fmt.Sprintf(`echo "start %d $WATERCLOCK_RUN_ID $WATERCLOCK_DISPATCH" >>%s; sleep %s; echo "end %d $WATERCLOCK_RUN_ID $WATERCLOCK_DISPATCH" >>%s`,
		i, file, sleep, i, file)
	v, err := structpb.NewValue(map[string]any{"argv": []any{"sh", "-c", script}})
	if err != nil {
		panic(err) // of constants
	}
	return &waterclockv1.JobSpec{Kind: "exec", Input: &waterclockv1.JobSpec_Json{Json: v}}
}

func specsOf(file string, numbers ...int) []*waterclockv1.JobSpec {
	var out []*waterclockv1.JobSpec
	for _, i := range numbers {
		out = append(out, note(file, i, "0.01"))
	}
	return out
}

func write(t testing.TB, file, text string) {
	t.Helper()
	check.OK(t, os.WriteFile(file, []byte(text), 0o600))
}

// submitMany submits specs in one call and returns the ids of their jobs.
func submitMany(t testing.TB, c waterclockv1connect.JobServiceClient, specs []*waterclockv1.JobSpec) []string {
	t.Helper()
	req := &waterclockv1.SubmitJobsRequest{}
	for _, s := range specs {
		req.Requests = append(req.Requests, &waterclockv1.SubmitJobRequest{Spec: s, IdempotencyKey: rand.Text()})
	}
	res, err := c.SubmitJobs(t.Context(), connect.NewRequest(req))
	check.OK(t, err)
	ids := make([]string, len(specs))
	for i, r := range res.Msg.Results {
		if r.GetError() != nil {
			t.Fatalf("submit %d: %s", i, r.GetError().Message)
		}
		ids[i] = r.GetJob().JobId
	}
	return ids
}

// outcomes waits until every job has ended and returns how, by job.
func outcomes(t testing.TB, c waterclockv1connect.JobServiceClient, ids []string, limit time.Duration) map[string]*waterclockv1.Run {
	t.Helper()
	over := time.Now().Add(limit)
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	ended := map[string]*waterclockv1.Run{}
	for {
		last := ""
		for _, id := range ids {
			if ended[id] != nil {
				continue
			}
			res, err := c.GetJob(t.Context(), connect.NewRequest(&waterclockv1.GetJobRequest{JobId: id}))
			if err != nil {
				last = err.Error()
				if connect.CodeOf(err) == connect.CodeNotFound {
					t.Fatalf("acknowledged job %s is lost", id)
				}
				break
			}
			run := res.Msg.Run
			if run.GetState() >= waterclockv1.RunState_RUN_STATE_SUCCEEDED {
				ended[id] = run
			} else {
				last = fmt.Sprintf("job %s is %s, attempt %d, dispatch %d, %s", id, run.GetState(), run.GetAttempt(), run.GetDispatch(), run.GetWaitReason())
			}
		}
		if len(ended) == len(ids) {
			return ended
		}
		if time.Now().After(over) {
			t.Fatalf("after %s %d of %d jobs have ended; %s", limit, len(ended), len(ids), last)
		}
		<-tick.C
	}
}

// checkFinal fails where a run has not exactly one final row, or did not succeed.
func checkFinal(t testing.TB, p *process, ended map[string]*waterclockv1.Run) {
	t.Helper()
	for id, run := range ended {
		if run.State != waterclockv1.RunState_RUN_STATE_SUCCEEDED {
			t.Errorf("job %s ended %s: %s %s", id, run.State, run.Outcome.GetReason(), run.Outcome.GetMessage())
		}
		res, err := p.runs().ListRuns(t.Context(), connect.NewRequest(&waterclockv1.ListRunsRequest{JobId: id}))
		check.OK(t, err)
		if len(res.Msg.Runs) != 1 {
			t.Errorf("job %s has %d runs in history, want 1", id, len(res.Msg.Runs))
		}
	}
}

// checkFile fails where a job did not begin or end, or where one dispatch was worked on twice.
func checkFile(t testing.TB, file string, jobs int) {
	t.Helper()
	b, err := os.ReadFile(file)
	check.OK(t, err)
	started, ended := map[string]int{}, map[string]bool{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 4 {
			continue // cut off by a kill
		}
		if f[0] == "start" {
			if started[f[2]+"/"+f[3]]++; started[f[2]+"/"+f[3]] > 1 {
				t.Errorf("dispatch %s of run %s was worked on twice", f[3], f[2])
			}
		} else {
			ended[f[1]] = true
		}
	}
	if len(ended) != jobs {
		t.Errorf("%d of %d jobs did their work", len(ended), jobs)
	}
}

// waitLines waits until a file has so many lines.
func waitLines(t testing.TB, file string, n int, limit time.Duration) {
	t.Helper()
	over := time.Now().Add(limit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		b, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if bytes.Count(b, []byte("\n")) >= n {
			return
		}
		if time.Now().After(over) {
			t.Fatalf("%s has %d lines after %s, want %d", file, bytes.Count(b, []byte("\n")), limit, n)
		}
		<-tick.C
	}
}

// A dev that is killed in the middle of its work loses nothing: after a restart every job ends, once.
func TestKilledDevLosesNothing(t *testing.T) {
	const jobs = 1000
	dir := t.TempDir()
	file := filepath.Join(dir, "notes")
	args := []string{"dev", "--data", filepath.Join(dir, "data"), "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--executor.slots", "8"}
	p := start(t, args...)
	specs := make([]*waterclockv1.JobSpec, jobs)
	for i := range specs {
		specs[i] = note(file, i, "0.02")
		if i%2 == 1 { // half wait for their time when the process dies
			specs[i].Schedule = &waterclockv1.Schedule{Kind: &waterclockv1.Schedule_Once{Once: &waterclockv1.Once{Delay: durationpb.New(3 * time.Second)}}}
		}
	}
	ids := submitMany(t, p.jobs(), specs)
	waitLines(t, file, 100, 30*time.Second)
	p.kill()

	p = start(t, args...)
	ended := outcomes(t, p.jobs(), ids, 120*time.Second)
	checkFinal(t, p, ended)
	checkFile(t, file, jobs)
}

// One process of several is killed while work goes on, each role in turn; others take over or it comes back, and nothing is lost.
func TestOneKilledProcessOfSeveralLosesNothing(t *testing.T) {
	pg := pgtest.Shared(t)
	dsn := pg.NewDatabase(t)
	path, err := binary()
	check.OK(t, err)
	if out, err := exec.Command(path, "migrate", "up", "--store", dsn).CombinedOutput(); err != nil {
		t.Fatalf("migrate: %v\n%s", err, out)
	}
	log := newLog(t)
	broker, err := streams.StartEmbedded(streams.EmbeddedOptions{Dir: t.TempDir(), Listen: "127.0.0.1:0", Logger: log})
	check.OK(t, err)
	t.Cleanup(broker.Stop)
	dir := t.TempDir()
	role := func(t *testing.T, name string, more ...string) *process {
		t.Helper()
		args := []string{
			name, "--store", dsn, "--nats", "nats://" + broker.Addr(), "--http", "127.0.0.1:0", "--data", dir,
			"--blob.url", "file://" + filepath.Join(dir, "blobs") + "?create_dir=true",
		}
		return start(t, append(args, more...)...)
	}
	lease := []string{"--lease.ack_wait", "3s", "--lease.heartbeat", "500ms", "--lease.margin", "1s"}
	more := map[string][]string{
		"planner":  lease,
		"executor": append([]string{"--executor.kinds.exec.enabled", "--executor.kinds.exec.allow", "/bin/sh,/usr/bin/sh", "--executor.slots", "8"}, lease...),
	}
	whole := t
	api := role(t, "api")
	for _, victim := range []string{"planner", "executor", "recorder", "api"} {
		t.Run(victim, func(t *testing.T) {
			const jobs = 200
			file := filepath.Join(t.TempDir(), "notes")
			running := map[string]*process{}
			for _, name := range []string{"planner", "executor", "recorder"} {
				running[name] = role(t, name, more[name]...)
			}
			defer func() {
				for _, p := range running {
					p.kill()
				}
			}()
			specs := make([]*waterclockv1.JobSpec, jobs)
			for i := range specs {
				specs[i] = note(file, i, "0.02")
				specs[i].Labels = map[string]string{"victim": victim}
			}
			ids := submitMany(t, api.jobs(), specs)
			waitLines(t, file, 40, 60*time.Second)
			if victim == "api" {
				api.kill()
				api = role(whole, "api") // which outlives this part of the test
			} else {
				running[victim].kill()
				running[victim] = role(t, victim, more[victim]...)
			}
			ended := outcomes(t, api.jobs(), ids, 90*time.Second)
			checkFinal(t, api, ended)
			checkFile(t, file, jobs)
		})
	}
}

// What the process says of itself is true: ready while SQL and NATS answer.
func TestDevIsReadyAndMeasures(t *testing.T) {
	p := start(t, "dev", "--ephemeral", "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0")
	for _, path := range []string{"/healthz", "/readyz"} {
		body, status := get(t, p.url+path)
		var answer struct{ Status string }
		if err := json.Unmarshal(body, &answer); err != nil || status != http.StatusOK || answer.Status != "ok" {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	ids := submitMany(t, p.jobs(), []*waterclockv1.JobSpec{note(filepath.Join(t.TempDir(), "n"), 0, "0")})
	outcomes(t, p.jobs(), ids, 20*time.Second)
	names := []string{
		"waterclock_submits_total", "waterclock_queue_depth", "waterclock_queue_oldest_age_seconds", "waterclock_start_lag_seconds_bucket",
		"waterclock_run_time_seconds_bucket", "waterclock_attempts_total", "waterclock_shard_changes_total", "waterclock_statuses_total",
		"go_gc_gogc_percent 100\n",
	}
	// The gauges of the lanes are set every five seconds.
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for tries := 0; ; tries++ {
		body := metrics(t, p)
		missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return strings.Contains(body, name) })
		if len(missing) == 0 {
			return
		}
		if tries == 50 {
			t.Fatalf("metrics are missing: %v", missing)
		}
		<-tick.C
	}
}

func metrics(t testing.TB, p *process) string {
	t.Helper()
	body, status := get(t, p.url+"/metrics")
	if status != http.StatusOK {
		t.Fatalf("/metrics: %d %s", status, body)
	}
	return string(body)
}

func get(t testing.TB, url string) ([]byte, int) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	check.OK(t, err)
	res, err := http.DefaultClient.Do(req)
	check.OK(t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	check.OK(t, err)
	return b, res.StatusCode
}
