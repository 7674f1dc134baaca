package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// rig is a link with a connection through it, and the server's end of that.
type rig struct {
	*Proxy
	t              *testing.T
	listener       net.Listener
	client, server net.Conn
}

func newRig(t *testing.T) *rig {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Listen(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Proxy: p, t: t, listener: l}
	t.Cleanup(func() {
		if err := errors.Join(p.Close(), p.Close()); err != nil {
			t.Error("close, twice:", err)
		}
		_ = l.Close() // a test may have done so
	})
	r.connect()
	return r
}

func (r *rig) connect() {
	r.t.Helper()
	var err error
	if r.client, err = net.Dial("tcp4", r.Addr()); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = r.client.Close() })
	if r.server, err = r.listener.Accept(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = r.server.Close() })
	limit := time.Now().Add(30 * time.Second) // a test that hangs says where
	if err := errors.Join(r.client.SetDeadline(limit), r.server.SetDeadline(limit)); err != nil {
		r.t.Fatal(err)
	}
}

// try is what becomes of one more connection, in which nobody says anything.
func (r *rig) try() error {
	c, err := net.Dial("tcp4", r.Addr())
	if err != nil {
		return err // the reset was quick
	}
	defer func() { _ = c.Close() }()
	_, err = c.Read(make([]byte, 1))
	return err
}

func (r *rig) send(to net.Conn, text string) {
	r.t.Helper()
	if _, err := io.WriteString(to, text); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) expect(from net.Conn, text string) {
	r.t.Helper()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(from, got); err != nil || string(got) != text {
		r.t.Fatalf("read %q, want %q: %v", got, text, err)
	}
}

// nothing fails where anything has arrived.
func (r *rig) nothing(at net.Conn) {
	r.t.Helper()
	if err := at.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		r.t.Fatal(err)
	}
	if n, err := at.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		r.t.Fatalf("%d bytes came through: %v", n, err)
	}
	if err := at.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) works() {
	r.t.Helper()
	r.send(r.client, "ping")
	r.expect(r.server, "ping")
	r.send(r.server, "pong")
	r.expect(r.client, "pong")
}

func TestCarriesBothWaysAndTheEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.works()
	if err := r.client.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if n, err := r.server.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the end of the client: %d, %v", n, err)
	}
	r.send(r.server, "still")
	r.expect(r.client, "still")
	_ = r.server.Close()
	if n, err := r.client.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the end of the server: %d, %v", n, err)
	}
}

func TestCutResetsAndRefusesUntilHealed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.works()
	r.Cut()
	for name, c := range map[string]net.Conn{"client": r.client, "server": r.server} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the %s's connection after the cut: %v", name, err)
		}
	}
	if err := r.try(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection while it is cut: %v", err)
	}
	r.Heal()
	r.connect()
	r.works()
}

func TestHoldStopsOneDirection(t *testing.T) {
	t.Parallel()
	for _, d := range []Direction{ToServer, ToClient} {
		r := newRig(t)
		stuck, free := [2]net.Conn{r.client, r.server}, [2]net.Conn{r.server, r.client}
		if d == ToClient {
			stuck, free = free, stuck
		}
		r.Hold(d)
		r.send(stuck[0], "held")
		r.send(free[0], "goes on") // and by the time it has, the other would have
		r.expect(free[1], "goes on")
		r.nothing(stuck[1])
		r.Heal()
		r.expect(stuck[1], "held")
		r.works()
	}
}

func TestFreezeDeliversAtHeal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Freeze()
	r.send(r.client, "up")
	r.send(r.server, "down")
	r.nothing(r.server)
	r.nothing(r.client)
	_ = r.client.(*net.TCPConn).CloseWrite() // its end is held up like the rest
	r.nothing(r.server)
	r.Heal()
	r.expect(r.server, "up")
	r.expect(r.client, "down")
	if _, err := r.server.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the end of the client: %v", err)
	}
}

func TestFrozenLinkHoldsABoundedAmountAndLosesNone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Freeze()
	if err := r.client.SetWriteDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	sent, block := 0, bytes.Repeat([]byte("0123456789abcdef"), 4096)
	for {
		n, err := r.client.Write(block)
		sent += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil || sent > 64<<20 {
			t.Fatalf("%d bytes went into a frozen link: %v", sent, err)
		}
	}
	r.Heal()
	if err := r.client.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r.server)
	if err != nil || len(got) != sent {
		t.Fatalf("%d of %d bytes arrived: %v", len(got), sent, err)
	}
	for i, b := range got {
		if b != block[i%len(block)] {
			t.Fatalf("byte %d is %q", i, b)
		}
	}
}

func TestSlowAddsDelayAndKeepsARate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const delay = 60 * time.Millisecond
	r.Slow(Pace{Delay: delay}, Pace{Delay: delay / 2})
	began := time.Now()
	r.works()
	if took := time.Since(began); took < delay*3/2 {
		t.Errorf("there and back took %s", took)
	}
	r.Slow(Pace{Rate: 100_000}, Pace{})
	began = time.Now()
	text := string(bytes.Repeat([]byte("x"), 20_000))
	r.send(r.client, text)
	r.expect(r.server, text)
	if took := time.Since(began); took < 195*time.Millisecond {
		t.Errorf("20 kB at 100 kB/s took %s", took)
	}
	r.Slow(Pace{Delay: time.Hour}, Pace{})
	r.send(r.client, "late")
	r.nothing(r.server)
	r.Heal()
	r.expect(r.server, "late")
}

func TestTargetThatIsDownClosesTheConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := r.listener.Close(); err != nil {
		t.Fatal(err)
	}
	if r.try() == nil {
		t.Error("a connection to nobody was kept")
	}
	r.works() // the one from before goes on
}

func TestResetOfOneEndReachesTheOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	drop(r.server.(*net.TCPConn))
	if _, err := r.client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client after the server's reset: %v", err)
	}
}

func TestCloseEndsAFrozenLink(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Freeze()
	r.send(r.client, "x")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlives its link")
	}
}
