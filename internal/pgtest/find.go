package pgtest

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/waterclock-io/waterclock/internal/pgbin"
)

// skipsVariable names a file to which each test that is skipped for want of PostgreSQL adds its name, for scripts/test to tell at its end.
const skipsVariable = "WATERCLOCK_SKIPS"

// Require returns the folder of PostgreSQL's programs. Where there is none it skips the test and says where it looked; it fails the
// test instead when CI is true, since there nothing may go untested, or when WATERCLOCK_PG_BIN names a folder without them.
func Require(tb testing.TB) (bin string) {
	tb.Helper()
	return require(tb, os.Getenv, pgbin.Find)
}

func require(tb testing.TB, getenv func(string) string, find func() (string, error)) (bin string) {
	tb.Helper()
	bin, err := find()
	switch {
	case err == nil:
		return bin
	case !errors.Is(err, pgbin.ErrNotFound):
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
