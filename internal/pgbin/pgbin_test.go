package pgbin

import (
	"errors"
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
		"variable":        {env: map[string]string{Variable: given, "PATH": onPath}, pattern: debian, want: given},
		"wrong variable":  {env: map[string]string{Variable: empty, "PATH": onPath}, pattern: debian, fails: Variable},
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
				if notFound := errors.Is(err, ErrNotFound); notFound != (test.env[Variable] == "") {
					t.Errorf("%v: is ErrNotFound: %t", err, notFound)
				}
				return
			}
			if err != nil || got != test.want {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}
