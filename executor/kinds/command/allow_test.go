package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/executor"
)

// tools makes a folder with executables, a link to each of two of them, and a file that is none.
func tools(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"one", "two", "box"} {
		must(os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o700)) //nolint:gosec // it is to be executed
	}
	must(os.WriteFile(filepath.Join(dir, "text"), nil, 0o600))
	must(os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	must(os.Symlink("one", filepath.Join(dir, "link-one")))
	must(os.Symlink("box", filepath.Join(dir, "ls")))
	must(os.Symlink("box", filepath.Join(dir, "rm")))
	return dir
}

func TestResolve(t *testing.T) {
	t.Parallel()
	dir := tools(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct {
		name  string
		allow []string
		argv0 string
		dir   string
		want  string // name in dir; empty: refused
	}{
		{"nothing is allowed without a list", nil, in("one"), "", ""},
		{"the path itself", []string{in("one")}, in("one"), "", "one"},
		{"another path", []string{in("one")}, in("two"), "", ""},
		{"by PATH", []string{in("one")}, "one", "", "one"},
		{"by PATH, not allowed", []string{in("one")}, "two", "", ""},
		{"not in PATH", []string{"*"}, "three", "", ""},
		{"not executable, so not found", []string{"*"}, "text", "", ""},
		{"a folder, so not found", []string{"*"}, "folder", "", ""},
		{"everything", []string{"*"}, "two", "", "two"},
		{"a link to what is allowed is executed by the allowed name", []string{in("one")}, in("link-one"), "", "one"},
		{"the target of an allowed link is not allowed", []string{in("link-one")}, in("one"), "", ""},
		{"an allowed link", []string{in("link-one")}, "link-one", "", "link-one"},
		{"one applet allows no other", []string{in("ls")}, "rm", "", ""},
		{"one applet does not allow the box", []string{in("ls")}, in("box"), "", ""},
		{"dots", []string{in("one")}, in("folder") + "/../one", "", "one"},
		{"dots to what is not allowed", []string{in("one")}, in("one") + "/../two", "", ""},
		{"a prefix", []string{in("on")}, in("one"), "", ""},
		{"a folder allows nothing in it", []string{dir}, in("one"), "", ""},
		{"relative to the working directory", []string{in("one")}, "./one", dir, "one"},
		{"relative, not allowed", []string{in("one")}, "./two", dir, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			config := Config{Allow: c.allow, lookupEnv: func(string) (string, bool) { return "relative:/no/such/folder:" + dir, true }}
			got, err := config.resolve(&Payload{Argv: []string{c.argv0}, Dir: c.dir})
			if c.want == "" {
				if err == nil || !strings.Contains(err.Error(), c.argv0) || !strings.Contains(err.Error(), "argv[0]") {
					t.Errorf("got %q, %v; want a refusal that names it", got, err)
				}
				return
			}
			if err != nil || got != in(c.want) {
				t.Errorf("got %q, %v; want %s", got, err, in(c.want))
			}
		})
	}
}

func TestRefusalTellsWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		allow []string
		want  string
	}{
		{nil, "without an allow-list"},
		{[]string{"/bin/date", "/opt/x"}, "/bin/date, /opt/x"},
	} {
		config := Config{Allow: c.allow}
		if _, err := config.resolve(&Payload{Argv: []string{"/bin/rm"}}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q in it", err, c.want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	id := uuid.MustParse("5f2b4c1e-0a4f-5d0c-8f3a-0d9b8a6f1c11")
	jobID := uuid.MustParse("5f2b4c1e-0a4f-5d0c-8f3a-0d9b8a6f1c12")
	own := map[string]string{"PATH": "/bin", "HOME": "/root", "LANG": "C", "AWS_SECRET_ACCESS_KEY": "topsecret", "NATS_PASSWORD": "topsecret"}
	config := Config{lookupEnv: func(name string) (string, bool) { v, ok := own[name]; return v, ok }}
	got := config.environment(&Payload{Env: map[string]string{"LANG": "de_DE", "X": "a=b"}}, &executor.Run{
		JobID: jobID, ID: id, Namespace: "team-a", Attempt: 2, Dispatch: 7, ScheduledAt: time.Date(2027, 1, 2, 3, 4, 5, 6000, time.UTC),
	})
	want := []string{
		"HOME=/root", "LANG=de_DE", "PATH=/bin",
		"WATERCLOCK_ATTEMPT=2", "WATERCLOCK_DISPATCH=7", "WATERCLOCK_IDEMPOTENCY_KEY=" + id.String(), "WATERCLOCK_JOB_ID=" + jobID.String(),
		"WATERCLOCK_NAMESPACE=team-a", "WATERCLOCK_RUN_ID=" + id.String(), "WATERCLOCK_SCHEDULED_AT=2027-01-02T03:04:05.000006Z", "X=a=b",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("environment (-want +got):\n%s", d)
	}
}
