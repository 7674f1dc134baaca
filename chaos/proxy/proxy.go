// Package proxy is one TCP link of a fault run: it listens on a port of 127.0.0.1, dials one target for each connection, and while it runs the link can be
// cut, held up in one direction or both, and slowed. Package chaos/cluster puts one between each two processes that speak to each other.
//
// It knows nothing of what goes over the link, loses nothing but by a cut, and never puts bytes out of order. What is held up waits in a bounded queue and then in
// the sender's own socket, as behind a real stalled link.
package proxy

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// Direction is one of the two ways of a link.
type Direction int

// The client is who connects to the proxy, the server is the proxy's target.
const (
	ToServer Direction = iota
	ToClient
)

// Pace is how slow a direction is. The zero value is as fast as it goes.
type Pace struct {
	// Delay is added to every byte; what is sent close together stays close together.
	Delay time.Duration
	// Rate is in bytes a second at most; 0 has no limit.
	Rate int
}

// dialLimit is how long the target may take to take a connection; on this machine it refuses at once or takes it at once.
const dialLimit = 5 * time.Second

// state is what the link is made to do. Each change of it makes a new one.
type state struct {
	cut  bool
	hold [2]bool
	pace [2]Pace
	// changed is closed when another state has taken its place.
	changed chan struct{}
}

// Proxy is a link. Its methods may be called by several goroutines at once.
type Proxy struct {
	target   string
	listener *net.TCPListener

	mu     sync.Mutex
	state  state
	pairs  map[*pair]struct{}
	closed bool
	work   sync.WaitGroup
}

// Listen starts a link to the target (host:port) on a free port of 127.0.0.1. The target need not listen yet: connections are closed until it does.
func Listen(target string) (*Proxy, error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("listen for a link to %s: %w", target, err)
	}
	p := &Proxy{target: target, listener: l, state: state{changed: make(chan struct{})}, pairs: map[*pair]struct{}{}}
	p.work.Go(p.accept)
	return p, nil
}

// Addr is where the proxy listens, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut resets every connection, and each new one as soon as it is made, until Heal.
func (p *Proxy) Cut() {
	p.change(func(s *state) { s.cut = true })
	p.reset()
}

// Hold holds up what goes in a direction until Heal, which delivers it; the other direction goes on, and connections stay.
func (p *Proxy) Hold(d Direction) { p.change(func(s *state) { s.hold[d] = true }) }

// Freeze holds up both directions until Heal, which delivers what was held.
func (p *Proxy) Freeze() { p.change(func(s *state) { s.hold = [2]bool{true, true} }) }

// Slow slows both directions down until Heal.
func (p *Proxy) Slow(toServer, toClient Pace) {
	p.change(func(s *state) { s.pace = [2]Pace{ToServer: toServer, ToClient: toClient} })
}

// Heal makes the link as good as new. What was held up or slow is delivered at once, in order.
func (p *Proxy) Heal() { p.change(func(s *state) { *s = state{} }) }

// Close ends the link and returns when nothing of it is left. It may be called again.
func (p *Proxy) Close() error {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.mu.Unlock()
	var err error
	if first {
		err = p.listener.Close()
		p.reset()
	}
	p.work.Wait()
	return err
}

func (p *Proxy) change(f func(*state)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	over := p.state.changed
	f(&p.state)
	p.state.changed = make(chan struct{})
	close(over)
}

func (p *Proxy) now() state {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// reset ends all connections as a broken link does: neither side gets an orderly end.
func (p *Proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		c.reset()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.AcceptTCP()
		if err != nil {
			return // closed
		}
		p.mu.Lock()
		if p.closed || p.state.cut {
			p.mu.Unlock()
			drop(client)
			continue
		}
		c := &pair{proxy: p, client: client, over: make(chan struct{})}
		p.pairs[c] = struct{}{}
		p.work.Go(c.serve) // under the lock: Close waits for it
		p.mu.Unlock()
	}
}

func (p *Proxy) forget(c *pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pairs, c)
}

// drop closes a connection so that its peer sees a reset.
func drop(c *net.TCPConn) {
	_ = c.SetLinger(0) // closed already, at worst
	_ = c.Close()
}
