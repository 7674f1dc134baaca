package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/testing/protocmp"

	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

const testJob = "01890a5d-ac96-774b-bcce-b302099a8057"

// testEnv is an environment without terminal whose server is the fake one.
func testEnv(url string) (Env, *bytes.Buffer, *bytes.Buffer) {
	var stdout, stderr bytes.Buffer
	return Env{
		Stdin: strings.NewReader("from stdin"), Stdout: &stdout, Stderr: &stderr, Now: testNow,
		Getenv: func(name string) string {
			if name == "WATERCLOCK_SERVER" {
				return url
			}
			return ""
		},
		IsTerminal: func(io.Writer) bool { return false },
	}, &stdout, &stderr
}

var commandArgs = []string{"--", "/bin/true"}

const (
	commandInput = `"kind": "exec", "json": {"argv": ["/bin/true"]}`
	httpInput    = `"kind": "http", "json": {"method": "PUT", "url": "http://h/"`
)

// effects says for every flag of submit what it makes of the request.
var effects = []struct {
	flag string
	args []string
	want string // SubmitJobRequest
}{
	{"env", append([]string{"--env", "A=b=c", "--env", "E="}, commandArgs...), `{"spec": {"kind": "exec", "json": {"argv": ["/bin/true"], "env": {"A": "b=c", "E": ""}}}}`},
	{"dir", append([]string{"--dir", "/d"}, commandArgs...), `{"spec": {"kind": "exec", "json": {"argv": ["/bin/true"], "dir": "/d"}}}`},
	{"stdin-file", append([]string{"--stdin-file", "-"}, commandArgs...), `{"spec": {"kind": "exec", "json": {"argv": ["/bin/true"], "stdin": "from stdin"}}}`},
	{"http", []string{"--http", "put", "http://h/"}, `{"spec": {` + httpInput + `}}}`},
	{"header", []string{"--http", "PUT", "http://h/", "--header", "A: b:c"}, `{"spec": {` + httpInput + `, "headers": {"A": "b:c"}}}}`},
	{"body", []string{"--http", "PUT", "http://h/", "--body", "x"}, `{"spec": {` + httpInput + `, "body": "x"}}}`},
	{"body-file", []string{"--http", "PUT", "http://h/", "--body-file", "-"}, `{"spec": {` + httpInput + `, "body": "from stdin"}}}`},
	{"kind", []string{"--kind", "mine"}, `{"spec": {"kind": "mine"}}`},
	{"payload", []string{"--kind", "mine", "--payload", "@-"}, `{"spec": {"kind": "mine", "payload": "ZnJvbSBzdGRpbg=="}}`},
	{"payload", []string{"--kind", "mine", "--payload", "text"}, `{"spec": {"kind": "mine", "payload": "dGV4dA=="}}`},
	{"in", with("--in", "10s"), spec(`"schedule": {"once": {"delay": "10s"}}`)},
	{"in", with("--in", "0s"), spec(`"schedule": {"once": {"delay": "0s"}}`)},
	{"at", with("--at", "2026-05-01T02:00:00+02:00"), spec(`"schedule": {"once": {"at": "2026-05-01T00:00:00Z"}}`)},
	{"every", with("--every", "90s"), spec(`"schedule": {"every": {"period": "90s"}}`)},
	{"anchor", with("--every", "90s", "--anchor", "2026-05-01T00:00:00.5Z"), spec(`"schedule": {"every": {"period": "90s", "anchor": "2026-05-01T00:00:00.5Z"}}`)},
	{"cron", with("--cron", "0 9 * * 1-5"), spec(`"schedule": {"cron": {"spec": "0 9 * * 1-5"}}`)},
	{"zone", with("--cron", "@daily", "--zone", "Europe/Berlin"), spec(`"schedule": {"cron": {"spec": "@daily", "zone": "Europe/Berlin"}}`)},
	{"start", with("--cron", "@daily", "--start", "2026-05-01T00:00:00Z"), spec(`"schedule": {"cron": {"spec": "@daily"}, "start": "2026-05-01T00:00:00Z"}`)},
	{"end", with("--every", "1h", "--end", "2026-05-01T00:00:00Z"), spec(`"schedule": {"every": {"period": "3600s"}, "end": "2026-05-01T00:00:00Z"}`)},
	{"jitter", with("--jitter", "5s"), spec(`"schedule": {"once": {}, "jitter": "5s"}`)},
	{"name", with("--name", "n"), spec(`"name": "n"`)},
	{"queue", with("--queue", "q"), spec(`"queue": "q"`)},
	{"priority", with("--priority", "critical"), spec(`"priority": "PRIORITY_CRITICAL"`)},
	{"label", with("--label", "a=b", "--label", "c=d,e"), spec(`"labels": {"a": "b", "c": "d,e"}`)},
	{"max-attempts", with("--max-attempts", "7"), spec(`"retry": {"maxAttempts": 7}`)},
	{"backoff", with("--backoff", "2s"), spec(`"retry": {"initialBackoff": "2s"}`)},
	{"max-backoff", with("--max-backoff", "3m"), spec(`"retry": {"maxBackoff": "180s"}`)},
	{"multiplier", with("--multiplier", "1.5"), spec(`"retry": {"multiplier": 1.5}`)},
	{"timeout", with("--timeout", "1m"), spec(`"attemptTimeout": "60s"`)},
	{"deadline", with("--deadline", "1h"), spec(`"totalDeadline": "3600s"`)},
	{"start-deadline", with("--start-deadline", "1h"), spec(`"startDeadline": "3600s"`)},
	{"catch-up", with("--catch-up", "none"), spec(`"catchUp": "CATCH_UP_NONE"`)},
	{"overlap", with("--overlap", "allow"), spec(`"overlap": "OVERLAP_ALLOW"`)},
	{"idempotency-key", with("--idempotency-key", "k"), `{"spec": {` + commandInput + `}, "idempotencyKey": "k"}`},
}

