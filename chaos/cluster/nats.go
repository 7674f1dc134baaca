package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/chaos/process"
	"github.com/waterclock-io/waterclock/chaos/proxy"
)

const (
	// currentLimit is how long the nodes may take to agree after a fault; elections take up to 9 s each, and several may follow each other.
	currentLimit = 90 * time.Second
	askLimit     = 3 * time.Second
)

// natsCluster is the NATS servers, the links between them, and a connection to them that no fault cuts.
type natsCluster struct {
	turn  turn // faults that hit nodes, or streams as a whole
	nodes []*node
	// routes[i][j] is the link by which node i reaches node j; nil where i is j.
	routes [][]*proxy.Proxy
	admin  *nats.Conn
	js     jetstream.JetStream
	http   *http.Client
}

// node is a NATS server.
type node struct {
	target
	client, route, monitor string // where it listens
	store, conf            string // its folder, and the file of its configuration
}

// newNATS makes the servers and writes their configuration; it starts none.
func newNATS(o Options, client *http.Client) (*natsCluster, error) {
	n := &natsCluster{turn: newTurn(), http: client}
	for i := range o.Nodes {
		m, err := n.newNode(o, fmt.Sprintf("nats-%d", i+1))
		if err != nil {
			return nil, errors.Join(err, n.close())
		}
		n.nodes = append(n.nodes, m)
	}
	for i, from := range n.nodes {
		n.routes = append(n.routes, make([]*proxy.Proxy, len(n.nodes)))
		var routes []string
		for j, to := range n.nodes {
			if i == j {
				continue
			}
			l, err := proxy.Listen(to.route)
			if err != nil {
				return nil, errors.Join(err, n.close())
			}
			n.routes[i][j] = l
			routes = append(routes, "nats://"+l.Addr())
		}
		if err := os.WriteFile(from.conf, []byte(from.configuration(i, routes)), 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("configuration of %s: %w", from.Name(), err), n.close())
		}
	}
	var err error
	n.admin, err = nats.Connect(n.urls(), nats.Name("chaos"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.ReconnectBufSize(-1), nats.Timeout(time.Second), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2))
	if err == nil {
		n.js, err = jetstream.New(n.admin)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to NATS: %w", err), n.close())
	}
	return n, nil
}

func (n *natsCluster) newNode(o Options, name string) (*node, error) {
	var addresses [3]string
	var err error
	for i := range addresses {
		if addresses[i], err = process.FreeAddress(); err != nil {
			return nil, err
		}
	}
	m := &node{
		client: addresses[0], route: addresses[1], monitor: addresses[2], store: filepath.Join(o.Dir, name), conf: filepath.Join(o.Dir, name+".conf"),
	}
	p, err := process.New(process.Options{
		Name: name, Path: o.NATSServer, Args: []string{"-c", m.conf}, Dir: o.Dir, LogDir: o.Dir, Env: process.Environment(o.Dir), End: syscall.SIGTERM,
		Up: func(ctx context.Context) error {
			return healthy(ctx, n.http, "http://"+m.monitor+"/healthz?js-server-only=true")
		},
	})
	m.target = target{Process: p, turn: n.turn}
	return m, err
}

// configuration is the node's; one that is alone is no cluster. Nobody learns an address that goes past a proxy: clients are told none, and what other nodes are told is taken by nobody, so that a
// pair of nodes meets only where one of them has been given the link to the other.
func (n *node) configuration(i int, routes []string) string {
	alone := fmt.Sprintf(`server_name: %q
listen: %q
http: %q
jetstream {
  store_dir: %q
  sync_interval: "100ms"
  max_file_store: 16GB
  max_memory_store: 64MB
}
`, n.Name(), n.client, n.monitor, n.store)
	if len(routes) == 0 {
		return alone
	}
	return alone + fmt.Sprintf(`cluster {
  name: "chaos"
  listen: %q
  no_advertise: true
  advertise: "127.0.0.1:%d"
  pool_size: 1
  routes: ["%s"]
}
`, n.route, i+1, strings.Join(routes, `", "`))
}

func (n *natsCluster) urls() string {
	var out []string
	for _, m := range n.nodes {
		out = append(out, "nats://"+m.client)
	}
	return strings.Join(out, ",")
}

