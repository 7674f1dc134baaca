package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// resolve checks the command and returns the absolute path of its executable. What it finds wrong is wrong for every attempt; what it
// misses (a file that goes away in between) the guard reports.
func resolve(c Command) (string, error) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return "", &StartError{Field: "argv", Err: errors.New("is empty; at least the executable is needed")}
	}
	for i, arg := range c.Argv {
		if strings.ContainsRune(arg, 0) {
			return "", &StartError{Field: fmt.Sprintf("argv[%d]", i), Value: arg, Err: errors.New("contains a NUL byte")}
		}
	}
	for i, entry := range c.Env {
		if strings.ContainsRune(entry, 0) || strings.IndexByte(entry, '=') < 1 {
			return "", &StartError{Field: "env", Err: fmt.Errorf("entry %d is not KEY=value without NUL bytes", i)}
		}
	}
	dir, err := workingDir(c.Dir)
	if err != nil {
		return "", &StartError{Field: "dir", Value: c.Dir, Err: err}
	}
	path, err := lookUp(c.Argv[0], dir, c.Env)
	if err != nil {
		return "", &StartError{Field: "argv[0]", Value: c.Argv[0], Err: err}
	}
	return path, nil
}

func workingDir(dir string) (string, error) {
	if dir == "" {
		return os.Getwd()
	}
	if strings.ContainsRune(dir, 0) {
		return "", errors.New("contains a NUL byte")
	}
	info, err := os.Stat(dir)
	if err != nil {
		return "", errors.Unwrap(err)
	}
	if !info.IsDir() {
		return "", syscall.ENOTDIR
	}
	return filepath.Abs(dir)
}

func lookUp(name, dir string, env []string) (string, error) {
	if filepath.IsAbs(name) {
		return name, executable(name)
	}
	if strings.Contains(name, "/") {
		path := filepath.Join(dir, name)
		return path, executable(path)
	}
	search, ok := pathOf(env)
	if !ok {
		return "", errors.New("has no slash, and env has no PATH to look it up in")
	}
	denied := error(nil)
	for _, folder := range filepath.SplitList(search) {
		// A relative folder would let whoever writes to the working directory choose the program.
		if !filepath.IsAbs(folder) {
			continue
		}
		path := filepath.Join(folder, name)
		err := executable(path)
		if err == nil {
			return path, nil
		}
		if errors.Is(err, fs.ErrPermission) {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", fmt.Errorf("not in the PATH of env, %q: %w", search, syscall.ENOENT)
}

// pathOf takes the first PATH, as the command's own getenv would.
func pathOf(env []string) (string, bool) {
	for _, entry := range env {
		if search, ok := strings.CutPrefix(entry, "PATH="); ok {
			return search, true
		}
	}
	return "", false
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return errors.Unwrap(err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("not a regular file: %w", syscall.EACCES)
	}
	return unix.Access(path, unix.X_OK)
}