func with(args ...string) []string { return append(args, commandArgs...) }
func spec(fields string) string    { return `{"spec": {` + commandInput + `, ` + fields + `}}` }

func TestEachFlagOfSubmit(t *testing.T) {
	t.Parallel()
	for _, e := range effects {
		t.Run(e.flag, func(t *testing.T) {
			t.Parallel()
			f, url := newFake(t)
			env, _, stderr := testEnv(url)
			if code := run(context.Background(), env, append([]string{"submit"}, e.args...)); code != ExitOK {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			var want waterclockv1.SubmitJobRequest
			if err := protojson.Unmarshal([]byte(e.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&want, f.asked()[0].message, protocmp.Transform()); diff != "" {
				t.Errorf("-want +asked\n%s", diff)
			}
		})
	}
}

// A flag that is added without a line in effects is found here; wait and raw change no request, and have a script.
func TestEveryFlagOfSubmitHasItsEffectTested(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{"wait": true, "raw": true, "help": true}
	for _, e := range effects {
		tested[e.flag] = true
	}
	env, _, _ := testEnv("")
	for _, c := range Commands(env) {
		if c.Name() != "submit" {
			continue
		}
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if !tested[f.Name] {
				t.Errorf("--%s has no test of its effect", f.Name)
			}
		})
	}
}

// Each flag that submit has for the spec works for update too, and puts exactly its field into the mask.
func TestUpdateTakesTheFlagsOfSubmit(t *testing.T) {
	t.Parallel()
	masks := map[string]string{
		"env": "kind,json", "dir": "kind,json", "stdin-file": "kind,json", "http": "kind,json", "header": "kind,json", "body": "kind,json",
		"body-file": "kind,json", "kind": "kind", "payload": "kind,payload", "in": "schedule", "at": "schedule", "every": "schedule",
		"anchor": "schedule", "cron": "schedule", "zone": "schedule", "start": "schedule", "end": "schedule", "jitter": "schedule", "name": "name",
		"queue": "queue", "priority": "priority", "label": "labels", "max-attempts": "retry", "backoff": "retry", "max-backoff": "retry",
		"multiplier": "retry", "timeout": "attempt_timeout", "deadline": "total_deadline", "start-deadline": "start_deadline",
		"catch-up": "catch_up", "overlap": "overlap",
	}
	for _, e := range effects {
		want, inUpdate := masks[e.flag]
		if !inUpdate {
			continue
		}
		t.Run(e.flag, func(t *testing.T) {
			t.Parallel()
			f, url := newFake(t)
			f.lay("GetJob", answer{messages: `{"job": {"version": "2", "spec": {"kind": "mine"}}}`})
			env, _, stderr := testEnv(url)
			args := append([]string{"job", "update", testJob}, e.args...)
			if n := len(args); args[n-1] == "/bin/true" && want[:4] != "kind" {
				args = args[:n-2]
			}
			if code := run(context.Background(), env, args); code != ExitOK {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			got := f.asked()[1].message.(*waterclockv1.UpdateJobRequest)
			if mask := strings.Join(got.GetUpdateMask().GetPaths(), ","); mask != want || got.GetVersion() != 2 {
				t.Errorf("mask %s of version %d, want %s of 2", mask, got.GetVersion(), want)
			}
			if !got.GetUpdateMask().IsValid(&waterclockv1.JobSpec{}) {
				t.Errorf("the mask %v names fields that a spec does not have", got.GetUpdateMask().GetPaths())
			}
		})
	}
}

func TestInputsAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	big, binary := filepath.Join(dir, "big"), filepath.Join(dir, "binary")
	for path, text := range map[string]string{big: strings.Repeat("x", 256<<10+1), binary: "\xff\xfe"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, url := newFake(t)
	for _, test := range []struct {
		want string
		args []string
	}{
		{"at most 256 KiB", []string{"--kind", "k", "--payload", "@" + big}},
		{"at most 256 KiB", []string{"--kind", "k", "--payload", strings.Repeat("x", 256<<10+1)}},
		{"at most 256 KiB", []string{"--stdin-file", big, "--", "true"}},
		{"a UTF-8 text", []string{"--stdin-file", binary, "--", "true"}},
		{"a UTF-8 text", []string{"--http", "GET", "http://h", "--body-file", binary}},
		{"allowed: UTF-8", []string{"--", "true", "\xff"}},
		{"allowed: a file", []string{"--stdin-file", filepath.Join(dir, "none"), "--", "true"}},
	} {
		env, _, stderr := testEnv(url)
		if code := run(context.Background(), env, append([]string{"submit"}, test.args...)); code != ExitUsage || !strings.Contains(stderr.String(), test.want) {
			t.Errorf("exit code %d: %s; want %s", code, stderr, test.want)
		}
	}
	env, _, stderr := testEnv(url)
	if code := run(context.Background(), env, []string{"submit", "--kind", "k", "--payload", "@" + binary}); code != ExitOK || len(f.asked()) != 1 {
		t.Errorf("bytes are a fine payload, or more than one request was made: exit code %d: %s", code, stderr)
	}
}

func TestCommandsHaveDistinctNamesAndHelp(t *testing.T) {
	t.Parallel()
	env, _, _ := testEnv("")
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Short == "" {
			t.Errorf("%s has no help", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	for _, c := range Commands(env) {
		visit(c)
	}
}
