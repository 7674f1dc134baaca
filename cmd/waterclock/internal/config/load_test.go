package config

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func load(t testing.TB, args, environ []string) (Config, error) {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Load(flags, environ)
}

func writeFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "w.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLayers(t *testing.T) {
	t.Parallel()
	file := writeFile(t, `
http: {listen: "127.0.0.1:1"}
log: {level: debug, format: json}
executor:
  slots: 2
  queues: [a, b]
  labels: {disk.type: ssd, rack: 7}
  kinds:
    exec: {enabled: true, allow: [/bin/echo]}
retention: {history: 1d12h}
nats: {max_bytes: 64MiB}
`)
	got, err := load(t, []string{"--config", file, "--log.level", "error", "--executor.queues", "x", "--executor.queues", "y,z"},
		[]string{"WATERCLOCK_LOG_LEVEL=warn", "WATERCLOCK_EXECUTOR_SLOTS=3", "WATERCLOCK_EXECUTOR_LABELS=a=b", "HOME=/", "WATERCLOCK_CONFIG=/none"})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.HTTP.Listen = "127.0.0.1:1"
	want.Log = Log{Level: "error", Format: "json"}
	want.Executor.Slots = 3
	want.Executor.Queues = []string{"x", "y", "z"}
	want.Executor.Labels = map[string]string{"a": "b"}
	want.Executor.Kinds.Exec = Exec{Enabled: true, Allow: []string{"/bin/echo"}}
	want.Retention.History = 36 * time.Hour
	want.NATS.MaxBytes = 64 << 20
	if err := want.derive(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestDataDirLeadsTheOthers(t *testing.T) {
	t.Parallel()
	got, err := load(t, []string{"--data.dir", "/var/w"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Store.URL != "sqlite:/var/w/waterclock.db" || got.Blob.URL != "file:///var/w/blobs?create_dir=true" {
		t.Errorf("got %s and %s", got.Store.URL, got.Blob.URL)
	}
}

func TestConfigFromTheEnvironment(t *testing.T) {
	t.Parallel()
	got, err := load(t, nil, []string{"WATERCLOCK_CONFIG=" + writeFile(t, "log: {level: debug}")})
	if err != nil || got.Log.Level != "debug" {
		t.Errorf("got %q, %v", got.Log.Level, err)
	}
}

// Every refusal says where, what was given and what is allowed.
func TestRefusals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, yaml    string
		args, environ []string
		want          []string // in the text of the error
	}{
		{name: "unknown key", yaml: "http:\n  listn: x\n", want: []string{"w.yaml:2: http.listn: there is no such key; did you mean http.listen?"}},
		{name: "unknown section", yaml: "\n\nhtpp: {}\n", want: []string{"w.yaml:3: htpp: there is no such key; did you mean http?"}},
		{name: "wrong section", yaml: "http:\n  ack_wait: 3s\n", want: []string{"did you mean lease.ack_wait?"}},
		{name: "nothing near", yaml: "qqqqqqqqqq: 1\n", want: []string{"w.yaml:1: qqqqqqqqqq: there is no such key"}},
		{name: "key twice", yaml: "log:\n  level: info\n  level: warn\n", want: []string{"w.yaml:3: log.level", "line 2 already"}},
		{name: "section is a value", yaml: "http: 7\n", want: []string{`w.yaml:1: http: given "7", allowed: keys and their values`}},
		{name: "file is a list", yaml: "- a\n", want: []string{"w.yaml:1: the file: given a list"}},
		{name: "two documents", yaml: "log: {}\n---\nlog: {}\n", want: []string{"given a second document"}},
		{name: "not YAML", yaml: "log: [\n", want: []string{"w.yaml: yaml: line"}},
		{name: "value is a section", yaml: "http: {listen: {a: b}}\n", want: []string{"http.listen: given keys and their values, allowed: host:port"}},
		{name: "value is empty", yaml: "http:\n  listen:\n", want: []string{"w.yaml:2: http.listen: given nothing"}},
		{name: "no number", yaml: "executor: {slots: many}\n", want: []string{`given "many", allowed: a whole number from 1 to 10000`}},
		{name: "fraction", yaml: "executor: {slots: 1.5}\n", want: []string{`given "1.5"`}},
		{name: "number out of range", yaml: "executor: {slots: 0}\n", want: []string{`w.yaml:1: executor.slots: given "0"`}},
		{name: "huge number", yaml: "executor: {slots: 99999999999999999999}\n", want: []string{`given "99999999999999999999"`}},
		{name: "no unit", yaml: "lease: {ack_wait: 10}\n", want: []string{`lease.ack_wait: given "10", allowed: a duration from 2s to 10m`}},
		{name: "negative duration", yaml: "planner: {horizon: -1s}\n", want: []string{`given "-1s"`}},
		{name: "mark too early", yaml: "planner: {mark_ahead: 251ms}\n", want: []string{`planner.mark_ahead: given "251ms", allowed: a duration from 1ms to 250ms`}},
		{name: "no size", yaml: "nats: {max_bytes: 1GB}\n", want: []string{`given "1GB", allowed: a size from 16MiB`}},
		{name: "no bool", yaml: "executor: {kinds: {http: {allow_private: yes}}}\n", want: []string{`given "yes", allowed: true or false`}},
		{name: "no list", yaml: "executor: {queues: a}\n", want: []string{`executor.queues: given "a", allowed: a list of`}},
		{name: "list of lists", yaml: "executor: {queues: [[a]]}\n", want: []string{`executor.queues: given a list`}},
		{name: "queue name", yaml: "executor: {queues: [\"a.b\"]}\n", want: []string{`executor.queues: given "a.b"`}},
		{name: "no queue", yaml: "executor: {queues: []}\n", want: []string{`executor.queues: given ""`}},
		{name: "relative program", yaml: "executor: {kinds: {exec: {enabled: true, allow: [echo]}}}\n", want: []string{`exec.allow: given "echo", allowed: absolute paths`}},
		{name: "label", yaml: "executor: {labels: {\"a b\": c}}\n", want: []string{`executor.labels: given "a b=c"`}},
		{name: "label twice", yaml: "executor:\n  labels:\n    a: b\n    a: c\n", want: []string{"w.yaml:4: executor.labels.a: given a second time"}},
		{name: "label without value", yaml: "executor: {labels: {a: }}\n", want: []string{"executor.labels.a: given nothing"}},
		{name: "labels are a list", yaml: "executor: {labels: [a]}\n", want: []string{"executor.labels: given a list"}},
		{name: "key is a list", yaml: "? [a]\n: b\n", want: []string{"a key: given a list, allowed: a name"}},
		{name: "merge key", yaml: "<<: {log: {level: debug}}\n", want: []string{"<<: there is no such key"}},
		{name: "level", args: []string{"--log.level", "loud"}, want: []string{`--log.level: log.level: given "loud", allowed: debug, info, warn or error`}},
		{name: "listen", environ: []string{"WATERCLOCK_HTTP_LISTEN=7420"}, want: []string{`environment WATERCLOCK_HTTP_LISTEN: http.listen: given "7420", allowed: host:port`}},
		{name: "port", args: []string{"--nats.listen", "h:70000"}, want: []string{`given "h:70000"`}},
		{name: "variable of a section", environ: []string{"WATERCLOCK_HTTP_NONE=1"}, want: []string{"environment: WATERCLOCK_HTTP_NONE: there is no such key"}},
		{name: "misspelt variable", environ: []string{"WATERCLOCK_HTPP_LISTEN=1"}, want: []string{"did you mean WATERCLOCK_HTTP_LISTEN?"}},
		{name: "half of TLS", args: []string{"--http.tls_cert", "/c"}, want: []string{"http.tls_cert and http.tls_key: given only one of them"}},
		{name: "heartbeat", args: []string{"--lease.heartbeat", "9s"}, want: []string{"lease.heartbeat + lease.margin: given 11s, allowed: less than 7.5s with lease.ack_wait 10s"}},
		{name: "exec allows nothing", args: []string{"--executor.kinds.exec.enabled"}, want: []string{"executor.kinds.exec.allow: given nothing"}},
		{name: "store", args: []string{"--store.url", "mysql://h/db"}, want: []string{`store.url: given "mysql://h/db", allowed: sqlite:PATH`}},
		{name: "sqlite without a path", args: []string{"--store.url", "sqlite:"}, want: []string{"store.url"}},
		{name: "nats", args: []string{"--nats.url", "nats://a,http://b"}, want: []string{"nats.url"}},
		{name: "blob", args: []string{"--blob.url", "/tmp"}, want: []string{"blob.url"}},
		{name: "replicas", args: []string{"--nats.replicas", "2"}, want: []string{`given "2", allowed: 1, 3 or 5`}},
		{name: "everything at once", yaml: "a: 1\nb: 2\n", args: []string{"--log.level", "x"}, want: []string{"w.yaml:1", "w.yaml:2", "--log.level"}},
		{name: "no such file", args: []string{"--config", "/none.yaml"}, want: []string{"configuration file of --config", "/none.yaml", "no such file"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			args := test.args
			if test.yaml != "" {
				args = append([]string{"--config", writeFile(t, test.yaml)}, args...)
			}
			_, err := load(t, args, test.environ)
			if err == nil {
				t.Fatal("was taken")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got  %v\nwant %s", err, want)
				}
			}
		})
	}
}

