package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/waterclock-io/waterclock/chaos/process"
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
	target
	role string
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
	if m.Process != nil {
		errs = append(errs, m.Close())
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
			if err != nil {
				return err
			}
			c.members = append(c.members, m)
		}
	}
	return nil
}

func (c *Cluster) newMember(role, name string, sql bool) (_ *member, err error) {
	address, err := process.FreeAddress()
	if err != nil {
		return nil, err
	}
	m := &member{role: role, url: "http://" + address}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	var urls []string
	for _, n := range c.nats.nodes {
		l, err := proxy.Listen(n.client)
		if err != nil {
			return nil, err
		}
		m.nats = append(m.nats, l)
		urls = append(urls, "nats://"+l.Addr())
	}
	o := c.o
	args := []string{
		role, "--http.listen", address, "--nats.url", strings.Join(urls, ","), "--nats.replicas", strconv.Itoa(o.Nodes), "--nats.max_bytes", "64MiB",
		"--blob.url", "file://" + filepath.ToSlash(c.BlobDir()), "--data.dir", filepath.Join(o.Dir, name),
		"--lease.ack_wait", o.AckWait.String(), "--lease.heartbeat", o.Heartbeat.String(), "--lease.margin", o.Margin.String(),
		"--startup.timeout", process.UpLimit.String(),
	}
	if sql {
		if m.sql, err = proxy.Listen(c.sql.address); err != nil {
			return nil, err
		}
		args = append(args, "--store.url", dsn(m.sql.Addr(), owner, database), "--store.max_conns", "4")
	}
	if role == "executor" {
		args = append(args, "--executor.slots", strconv.Itoa(o.Slots), "--executor.queues", "default,"+OwnQueue,
			"--executor.drain_grace", o.DrainGrace.String(), "--executor.kinds.http.allow_private")
		if len(o.Child) > 0 {
			args = append(args, "--executor.kinds.exec.enabled", "--executor.kinds.exec.allow", o.Child[0])
		}
	}
	p, err := process.New(process.Options{
		Name: name, Path: o.Waterclock, Args: args, Dir: o.Dir, LogDir: o.Dir, Env: process.Environment(o.Dir), End: syscall.SIGTERM,
		Up: func(ctx context.Context) error {
			if !m.Said("HTTP   " + m.url) { // somebody else may answer at the address
				return errors.New("it does not say that it listens")
			}
			return healthy(ctx, c.http, m.url+"/healthz")
		},
	})
	m.target = target{Process: p, turn: newTurn(), mortal: role == "executor"}
	return m, err
}

// command runs a command of Waterclock that speaks to the database, and returns what it prints.
func (c *Cluster) command(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.o.Waterclock, append(args, "--store.url", c.sql.dsn(owner, database))...)
	cmd.Dir, cmd.Env = c.o.Dir, process.Environment(c.o.Dir)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("waterclock %s: %w\n%s", strings.Join(args, " "), err, &errOut)
	}
	return out.String(), nil
}
