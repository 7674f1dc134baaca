package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/waterclock-io/waterclock/chaos/proxy"
)

// roleCounts is how many processes each role has.
var roleCounts = []struct {
	role  string
	count int
	sql   bool // speaks to the database
}{{"recorder", 2, true}, {"planner", 2, true}, {"api", 2, true}, {"executor", 3, false}}

// member is a process of Waterclock, with the links that are its own.
type member struct {
	*Process
	url  string
	nats []*proxy.Proxy // one to each node
	sql  *proxy.Proxy   // nil for an executor
}

func (m *member) links() []*proxy.Proxy {
	if m.sql == nil {
		return m.nats
	}
	return append(m.nats[:len(m.nats):len(m.nats)], m.sql)
}

func (m *member) heal() {
	for _, l := range m.links() {
		l.Heal()
	}
}

func (m *member) close() error {
	var errs []error
	for _, l := range m.links() {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// makeMembers makes the processes of the roles and their links; it starts none.
func (c *Cluster) makeMembers() error {
	if err := os.MkdirAll(c.BlobDir(), 0o700); err != nil {
		return fmt.Errorf("folder of blobs: %w", err)
	}
	for _, r := range roleCounts {
		for i := range r.count {
			m, err := c.newMember(r.role, fmt.Sprintf("%s-%d", r.role, i+1), r.sql)
			if m != nil {
				c.members = append(c.members, m)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Cluster) newMember(role, name string, sql bool) (*member, error) {
	address, err := FreePort()
	if err != nil {
		return nil, err
	}
	log, err := openLog(c.o.Dir, name)
	if err != nil {
		return nil, err
	}
	m := &member{url: "http://" + address, Process: &Process{
		name: name, role: role, turn: newTurn(), path: c.o.Waterclock, dir: c.o.Dir, env: baseEnvironment(c.o.Dir), end: syscall.SIGTERM, log: log,
	}}
	m.probe = func(ctx context.Context) error {
		if !strings.Contains(m.lastLife(), "HTTP   "+m.url) { // somebody else may answer at the address
			return errors.New("it does not say that it listens")
		}
		return get(ctx, c.http, m.url+"/healthz")
	}
	var urls []string
	for _, n := range c.nats.nodes {
		l, err := proxy.Listen(n.client)
		if err != nil {
			return m, err
		}
		m.nats = append(m.nats, l)
		urls = append(urls, "nats://"+l.Addr())
	}
	o := c.o
	m.args = []string{
		role, "--http.listen", address, "--nats.url", strings.Join(urls, ","), "--nats.replicas", "3", "--nats.max_bytes", "64MiB",
		"--blob.url", "file://" + filepath.ToSlash(c.BlobDir()), "--data.dir", filepath.Join(o.Dir, name),
		"--lease.ack_wait", o.AckWait.String(), "--lease.heartbeat", o.Heartbeat.String(), "--lease.margin", o.Margin.String(),
		"--startup.timeout", upLimit.String(),
	}
	if sql {
		if m.sql, err = proxy.Listen(c.sql.address); err != nil {
			return m, err
		}
		m.args = append(m.args, "--store.url", dsn(m.sql.Addr(), owner, database), "--store.max_conns", "4")
	}
	if role == "executor" {
		m.args = append(m.args, "--executor.slots", strconv.Itoa(o.Slots), "--executor.queues", "default,"+OwnQueue,
			"--executor.drain_grace", o.DrainGrace.String(), "--executor.kinds.http.allow_private")
		if len(o.Child) > 0 {
			m.args = append(m.args, "--executor.kinds.exec.enabled", "--executor.kinds.exec.allow", o.Child[0])
		}
	}
	return m, nil
}

// command runs a command of Waterclock that speaks to the database, and returns what it prints.
func (c *Cluster) command(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.o.Waterclock, append(args, "--store.url", c.sql.dsn(owner, database))...)
	cmd.Dir, cmd.Env = c.o.Dir, baseEnvironment(c.o.Dir)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("waterclock %s: %w\n%s", strings.Join(args, " "), err, &errOut)
	}
	return out.String(), nil
}

// get is nil where the address answers 200.
func get(ctx context.Context, client *http.Client, url string) error {
	_, err := body(ctx, client, url)
	return err
}

// read is get, and reads the JSON that it is answered.
func read(ctx context.Context, client *http.Client, url string, into any) error {
	b, err := body(ctx, client, url)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("read the answer of %s: %w", url, err)
	}
	return nil
}

func body(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s: %s", url, res.Status, b)
	}
	return b, nil
}

func openLog(dir, name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", name, err)
	}
	return f, nil
}
