package crdb

import (
	"net"
	"net/url"
	"sync"
	"testing"
)

// proxy stands between a store and its server.
type proxy struct {
	listener net.Listener
	to       string

	mu   sync.Mutex
	lose what
	open map[net.Conn]bool
	done sync.WaitGroup
}

// what a proxy loses next, with the connection.
type what int

const (
	nothing  what = iota
	answer        // of the server, after it has said it
	question      // to the server, before it has heard it
)

// newProxy returns a proxy to the server of dsn, and the dsn that leads through it.
func newProxy(t *testing.T, dsn string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, to: u.Host, open: map[net.Conn]bool{}}
	p.done.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for c := range p.open {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.done.Wait()
	})
	u.Host = l.Addr().String()
	return p, u.String()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.open[client], p.open[server] = true, true
		p.mu.Unlock()
		p.done.Go(func() { p.copy(client, server, question) })
		p.done.Go(func() { p.copy(server, client, answer) })
	}
}

// copy moves bytes until one of the two ends, or until it is to lose them.
func (p *proxy) copy(from, to net.Conn, kind what) {
	defer func() {
		_ = from.Close()
		_ = to.Close()
		p.mu.Lock()
		delete(p.open, from)
		p.mu.Unlock()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || p.loses(kind) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) loses(kind what) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lose != kind {
		return false
	}
	p.lose = nothing
	return true
}

// next makes the proxy lose the next of a kind.
func (p *proxy) next(kind what) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = kind
}
