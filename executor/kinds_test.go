package executor_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/executor"
	"github.com/waterclock-io/waterclock/executor/kinds/command"
	"github.com/waterclock-io/waterclock/executor/kinds/webcall"
	"github.com/waterclock-io/waterclock/executor/runlog"
	"github.com/waterclock-io/waterclock/internal/check"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/streams"
)

func payload(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	check.OK(t, err)
	return b
}

func TestExec(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	check.OK(t, err)
	p, blobs := newPlant(t), &memory{}
	p.employ(map[string]executor.Handler{
		"exec":   command.Handler(command.Config{Allow: []string{sh}}),
		"locked": command.Handler(command.Config{}),
	}, func(cfg *executor.Config) { cfg.Blobs = blobs })

	m := p.message("exec")
	m.Attempt, m.Dispatch = 2, 7
	m.Payload = payload(t, command.Payload{
		Argv:  []string{"sh", "-c", `cat; echo "$K $WATERCLOCK_RUN_ID $WATERCLOCK_ATTEMPT $WATERCLOCK_DISPATCH $WATERCLOCK_NAMESPACE $WATERCLOCK_GUARD"; echo oops >&2; exit 3`},
		Env:   map[string]string{"K": "V"},
		Stdin: "in\n",
		Dir:   os.TempDir(),
	})
	s := p.ended(p.publish(m))
	if d := cmp.Diff(end{Kind: wirev1.StatusKind_STATUS_KIND_FAILED, Reason: "exit", Message: "exit code 3", Code: 3, Retriable: true}, endOf(s)); d != "" {
		t.Errorf("status (-want +got):\n%s", d)
	}
	got := map[runlog.Stream]string{}
	for entry, err := range runlog.Decode(bytes.NewReader(blobs.get(s.LogRef))) {
		check.OK(t, err)
		got[entry.Stream] += string(entry.Data)
	}
	want := map[runlog.Stream]string{runlog.Stdout: fmt.Sprintf("in\nV %s 2 7 team-a \n", uuid.UUID(m.RunId)), runlog.Stderr: "oops\n"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("log (-want +got):\n%s", d)
	}

	for _, c := range []struct{ kind, payload, reason, message string }{
		{"exec", `{"argv":["sh","-c","exit 0"]}`, "ok", ""},
		{"exec", `{"argv":["/bin/no/such/file"]}`, "fatal", "allowed: " + sh},
		{"exec", `{"argv":["sh"],"dir":"/no/such/folder"}`, "fatal", "dir"},
		{"exec", `{"argv":"sh -c x"}`, "fatal", "payload of kind exec"},
		{"locked", `{"argv":["sh","-c","exit 0"]}`, "fatal", "without an allow-list"},
	} {
		m := p.message(c.kind)
		m.Payload = []byte(c.payload)
		if s := p.ended(p.publish(m)); s.Reason != c.reason || s.Retriable || !strings.Contains(s.Message, c.message) {
			t.Errorf("%s %s: %s %q", c.kind, c.payload, s.Reason, s.Message)
		}
	}
}

func TestExecIsCancelled(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	e := p.employ(map[string]executor.Handler{"exec": command.Handler(command.Config{Allow: []string{command.AllowAll}})})
	m := p.message("exec")
	m.Payload = payload(t, command.Payload{Argv: []string{"sleep", "3600"}})
	run := p.publish(m)
	p.started(run)
	streams.NewNotifier(p.nc, nil).Control(e.ID(), run, 1, "cancelled")
	p.ends("its end", run, wirev1.StatusKind_STATUS_KIND_CANCELLED)
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/busy" {
			w.Header().Set("Retry-After", "9")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, r.Method, r.Header.Get("Idempotency-Key"), r.Header.Get("Waterclock-Run-Id"), r.Header.Get("Waterclock-Attempt"), r.Header.Get("Waterclock-Dispatch"), string(body))
	}))
	t.Cleanup(service.Close)
	p := newPlant(t)
	p.employ(map[string]executor.Handler{
		"http":   webcall.Handler(webcall.Config{AllowPrivate: true}),
		"public": webcall.Handler(webcall.Config{}),
	})
	m := p.message("http")
	m.Attempt, m.Dispatch, m.Payload = 2, 7, payload(t, webcall.Payload{URL: service.URL, Body: "hi"})
	run := p.publish(m)
	want := end{Kind: wirev1.StatusKind_STATUS_KIND_SUCCEEDED, Reason: "ok", Result: fmt.Sprintf("POST %s %s 2 7 hi\n", run, run)}
	if d := cmp.Diff(want, endOf(p.ended(run))); d != "" {
		t.Errorf("status (-want +got):\n%s", d)
	}

	m = p.message("http")
	m.Payload = payload(t, webcall.Payload{URL: service.URL + "/busy"})
	want = end{Kind: wirev1.StatusKind_STATUS_KIND_FAILED, Reason: "http", Message: "answered 503 Service Unavailable", Code: 503, Retriable: true, Delay: 9_000_000_000}
	if d := cmp.Diff(want, endOf(p.ended(p.publish(m)))); d != "" {
		t.Errorf("status (-want +got):\n%s", d)
	}

	m = p.message("public")
	m.Payload = payload(t, webcall.Payload{URL: service.URL})
	if s := p.ended(p.publish(m)); s.Retriable || s.Reason != "http" || !strings.Contains(s.Message, "loopback") {
		t.Errorf("loopback: %s %q", s.Reason, s.Message)
	}
}
