package pgtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/waterclock-io/waterclock/internal/pgbin"
)

// home is where a cluster lives: its folder, its address, and as whom it runs. It outlasts the server processes in it.
type home struct {
	bin        string
	folder     string
	port       int
	credential *syscall.Credential // nil: as the caller
	settings   map[string]string
}

// newHome makes the folder and fills it by initdb.
func newHome(bin string, options Options) (*home, error) {
	credential, err := pgbin.Unprivileged()
	if err != nil {
		return nil, err
	}
	folder, err := makeFolder(credential)
	if err != nil {
		return nil, err
	}
	h := &home{bin: bin, folder: folder, credential: credential, settings: map[string]string{
		"listen_addresses":           "127.0.0.1",
		"unix_socket_directories":    folder,
		"max_connections":            "200",
		"shared_buffers":             "64MB",
		"log_min_messages":           "warning",
		"fsync":                      "off",  // a killed server loses nothing by it, only a machine that loses power would
		"dynamic_shared_memory_type": "mmap", // in the folder: nothing stays behind in /dev/shm after a kill
	}}
	if options.Fsync {
		h.settings["fsync"] = "on"
	}
	maps.Copy(h.settings, options.Settings)

	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "--pgdata="+h.data(), "--username=postgres",
		"--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	initdb.Dir, initdb.Env, initdb.SysProcAttr = folder, environment(), &syscall.SysProcAttr{Credential: credential}
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s%s", err, out, note(os.RemoveAll(folder)))
	}
	return h, nil
}

func (h *home) data() string { return filepath.Join(h.folder, "data") }
func (h *home) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(h.port)) }

// arguments are postgres's own, settings sorted by name so that a failure shows the same command each time.
func (h *home) arguments() []string {
	args := []string{"-D", h.data(), "-p", strconv.Itoa(h.port)}
	for _, name := range slices.Sorted(maps.Keys(h.settings)) {
		args = append(args, "-c", name+"="+h.settings[name])
	}
	return args
}

// startAnywhere chooses a port and starts there; another process may take the port in between, so it tries a few.
func (h *home) startAnywhere() (*server, error) {
	var tried error
	for range 5 {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		h.port = port
		s, err := h.start()
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, errPortTaken) {
			return nil, err
		}
		tried = err
	}
	return nil, tried
}

// freePort finds a port below those that the system hands to outgoing connections, so that nobody gets it while the cluster is down
// between Stop and Restart.
func freePort() (int, error) {
	var last error
	for range 100 {
		port := 20000 + rand.IntN(12000)
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("find a free port between 20000 and 31999: %w", last)
}

// makeFolder makes the cluster's folder, owned by whoever runs it, in the first temporary folder that this user can enter.
func makeFolder(credential *syscall.Credential) (string, error) {
	parent := os.TempDir()
	if credential != nil && !enterable(parent) {
		parent = "/tmp"
	}
	folder, err := os.MkdirTemp(parent, "waterclock-pg-")
	if err != nil {
		return "", err
	}
	if credential != nil {
		if err := os.Chown(folder, int(credential.Uid), int(credential.Gid)); err != nil {
			return "", errors.Join(err, os.Remove(folder))
		}
	}
	return folder, nil
}

// enterable says whether everybody may pass through a folder and all above it.
func enterable(folder string) bool {
	for {
		info, err := os.Stat(folder)
		if err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return true
		}
		folder = parent
	}
}

// environment is what the server's processes get: nothing of the caller's PG* variables, locale or zone.
func environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
}
