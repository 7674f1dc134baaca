package webcall

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/waterclock-io/waterclock/executor"
)

// run is what the handler sees of a run.
type run struct {
	log    bytes.Buffer
	result []byte
}

func (r *run) Stdout() io.Writer  { return &r.log }
func (r *run) SetResult(b []byte) { r.result = b }

// service is a server on loopback that counts.
type service struct {
	*httptest.Server
	hits atomic.Int32
}

func serve(t *testing.T, f http.HandlerFunc) *service {
	t.Helper()
	s := &service{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.hits.Add(1)
		f(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *service) port(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// names is a DNS server in memory: each question for a name takes the next of its addresses, the last for ever.
type names struct {
	mu   sync.Mutex
	next map[string][]string
}

func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go n.answer(server)
		return client, nil
	}}
}

func (n *names) answer(c net.Conn) {
	defer c.Close()
	for {
		var length [2]byte
		if _, err := io.ReadFull(c, length[:]); err != nil {
			return
		}
		b := make([]byte, binary.BigEndian.Uint16(length[:]))
		var q dnsmessage.Message
		if _, err := io.ReadFull(c, b); err != nil || q.Unpack(b) != nil || len(q.Questions) != 1 {
			return
		}
		a := dnsmessage.Message{Header: dnsmessage.Header{ID: q.ID, Response: true, Authoritative: true, RecursionAvailable: true}, Questions: q.Questions}
		if ip := n.take(q.Questions[0]); ip.IsValid() {
			a.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Questions[0].Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
				Body:   &dnsmessage.AResource{A: ip.As4()},
			}}
		}
		out, err := a.Pack()
		if err != nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...)); err != nil { //nolint:gosec // below 512
			return
		}
	}
}

func (n *names) take(q dnsmessage.Question) netip.Addr {
	if q.Type != dnsmessage.TypeA {
		return netip.Addr{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.next[q.Name.String()]
	if len(list) == 0 {
		return netip.Addr{}
	}
	if len(list) > 1 {
		n.next[q.Name.String()] = list[1:]
	}
	return netip.MustParseAddr(list[0])
}

// onlyFirst lets 127.0.0.1 be public and nothing else.
func onlyFirst(a netip.Addr) string {
	if a == netip.MustParseAddr("127.0.0.1") {
		return ""
	}
	return "private"
}

// do makes the request of a payload as the handler does.
func do(t *testing.T, c *caller, payload string) (*run, error) {
	t.Helper()
	r := &run{}
	req, err := decode([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	return r, c.do(t.Context(), req, r)
}

// open is a caller that may reach loopback.
func open(t *testing.T) *caller {
	t.Helper()
	return tidy(t, newCaller(Config{AllowPrivate: true}))
}

func tidy(t *testing.T, c *caller) *caller {
	t.Helper()
	t.Cleanup(c.client.CloseIdleConnections)
	return c
}

// verdict is how an error looks to the executor.
type verdict struct {
	Message string
	Code    int32
	Fatal   bool
}

func judge(err error) verdict {
	if err == nil {
		return verdict{}
	}
	o := executor.OutcomeOf(err)
	return verdict{err.Error(), o.Code, o.Fatal}
}