func TestForeignVariablesAreLeftAlone(t *testing.T) {
	t.Parallel()
	_, err := load(t, nil, []string{
		"WATERCLOCK_SERVER=http://h", "WATERCLOCK_API_KEY=k", "WATERCLOCK_SKIPS=/x", "WATERCLOCK_SERVICE_HOST=10.0.0.1",
		"WATERCLOCK_HTTP_PORT=tcp://10.0.0.1:7420", "WATERCLOCK_HTTP_PORT_7420_TCP_ADDR=10.0.0.1", "WATERCLOCK_NATS_SERVICE_PORT_CLIENT=1",
	})
	if err != nil {
		t.Error(err)
	}
}

// No way of showing a configuration may show a password, and neither may an error about it.
func TestSecretsAreMasked(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	cfg, err := load(t, nil, []string{
		"WATERCLOCK_STORE_URL=postgres://joe:" + secret + "@h/db?sslpassword=" + secret,
		"WATERCLOCK_NATS_URL=nats://" + secret + "@a:4222,tls://u:" + secret + "@b",
		"WATERCLOCK_BLOB_URL=file:///blobs?secret=" + secret,
	})
	if err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "config", cfg, "url", cfg.Store.URL, "store", cfg.Store)
	shown := []string{cfg.String(), fmt.Sprintf("%v %+v %#v", cfg, cfg, cfg), fmt.Sprintf("%v %+v %#v %q", cfg.Store, cfg.NATS, cfg.Blob, cfg.Store.URL), logged.String()}
	for _, bad := range []string{
		"postgres://joe:" + secret + "%zz@h", "joe:" + secret + "@h/db", "host=h password=" + secret, "http://joe:" + secret + "@h",
	} {
		_, err := load(t, nil, []string{"WATERCLOCK_STORE_URL=" + bad, "WATERCLOCK_NATS_URL=" + bad})
		if err == nil {
			t.Errorf("%s was taken", bad)
			continue
		}
		shown = append(shown, err.Error())
	}
	_, err = load(t, []string{"--store.url", "postgres://joe:" + secret + "@h/db"}, nil)
	if err == nil || !strings.Contains(err.Error(), "no password in a flag") {
		t.Errorf("a password in a flag: %v", err)
	} else {
		shown = append(shown, err.Error())
	}
	for _, text := range shown {
		if strings.Contains(text, secret) {
			t.Errorf("shows the secret: %s", text)
		}
	}
	if !strings.Contains(string(cfg.Store.URL), secret) || !strings.Contains(cfg.String(), "postgres://joe:xxxxx@h/db") {
		t.Errorf("got %s", cfg.String())
	}
}