func (n *natsCluster) start(ctx context.Context) error {
	var starts []func() error
	for _, m := range n.nodes {
		starts = append(starts, func() error { return m.Start(ctx) })
	}
	if err := together(starts...); err != nil {
		return err
	}
	return n.awaitCurrent(ctx)
}

// awaitCurrent returns once every node has all that it should have: any one of them may then be lost, with its data, and nothing is lost with it.
func (n *natsCluster) awaitCurrent(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, currentLimit, fmt.Errorf("NATS is not whole again within %s", currentLimit))
	defer cancel()
	return fault.Retry(ctx, askLimit, 100*time.Millisecond, nil, n.current)
}

// current is nil where all nodes are up, know their leader, and have every stream and consumer up to its end.
func (n *natsCluster) current(ctx context.Context) error {
	for _, m := range n.nodes {
		if err := healthy(ctx, n.http, "http://"+m.monitor+"/healthz"); err != nil {
			return err
		}
	}
	if err := n.met(ctx); err != nil {
		return err
	}
	account, err := n.js.AccountInfo(ctx)
	if err != nil {
		return fmt.Errorf("ask for the streams: %w", err)
	}
	count := 0
	list := n.js.ListStreams(ctx)
	for s := range list.Info() {
		count++
		if len(n.nodes) == 1 {
			continue
		}
		if s.Cluster == nil || s.Cluster.Leader == "" {
			return fmt.Errorf("stream %s has no leader", s.Config.Name)
		}
		if copies := len(s.Cluster.Replicas) + 1; copies != s.Config.Replicas {
			return fmt.Errorf("stream %s has %d copies of %d", s.Config.Name, copies, s.Config.Replicas)
		}
		for _, r := range s.Cluster.Replicas {
			if !r.Current || r.Offline {
				return fmt.Errorf("stream %s is not whole on %s", s.Config.Name, r.Name)
			}
		}
	}
	if err := list.Err(); err != nil {
		return fmt.Errorf("list the streams: %w", err)
	}
	if count != account.Streams {
		return fmt.Errorf("%d of %d streams answer", count, account.Streams)
	}
	return nil
}

// met is nil where the nodes have a leader that has heard of each of them; before, it finds no place for a stream.
func (n *natsCluster) met(ctx context.Context) error {
	if len(n.nodes) == 1 {
		return nil // it leads itself
	}
	for _, m := range n.nodes {
		var info server.JSInfo
		if err := getJSON(ctx, n.http, "http://"+m.monitor+"/jsz", &info); err != nil {
			return err
		}
		if info.Meta == nil || info.Meta.Leader == "" {
			return fmt.Errorf("%s knows no leader", m.Name())
		}
		if info.Meta.Leader != m.Name() {
			continue
		}
		if others := len(info.Meta.Replicas); others != len(n.nodes)-1 {
			return fmt.Errorf("the leader, %s, has met %d others", m.Name(), others)
		}
		for _, r := range info.Meta.Replicas {
			if !r.Current || r.Offline {
				return fmt.Errorf("%s is not whole in the eyes of the leader, %s", r.Name, m.Name())
			}
		}
	}
	return nil
}

// links are those of one node to the others, both ways.
func (n *natsCluster) links(node int) []*proxy.Proxy {
	var out []*proxy.Proxy
	for other := range n.nodes {
		if other != node {
			out = append(out, n.routes[node][other], n.routes[other][node])
		}
	}
	return out
}

func (n *natsCluster) eachRoute(f func(*proxy.Proxy) error) error {
	var errs []error
	for _, row := range n.routes {
		for _, l := range row {
			if l != nil {
				errs = append(errs, f(l))
			}
		}
	}
	return errors.Join(errs...)
}

func (n *natsCluster) heal() {
	_ = n.eachRoute(func(l *proxy.Proxy) error { l.Heal(); return nil })
}

// close ends the links and removes the data; no node runs any more.
func (n *natsCluster) close() error {
	errs := []error{n.eachRoute((*proxy.Proxy).Close)}
	if n.admin != nil {
		n.admin.Close()
	}
	for _, m := range n.nodes {
		errs = append(errs, m.Close(), os.RemoveAll(m.store), os.RemoveAll(m.earlier()))
	}
	return errors.Join(errs...)
}

// earlier is where a copy of the node's data is kept.
func (n *node) earlier() string { return n.store + ".earlier" }
