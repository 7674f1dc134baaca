package failpoint_test

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/waterclock-io/waterclock/internal/failpoint"
)

const root = "../.."

// names are the constants of the package that hold the name of a point, by value.
func names(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "failpoint.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	byValue := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 || !v.Names[0].IsExported() || v.Names[0].Name == "Variable" {
			return true
		}
		if lit, ok := v.Values[0].(*ast.BasicLit); ok {
			value, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			byValue[value] = v.Names[0].Name
		}
		return true
	})
	return byValue
}

var call = regexp.MustCompile(`failpoint\.(Here|Err)\(failpoint\.(\w+)\)`)

// calls are the functions by which the product passes each constant.
func calls(t *testing.T) map[string][]string {
	t.Helper()
	passed := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path) // both are relative
		switch {
		case d.IsDir() && (rel == filepath.Join("internal", "failpoint") || rel == "chaos" || (rel != "." && strings.HasPrefix(d.Name(), "."))):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range call.FindAllSubmatch(text, -1) {
			passed[string(m[2])] = append(passed[string(m[2])], string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return passed
}

// No point is dead, and none is left out of the lists that fault runs draw from.
func TestEveryPointIsPassed(t *testing.T) {
	t.Parallel()
	constants, passed := names(t), calls(t)
	check := func(p failpoint.Point, by string) {
		if got := passed[constants[p.Name]]; len(got) == 0 || slices.ContainsFunc(got, func(f string) bool { return f != by }) {
			t.Errorf("%s (%s) is passed by %v; want failpoint.%s", p.Name, constants[p.Name], got, by)
		}
		if len(p.Roles) == 0 {
			t.Errorf("%s has no role", p.Name)
		}
		delete(constants, p.Name)
	}
	for _, p := range failpoint.All {
		check(p, "Here")
	}
	for _, p := range failpoint.Errors {
		check(p, "Err")
	}
	if len(constants) > 0 {
		t.Errorf("in neither All nor Errors, or twice in them: %v", constants)
	}
}

func TestCompiledOut(t *testing.T) {
	t.Parallel()
	build := func(name string, args ...string) (binary string) {
		binary = filepath.Join(t.TempDir(), name)
		args = append(append([]string{"build"}, args...), "-o", binary, "./testdata/passes")
		if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil { //nolint:gosec // our own
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
		return binary
	}
	run := func(binary, armed string) (string, error) {
		cmd := exec.CommandContext(t.Context(), binary)
		cmd.Env = append(os.Environ(), failpoint.Variable+"="+armed)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	with, without := build("with", "-tags", "failpoints"), build("without")

	for _, text := range []string{failpoint.PlannerMarked, failpoint.StoreRetry, failpoint.Variable} {
		for binary, want := range map[string]bool{with: true, without: false} {
			data, err := os.ReadFile(binary)
			if err != nil {
				t.Fatal(err)
			}
			if got := bytes.Contains(data, []byte(text)); got != want {
				t.Errorf("%s has %q in it: %t", filepath.Base(binary), text, got)
			}
		}
	}
	for _, armed := range []string{"planner.marked=kill@1", "no such point"} {
		if out, err := run(without, armed); err != nil || out != "passed <nil>\n" {
			t.Errorf("compiled out and armed with %q: %v, %q", armed, err, out)
		}
	}
	for armed, want := range map[string]string{
		"":                       "passed <nil>\n",
		"planner.marked=kill@2":  "passed <nil>\n",
		"store.retry=error@1":    "failpoint store.retry: error at pass 1\npassed failpoint store.retry: error at pass 1\n",
		"planner.marked=kill@1":  "failpoint planner.marked: killed at pass 1\n",
		"planner.marked=kill:1":  "failpoint planner.marked: killed at pass 1\n",
		"planner.marked=error@1": "WATERCLOCK_FAILPOINTS: \"planner.marked=error@1\" given: unknown action \"error\"; allowed at planner.marked: kill\n",
	} {
		out, err := run(with, armed)
		var exit *exec.ExitError
		code := 0
		if errors.As(err, &exit) {
			code = exit.ExitCode()
		}
		wantCode := 0
		switch {
		case strings.Contains(want, "killed"):
			wantCode = -1
		case strings.HasPrefix(want, failpoint.Variable):
			wantCode = 2
		}
		if out != want || code != wantCode {
			t.Errorf("armed with %q: exit code %d, %q; want %d, %q", armed, code, out, wantCode, want)
		}
	}
}
