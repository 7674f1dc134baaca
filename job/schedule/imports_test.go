package schedule_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestImports keeps the package pure: no I/O, and robfig/cron in the one file that parses.
func TestImports(t *testing.T) {
	t.Parallel()
	allowed := []string{
		"crypto/sha256", "embed", "encoding/binary", "fmt", "math/bits", "sort", "strconv", "strings", "sync", "time", "time/tzdata",
		"github.com/waterclock-io/waterclock/job/fielderr",
	}
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(allowed, path) && (path != "github.com/robfig/cron/v3" || name != "spec.go") {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
}