func TestValuesAreShownAsTheyAreRead(t *testing.T) {
	t.Parallel()
	for _, s := range settings {
		cfg := Default()
		v := cfg.field(s.key)
		back, ok := parse(v.Type(), format(v.Interface()))
		if !ok || format(back) != format(v.Interface()) {
			t.Errorf("%s: %v comes back as %v", s.key, v.Interface(), back)
		}
	}
	for text, want := range map[string]string{"36h": "36h", "90m": "1h30m", "2160h": "90d", "1d12h": "36h", "10m0s": "10m", "0s": "0s", "1.5s": "1.5s"} {
		d, ok := parseDuration(text)
		if !ok || formatDuration(d) != want {
			t.Errorf("%s: got %s, want %s", text, formatDuration(d), want)
		}
	}
}

// Whatever the file holds, Load answers with a configuration that holds to its settings or with an error that has a place in it.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{"", "http: {listen: 'h:1'}", "a: &x [*x]", "log: {level: *x}", "? {}\n: 1", "- - -", "executor: {labels: {a: b}}", "\x00", "&a log: *a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cfg, err := load(t, []string{"--config", writeFile(t, text)}, nil)
		if err != nil {
			var one *Error
			if errors.As(err, &one) && !strings.Contains(err.Error(), "w.yaml:") && !strings.Contains(one.Key, "lease") && !strings.Contains(one.Key, "exec.allow") {
				t.Errorf("no place in: %v", err)
			}
			return
		}
		for _, s := range settings {
			if v := cfg.field(s.key).Interface(); s.check != nil && !s.check(v) {
				t.Errorf("%s: took %v", s.key, v)
			}
		}
	})
}
