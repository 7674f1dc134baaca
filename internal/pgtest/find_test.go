package pgtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waterclock-io/waterclock/internal/pgbin"
)

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
			require(r, func(name string) string { return env[name] }, func() (string, error) { return "", pgbin.ErrNotFound })
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
