package planner

import (
	"net"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/waterclock-io/waterclock/streams"
)

// link is a TCP proxy before the NATS server whose two directions can be held up one by one.
type link struct {
	listener net.Listener
	there    sync.RWMutex // write-locked while what planners say is held up
	back     sync.RWMutex // the same for what the server answers

	mu    sync.Mutex
	conns []net.Conn
}

func newLink(t testing.TB, to string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	l := &link{listener: listener}
	t.Cleanup(func() {
		_ = listener.Close()
		l.cut()
	})
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			l.mu.Lock()
			l.conns = append(l.conns, in, out)
			l.mu.Unlock()
			go copyVia(&l.there, out, in)
			go copyVia(&l.back, in, out)
		}
	}()
	return l
}

func copyVia(gate *sync.RWMutex, to, from net.Conn) {
	defer to.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		gate.RLock()
		_, err = to.Write(b[:n])
		gate.RUnlock()
		if err != nil {
			return
		}
	}
}

// cut closes all connections; what was held up is lost.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// connect returns a connection that goes by the link.
func (l *link) connect(t testing.TB) *nats.Conn {
	t.Helper()
	nc, err := streams.Connect(streams.Dial{URL: "nats://" + l.listener.Addr().String(), Name: "linked", Logger: quiet})
	check(t, err)
	t.Cleanup(nc.Close)
	return nc
}
