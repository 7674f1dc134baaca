package pgtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// binVariable names the folder of initdb and postgres where the usual places do not hold the right ones; skipsVariable names a file
// to which each test that is skipped for want of PostgreSQL adds its name, for scripts/test to tell at its end.
const (
	binVariable   = "WATERCLOCK_PG_BIN"
	skipsVariable = "WATERCLOCK_SKIPS"
	debianFolders = "/usr/lib/postgresql/*/bin"
)

// errNotFound says that this machine has no PostgreSQL in the places looked at.
var errNotFound = errors.New("no PostgreSQL (initdb and postgres) found")

// Require returns the folder of PostgreSQL's programs. Where there is none it skips the test and says where it looked; it fails the
// test instead when CI is true, since there nothing may go untested, or when WATERCLOCK_PG_BIN names a folder without them.
func Require(tb testing.TB) (bin string) {
	tb.Helper()
	return require(tb, os.Getenv, debianFolders)
}

func require(tb testing.TB, getenv func(string) string, pattern string) (bin string) {
	tb.Helper()
	bin, err := find(getenv, pattern)
	switch {
	case err == nil:
		return bin
	case !errors.Is(err, errNotFound):
		tb.Fatalf("pgtest: %v", err)
	case inCI(getenv):
		tb.Fatalf("pgtest: %v; CI is true, so this fails", err)
	}
	if err := tell(getenv(skipsVariable), tb.Name()); err != nil {
		tb.Fatalf("pgtest: %s: %v", skipsVariable, err)
	}
	tb.Skipf("NOT TESTED: %v", err)
	return ""
}

func inCI(getenv func(string) string) bool {
	ci, err := strconv.ParseBool(getenv("CI"))
	return err == nil && ci
}

func tell(path, test string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s\n", test)
	return errors.Join(err, f.Close())
}

// find looks in WATERCLOCK_PG_BIN, then PATH, then the folders that match pattern, the highest version first.
func find(getenv func(string) string, pattern string) (bin string, err error) {
	if given := getenv(binVariable); given != "" {
		if !hasPrograms(given) {
			return "", fmt.Errorf("%s is %q, a folder without initdb and postgres", binVariable, given)
		}
		return filepath.Abs(given)
	}
	for _, folder := range filepath.SplitList(getenv("PATH")) {
		if hasPrograms(folder) {
			return filepath.Abs(folder)
		}
	}
	folders, err := filepath.Glob(pattern)
	if err != nil {
		return "", fmt.Errorf("look for PostgreSQL: %w", err)
	}
	folders = slices.DeleteFunc(folders, func(folder string) bool { return !hasPrograms(folder) })
	if len(folders) == 0 {
		return "", fmt.Errorf("%w: %s is not set, and neither a folder of PATH nor %s holds them", errNotFound, binVariable, pattern)
	}
	return slices.MaxFunc(folders, func(a, b string) int { return version(a) - version(b) }), nil
}

func hasPrograms(folder string) bool {
	for _, program := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(folder, program))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// version is the major version in .../<version>/bin, and 0 where that is no number.
func version(folder string) int {
	major, _, _ := strings.Cut(filepath.Base(filepath.Dir(folder)), ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		return 0
	}
	return n
}
