package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// PostgresSettings are what every contender gets, beyond PostgreSQL's own defaults: fsync and synchronous_commit stay on.
var PostgresSettings = []string{
	"fsync=on", "synchronous_commit=on", "shared_buffers=256MB", "max_connections=300", "max_wal_size=4GB", "log_min_messages=error",
}

// Postgres is a throw-away cluster of PostgreSQL.
type Postgres struct {
	process *process
	folder  string
	port    int
	made    int
	// Version is the server's own.
	Version string
}

// StartPostgres makes a cluster in a folder of its own and starts it. The programs are looked for in WATERCLOCK_PG_BIN, PATH and Debian's folders.
func StartPostgres(ctx context.Context) (_ *Postgres, err error) {
	bin, err := findPostgres()
	if err != nil {
		return nil, err
	}
	credential, err := unprivileged()
	if err != nil {
		return nil, err
	}
	p := &Postgres{}
	parent := os.TempDir()
	if credential != nil {
		parent = "/tmp" // where every user may go
	}
	if p.folder, err = os.MkdirTemp(parent, "waterclock-bench-pg-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Stop())
		}
	}()
	if credential != nil {
		if err := os.Chown(p.folder, int(credential.Uid), int(credential.Gid)); err != nil {
			return nil, err
		}
	}
	if p.port, err = freePort(); err != nil {
		return nil, err
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	data := filepath.Join(p.folder, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "--pgdata="+data, "--username=postgres", "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--no-instructions")
	initdb.Dir, initdb.Env, initdb.SysProcAttr = p.folder, env, &syscall.SysProcAttr{Credential: credential}
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	args := []string{"-D", data, "-p", strconv.Itoa(p.port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=" + p.folder}
	for _, s := range PostgresSettings {
		args = append(args, "-c", s)
	}
	cmd := exec.Command(filepath.Join(bin, "postgres"), args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = p.folder, env, &syscall.SysProcAttr{Credential: credential}
	p.process, err = startProcess(ctx, "PostgreSQL", cmd, syscall.SIGINT, func(ctx context.Context) error {
		return p.ask(ctx, "SELECT current_setting('server_version')", &p.Version)
	})
	return p, err
}

// PID is the postmaster's.
func (p *Postgres) PID() int { return p.process.pid() }

// DSN is the URL of a database, as its superuser.
func (p *Postgres) DSN(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User("postgres"), Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)), Path: database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// NewDatabase makes an empty database, writes out what those before it left, and returns its DSN and a function that drops it.
func (p *Postgres) NewDatabase(ctx context.Context) (dsn string, drop func(context.Context) error, err error) {
	p.made++
	name := fmt.Sprintf("bench%d", p.made)
	if err := p.ask(ctx, "CREATE DATABASE "+name+" TEMPLATE template0", nil); err != nil {
		return "", nil, err
	}
	drop = func(ctx context.Context) error { return p.ask(ctx, "DROP DATABASE "+name+" WITH (FORCE)", nil) }
	return p.DSN(name), drop, p.ask(ctx, "CHECKPOINT", nil)
}

// Tidy does now what PostgreSQL would do in its own time after many writes: vacuum, analyze and a checkpoint.
func Tidy(ctx context.Context, dsn string) error {
	if err := ask(ctx, dsn, "VACUUM (ANALYZE)", nil); err != nil {
		return err
	}
	return ask(ctx, dsn, "CHECKPOINT", nil)
}

func (p *Postgres) ask(ctx context.Context, statement string, into any) error {
	return ask(ctx, p.DSN("postgres"), statement, into)
}

// ask executes one statement as the superuser; where into is not nil it gets the one value of the one row.
func ask(ctx context.Context, dsn, statement string, into any) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	if into == nil {
		_, err = conn.Exec(ctx, statement)
	} else {
		err = conn.QueryRow(ctx, statement).Scan(into)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", statement, err)
	}
	return errors.Join(err, conn.Close(ctx))
}

// Stop ends the cluster and removes its folder. It may be called more than once.
func (p *Postgres) Stop() error {
	var err error
	if p.process != nil {
		err = p.process.stop()
	}
	return errors.Join(err, os.RemoveAll(p.folder))
}

func findPostgres() (string, error) {
	folders := []string{os.Getenv("WATERCLOCK_PG_BIN")}
	if folders[0] == "" {
		debian, err := filepath.Glob("/usr/lib/postgresql/*/bin")
		if err != nil {
			return "", err
		}
		slices.Reverse(debian) // the newest first, as long as versions have two digits
		folders = append(filepath.SplitList(os.Getenv("PATH")), debian...)
	}
	for _, folder := range folders {
		_, errInit := exec.LookPath(filepath.Join(folder, "initdb"))
		_, errServer := exec.LookPath(filepath.Join(folder, "postgres"))
		if errInit == nil && errServer == nil {
			return filepath.Abs(folder)
		}
	}
	return "", fmt.Errorf("no initdb and postgres in %s; WATERCLOCK_PG_BIN names their folder", strings.Join(folders, ", "))
}

// freePort returns a port of this machine that nobody listens on at the moment.
func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // of a TCP listener
	return port, l.Close()
}
