package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/waterclock-io/waterclock/chaos/process"
	"github.com/waterclock-io/waterclock/internal/pgbin"
)

// Who connects to what. The roles' user is no superuser, so that it cannot take the connections that PostgreSQL keeps for one.
const (
	superuser = "postgres"
	owner     = "waterclock"
	database  = "waterclock"
)

// sqlSettings are PostgreSQL's: few connections and little log, so that both can be used up.
var sqlSettings = []string{
	"listen_addresses=127.0.0.1", "max_connections=60", "shared_buffers=32MB", "fsync=on", "max_wal_size=64MB", "min_wal_size=32MB",
	"log_min_messages=error", "dynamic_shared_memory_type=mmap", "autovacuum_naptime=10s",
}

// postgres is the database.
type postgres struct {
	target
	address    string
	bin        string
	env        []string
	credential *syscall.Credential
	folder     *folder
	// full says why its disk cannot be filled; nil where it can.
	full error
}

// newPostgres makes the folder, on a small disk of its own where that can be had. It starts nothing.
func newPostgres(o Options) (*postgres, error) {
	bin, err := findPostgres(o.PostgresBin)
	if err != nil {
		return nil, err
	}
	credential, err := pgbin.Unprivileged()
	if err != nil {
		return nil, err
	}
	address, err := process.FreeAddress()
	if err != nil {
		return nil, err
	}
	p := &postgres{address: address, bin: bin, credential: credential, env: []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", process.Mark(o.Dir)}}
	if p.folder, p.full, err = newFolder(credential); err != nil {
		return nil, err
	}
	args := []string{"-D", p.data(), "-p", address[strings.LastIndexByte(address, ':')+1:], "-c", "unix_socket_directories=" + p.folder.path}
	for _, s := range sqlSettings {
		args = append(args, "-c", s)
	}
	server, err := process.New(process.Options{
		Name: "sql", Path: filepath.Join(bin, "postgres"), Args: args, Dir: p.folder.path, LogDir: o.Dir, Env: p.env, Credential: credential,
		End: syscall.SIGINT, // sessions are cut off, what is committed is kept
		Up:  func(ctx context.Context) error { return p.exec(ctx, "postgres", "SELECT 1") },
	})
	if err != nil {
		return nil, errors.Join(err, p.folder.remove())
	}
	p.target = target{Process: server, turn: newTurn()}
	return p, nil
}

// findPostgres looks in the folder given, or where internal/pgbin does.
func findPostgres(given string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	return pgbin.Find()
}

func (p *postgres) data() string { return filepath.Join(p.folder.path, "data") }

// init makes the database and starts it.
func (p *postgres) init(ctx context.Context) error {
	initdb := exec.CommandContext(ctx, filepath.Join(p.bin, "initdb"), "--pgdata="+p.data(), "--username="+superuser, "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	initdb.Dir, initdb.Env, initdb.SysProcAttr = p.folder.path, p.env, &syscall.SysProcAttr{Credential: p.credential}
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	if err := p.Start(ctx); err != nil {
		return err
	}
	if err := p.exec(ctx, "postgres", "CREATE ROLE "+owner+" LOGIN"); err != nil {
		return err
	}
	return p.exec(ctx, "postgres", "CREATE DATABASE "+database+" OWNER "+owner+" TEMPLATE template0")
}

// exec executes one statement as the superuser.
func (p *postgres) exec(ctx context.Context, database, statement string) error {
	conn, err := pgx.Connect(ctx, p.dsn(superuser, database))
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

func (p *postgres) dsn(user, database string) string { return dsn(p.address, user, database) }

func dsn(address, user, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(user), Host: address, Path: database, RawQuery: "sslmode=disable"}
	return u.String()
}

// all sends a signal to every process of PostgreSQL, the postmaster first; each backend has a process group of its own.
func (p *postgres) all(s syscall.Signal) error {
	pid := p.PID()
	if pid == 0 {
		return fmt.Errorf("%s to %s: %w", s, p.Name(), os.ErrProcessDone)
	}
	var errs []error
	for _, pid := range append([]int{pid}, process.Descendants(pid)...) {
		if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("%s to a process of PostgreSQL: %w", s, err))
		}
	}
	return errors.Join(errs...)
}

func (p *postgres) close() error { return errors.Join(p.Close(), p.folder.remove()) }
