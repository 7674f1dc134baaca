package world

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// RedisSettings are those that the benchmark starts redis-server with: an append-only file that is synced every second, and no snapshots beside it.
var RedisSettings = []string{"--appendonly", "yes", "--appendfsync", "everysec", "--save", ""}

// ErrNoRedis says that this machine has no redis-server.
var ErrNoRedis = errors.New("no redis-server in PATH (Debian: apt-get install redis-server)")

// Redis is a throw-away redis-server.
type Redis struct {
	process *process
	folder  string
	port    int
	// Version is the server's own.
	Version string
}

// StartRedis starts redis-server in a folder of its own. ErrNoRedis where there is none.
func StartRedis(ctx context.Context) (_ *Redis, err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, ErrNoRedis
	}
	r := &Redis{}
	if r.folder, err = os.MkdirTemp("", "waterclock-bench-redis-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Stop())
		}
	}()
	if r.port, err = freePort(); err != nil {
		return nil, err
	}
	cmd := exec.Command(path, append([]string{"--port", strconv.Itoa(r.port), "--bind", "127.0.0.1", "--dir", r.folder}, RedisSettings...)...)
	cmd.Dir = r.folder
	r.process, err = startProcess(ctx, "Redis", cmd, syscall.SIGTERM, func(context.Context) error {
		answer, err := r.ask("INFO server", "redis_version:")
		r.Version = answer
		return err
	})
	return r, err
}

// PID is the server's.
func (r *Redis) PID() int { return r.process.pid() }

// Addr is host:port.
func (r *Redis) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// Clear removes everything that is stored.
func (r *Redis) Clear() error {
	_, err := r.ask("FLUSHALL", "+OK")
	return err
}

// ask sends one command in its inline form and returns what follows the given words in the answer.
func (r *Redis) ask(command, words string) (rest string, err error) {
	conn, err := net.DialTimeout("tcp4", r.Addr(), time.Second)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		return "", err
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), words); ok {
			return rest, nil
		}
		if strings.HasPrefix(lines.Text(), "-") {
			break
		}
	}
	return "", fmt.Errorf("redis: %s: answer %q has no line %q", command, lines.Text(), words)
}

// Stop ends the server and removes its folder. It may be called more than once.
func (r *Redis) Stop() error {
	var err error
	if r.process != nil {
		err = r.process.stop()
	}
	return errors.Join(err, os.RemoveAll(r.folder))
}
