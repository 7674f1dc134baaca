package command

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	got, err := decode([]byte(`{"argv":["date","-u"],"env":{"K":"V"},"dir":"/tmp","stdin":"in"}`), false)
	if err != nil {
		t.Fatal(err)
	}
	want := &Payload{Argv: []string{"date", "-u"}, Env: map[string]string{"K": "V"}, Dir: "/tmp", Stdin: "in"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("payload (-want +got):\n%s", d)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, payload, want string }{
		{"nothing", ``, "argv"},
		{"null", `null`, "argv"},
		{"shell string", `"date -u"`, "argv"},
		{"argv as a string", `{"argv":"date -u"}`, "argv"},
		{"unknown field", `{"argv":["date"],"shell":"x"}`, `unknown field "shell"`},
		{"two objects", `{"argv":["date"]}{}`, "something follows"},
		{"no argv", `{"argv":[]}`, `argv: "0 arguments"`},
		{"empty name", `{"argv":["","x"]}`, "the first not empty"},
		{"NUL in an argument", `{"argv":["date","a\u0000b"]}`, "argv[1]"},
		{"too many", `{"argv":["x"` + strings.Repeat(`,"x"`, 1024) + `]}`, "1025 arguments"},
		{"too long", `{"argv":["x","` + strings.Repeat("y", 128<<10) + `"]}`, "at most 131072"},
		{"relative dir", `{"argv":["x"],"dir":"tmp"}`, "dir"},
		{"NUL in dir", `{"argv":["x"],"dir":"/t\u0000"}`, "dir"},
		{"bad env name", `{"argv":["x"],"env":{"A=B":"topsecret"}}`, `env: "A=B"`},
		{"function in env", `{"argv":["x"],"env":{"BASH_FUNC_a%%":"topsecret"}}`, "env"},
		{"NUL in env", `{"argv":["x"],"env":{"A":"topsecret\u0000"}}`, "env.A"},
		{"own env", `{"argv":["x"],"env":{"WATERCLOCK_DISPATCH":"9"}}`, "env"},
		{"guard's env", `{"argv":["x"],"env":{"WATERCLOCK_GUARD":"1"}}`, "env"},
		{"preload", `{"argv":["x"],"env":{"LD_PRELOAD":"/tmp/topsecret.so"}}`, "LD_PRELOAD"},
		{"PATH", `{"argv":["x"],"env":{"PATH":"/tmp"}}`, "PATH"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := decode([]byte(c.payload), false)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "topsecret") {
				t.Errorf("got %v, want %q in it and no value of env", err, c.want)
			}
		})
	}
}

func TestTrustedPayloadMaySetAnything(t *testing.T) {
	t.Parallel()
	if _, err := decode([]byte(`{"argv":["x"],"env":{"LD_PRELOAD":"y","PATH":"/opt"}}`), true); err != nil {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"argv":["date","-u"],"env":{"K":"V"},"dir":"/tmp","stdin":"in"}`))
	f.Add([]byte(`{"argv":["a\u0000"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decode(b, false)
		if err != nil {
			return
		}
		if len(p.Argv) == 0 || strings.ContainsRune(strings.Join(p.Argv, ""), 0) || hasOwn(p.Env) {
			t.Errorf("%q was let through", b)
		}
	})
}

func hasOwn(env map[string]string) bool {
	for name := range env {
		if strings.HasPrefix(name, "WATERCLOCK_") || strings.HasPrefix(name, "LD_") || strings.ContainsAny(name, "=\x00") {
			return true
		}
	}
	return false
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Allow: []string{"/bin/date", "*"}, Grace: maxGrace}, ""},
		{Config{Allow: []string{"date"}}, `allow: "date"`},
		{Config{Grace: -1}, "grace"},
		{Config{Grace: maxGrace + 1}, "grace"},
	} {
		err := c.config.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%+v: %v, want %q", c.config.Allow, errors.Unwrap(err), c.want)
		}
	}
}
