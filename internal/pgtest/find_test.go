package pgtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func programs(t *testing.T, folder string) string {
	t.Helper()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"initdb", "postgres"} {
		if err := os.WriteFile(filepath.Join(folder, program), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestFind(t *testing.T) {
	t.Parallel()
	root, empty := t.TempDir(), t.TempDir()
	given := programs(t, filepath.Join(root, "given"))
	onPath := programs(t, filepath.Join(root, "path"))
	programs(t, filepath.Join(root, "debian/9.6/bin"))
	newest := programs(t, filepath.Join(root, "debian/15/bin"))
	debian := filepath.Join(root, "debian/*/bin")
	if err := os.MkdirAll(filepath.Join(root, "debian/17/bin"), 0o755); err != nil { // a client alone
		t.Fatal(err)
	}
	tests := map[string]struct {
		env     map[string]string
		pattern string
		want    string
		fails   string
	}{
		"variable":        {env: map[string]string{binVariable: given, "PATH": onPath}, pattern: debian, want: given},
		"wrong variable":  {env: map[string]string{binVariable: empty, "PATH": onPath}, pattern: debian, fails: binVariable},
		"path":            {env: map[string]string{"PATH": empty + ":" + onPath}, pattern: debian, want: onPath},
		"newest":          {env: map[string]string{"PATH": empty}, pattern: debian, want: newest},
		"nowhere":         {env: map[string]string{"PATH": empty}, pattern: filepath.Join(empty, "*"), fails: empty},
		"nowhere, no env": {pattern: filepath.Join(empty, "*"), fails: "not set"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := find(func(name string) string { return test.env[name] }, test.pattern)
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Fatalf("got %q, %v; want an error with %q", got, err, test.fails)
				}
				if notFound := errors.Is(err, errNotFound); notFound != (test.env[binVariable] == "") {
					t.Errorf("%v: is errNotFound: %t", err, notFound)
				}
				return
			}
			if err != nil || got != test.want {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

// recorder is a test that notes how it was ended.
type recorder struct {
	testing.TB
	ended string
}

func (r *recorder) Helper()      {}
func (r *recorder) Name() string { return "TestRecorded" }
func (r *recorder) Fatalf(format string, args ...any) {
	r.ended = "fatal: " + fmt.Sprintf(format, args...)
	panic(r)
}
func (r *recorder) Skipf(format string, args ...any) {
	r.ended = "skip: " + fmt.Sprintf(format, args...)
	panic(r)
}

func TestMissing(t *testing.T) {
	t.Parallel()
	skips := filepath.Join(t.TempDir(), "skips")
	for name, test := range map[string]struct {
		ci, want, told string
	}{
		"by hand": {"", "skip: NOT TESTED: no PostgreSQL", "TestRecorded\n"},
		"in CI":   {"true", "fatal: pgtest: no PostgreSQL", ""},
	} {
		env := map[string]string{"CI": test.ci, skipsVariable: skips}
		r := &recorder{TB: t}
		func() {
			defer func() {
				if recover() != r {
					t.Errorf("%s: the test goes on", name)
				}
			}()
			require(r, func(name string) string { return env[name] }, filepath.Join(t.TempDir(), "*"))
		}()
		if !strings.HasPrefix(r.ended, test.want) {
			t.Errorf("%s: %q, want %q", name, r.ended, test.want)
		}
		told, err := os.ReadFile(skips)
		if test.told != "" && (err != nil || string(told) != test.told) {
			t.Errorf("%s: told %q, %v; want %q", name, told, err, test.told)
		}
		if err := os.RemoveAll(skips); err != nil {
			t.Fatal(err)
		}
	}
}
