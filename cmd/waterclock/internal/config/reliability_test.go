package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const reliabilityPath = "../../../../docs/reliability.md"

var (
	testNamed   = regexp.MustCompile("`([a-z0-9]+)\\.((?:Test|Fuzz)\\w+)`")
	testWritten = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// Each fault that is documented is tried by a test that is there, or says why by none.
func TestFaultsAreTriedByTestsThatAreThere(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(reliabilityPath)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, begun := strings.Cut(string(text), "<!-- faults:begin -->\n")
	table, _, ended := strings.Cut(rest, "<!-- faults:end -->\n")
	if !begun || !ended {
		t.Fatalf("%s has no table between faults:begin and faults:end", reliabilityPath)
	}
	written := testsOfTheTree(t)
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		if len(cells) != 3 || strings.HasPrefix(cells[0], "---") || strings.Contains(cells[2], "tried by") {
			continue
		}
		rows++
		tried := strings.TrimSpace(cells[2])
		named := testNamed.FindAllStringSubmatch(tried, -1)
		if len(named) == 0 && !strings.HasPrefix(tried, "none: ") && tried != "fault runs" {
			t.Errorf("%sis tried by %q; allowed: tests as `package.Test`, \"fault runs\", or \"none: \" and why", cells[0], tried)
		}
		if strings.Count(tried, "`") != 2*len(named) {
			t.Errorf("%snames something that is no test as `package.Test`: %s", cells[0], tried)
		}
		for _, n := range named {
			if !written[n[1]][n[2]] {
				t.Errorf("%sis tried by %s.%s, which is not there", cells[0], n[1], n[2])
			}
		}
	}
	if rows < 50 {
		t.Errorf("only %d rows were found", rows)
	}
}

// testsOfTheTree returns the tests that are written, by the last part of their folder's path.
func testsOfTheTree(t *testing.T) map[string]map[string]bool {
	t.Helper()
	found := map[string]map[string]bool{}
	err := filepath.WalkDir("../../../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() != ".." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir // the root is ".."
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		code, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder := filepath.Base(filepath.Dir(path))
		if found[folder] == nil {
			found[folder] = map[string]bool{}
		}
		for _, m := range testWritten.FindAllStringSubmatch(string(code), -1) {
			found[folder][m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
