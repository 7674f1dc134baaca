// Package pgbin finds the server programs of PostgreSQL on this machine, and whom to run them as. It starts nothing: packages pgtest and chaos/cluster do.
package pgbin

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Variable names the folder of initdb and postgres where the usual places do not hold the right ones.
const Variable = "WATERCLOCK_PG_BIN"

const debianFolders = "/usr/lib/postgresql/*/bin"

// ErrNotFound says that this machine has no PostgreSQL in the places looked at.
var ErrNotFound = errors.New("no PostgreSQL (initdb and postgres) found")

// Find returns the folder of initdb and postgres: that of WATERCLOCK_PG_BIN, of PATH, or the newest of Debian's folders. The error is ErrNotFound, or says that
// the folder that was named does not hold them.
func Find() (string, error) { return find(os.Getenv, debianFolders) }

// find looks in the variable, then PATH, then the folders that match pattern, the highest version first.
func find(getenv func(string) string, pattern string) (bin string, err error) {
	if given := getenv(Variable); given != "" {
		if !hasPrograms(given) {
			return "", fmt.Errorf("%s is %q, a folder without initdb and postgres", Variable, given)
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
		return "", fmt.Errorf("%w: %s is not set, and neither a folder of PATH nor %s holds them", ErrNotFound, Variable, pattern)
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

// Unprivileged is whom PostgreSQL, which refuses root, runs as: nil, the caller, or where the caller is root its usual user or nobody.
func Unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	var failed error
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			failed = errors.Join(failed, fmt.Errorf("user %s: %w", name, err))
			continue
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no other user to run it: %w", failed)
}
