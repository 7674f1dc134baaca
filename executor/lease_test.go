package executor_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/waterclock-io/waterclock/executor"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
)

// link is a TCP proxy that can hold everything back.
type link struct {
	net.Listener
	gate sync.RWMutex // write-locked while frozen

	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

// cut closes every connection and takes no new one until mend.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{Listener: listener}
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
			down := l.down
			if !down {
				l.conns = append(l.conns, in, out)
			}
			l.mu.Unlock()
			if down {
				_, _ = in.Close(), out.Close()
				continue
			}
			go l.copy(in, out)
			go l.copy(out, in)
		}
	}()
	return l
}

func (l *link) copy(to, from net.Conn) {
	defer to.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		l.gate.RLock()
		_, err = to.Write(b[:n])
		l.gate.RUnlock()
		if err != nil {
			return
		}
	}
}

// TestLeaseThatIsNotConfirmed: whatever cuts an executor off, the work is stopped before the lease is over, and nothing is said of it.
func TestLeaseThatIsNotConfirmed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		cut  func(p *plant, l *link, e *executor.Config)
		back func(p *plant, l *link)
	}{
		{"frozen link", func(_ *plant, l *link, _ *executor.Config) { l.gate.Lock() }, func(_ *plant, l *link) { l.gate.Unlock() }},
		{
			"frozen link, clogged", func(_ *plant, l *link, cfg *executor.Config) {
				l.gate.Lock()
				// Who writes to a connection whose buffers are full is held up, and who writes after it.
				go func() {
					junk := make([]byte, 512<<10)
					for range 64 {
						if cfg.Conn.Publish("junk", junk) != nil {
							return
						}
					}
				}()
			},
			func(_ *plant, l *link) { l.gate.Unlock() },
		},
		{"server stopped", func(p *plant, _ *link, _ *executor.Config) { p.srv.Stop() }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPlant(t)
			l := newLink(t, p.srv.Addr())
			begun, why := make(chan *executor.Run, 1), make(chan error, 1)
			var cfg *executor.Config
			e := p.employVia(l.Addr().String(), map[string]executor.Handler{"stops": untilStopped(begun, why)}, func(c *executor.Config) { cfg = c })
			run := p.publish(p.message("stops"))
			held := wait(t, "the handler", begun)
			p.started(run)
			ack := cfg.Lease.AckWait
			// A lease that is confirmed moves.
			first := held.LeaseUntil()
			p.until("lease confirmed", func() bool { return held.LeaseUntil().After(first) })

			cut := time.Now()
			c.cut(p, l, cfg)
			cause := wait(t, "the end of the context", why)
			took := time.Since(cut)
			if c.back != nil {
				c.back(p, l)
			}
			if !errors.Is(cause, executor.ErrLeaseLost) {
				t.Errorf("cause %v, want that the lease is lost", cause)
			}
			if took >= ack {
				t.Errorf("stopped %s after the cut, when the lease of %s was over", took, ack)
			}
			if c.back == nil {
				return
			}
			// When its lease is over the message comes again, to nobody else here.
			s := p.ended(run)
			if s.Kind != wirev1.StatusKind_STATUS_KIND_LOST || s.executor != e.ID() {
				t.Errorf("%s by %s: it was to say nothing but that it was delivered before", s.Kind, s.executor)
			}
			if d := cmp.Diff([]wirev1.StatusKind{wirev1.StatusKind_STATUS_KIND_STARTED, wirev1.StatusKind_STATUS_KIND_LOST}, p.words(run)); d != "" {
				t.Errorf("STATUS (-want +got):\n%s", d)
			}
		})
	}
}

// TestOutboxDoesNotSpin: while NATS is away a status is tried again at intervals, and it is there when NATS is back.
func TestOutboxDoesNotSpin(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	l := newLink(t, p.srv.Addr())
	tries := make(chan struct{}, 1<<20)
	begun, release := make(chan struct{}, 1), make(chan struct{})
	var conn *nats.Conn
	p.employVia(l.Addr().String(), map[string]executor.Handler{"waits": func(context.Context, *executor.Run) error {
		begun <- struct{}{}
		<-release
		return nil
	}}, func(cfg *executor.Config) {
		conn = cfg.Conn
		cfg.Logger = slog.New(counter{slog.DiscardHandler, "status not taken", tries})
	})
	m := p.message("waits")
	run := p.publish(m)
	wait(t, "the handler", begun)
	l.cut()
	p.until("connection lost", func() bool { return !conn.IsConnected() })
	close(release)
	wait(t, "first try", tries)
	wait(t, "second try", tries)
	if n := len(tries); n > 10 {
		t.Errorf("%d tries more at once", n)
	}
	l.mend()
	if s := p.ended(run); s.Kind != wirev1.StatusKind_STATUS_KIND_SUCCEEDED {
		t.Errorf("%s", s.Kind)
	}
}

// counter sends for each record with a message.
type counter struct {
	slog.Handler
	message string
	seen    chan<- struct{}
}

func (c counter) Enabled(context.Context, slog.Level) bool { return true }
func (c counter) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c counter) WithGroup(string) slog.Handler            { return c }

func (c counter) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, c.message) {
		select {
		case c.seen <- struct{}{}:
		default:
		}
	}
	return nil
}

func TestLeaseIsKept(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	begun := make(chan *executor.Run, 1)
	p.employ(map[string]executor.Handler{"long": func(ctx context.Context, run *executor.Run) error {
		begun <- run
		select { // longer than a lease
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(4 * time.Second):
			return nil
		}
	}})
	m := p.message("long")
	run := p.publish(m)
	wait(t, "the handler", begun)
	began := time.Now()
	s := p.started(run)
	if after := time.Since(began); after < 400*time.Millisecond || s.msgID != run.String()+"/1" {
		t.Errorf("said after %s with message id %q", after, s.msgID)
	}
	if s := p.ended(run); s.Kind != wirev1.StatusKind_STATUS_KIND_SUCCEEDED {
		t.Errorf("%s %s", s.Kind, s.Message)
	}
	p.gone(m)
	if d := cmp.Diff([]wirev1.StatusKind{wirev1.StatusKind_STATUS_KIND_STARTED, wirev1.StatusKind_STATUS_KIND_SUCCEEDED}, p.words(run)); d != "" {
		t.Errorf("STATUS (-want +got):\n%s", d)
	}
}

func TestClaimOfAnotherStops(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	begun, why := make(chan *executor.Run, 1), make(chan error, 1)
	p.employ(map[string]executor.Handler{"stops": untilStopped(begun, why)})
	m := p.message("stops")
	p.publish(m)
	wait(t, "the handler", begun)
	p.claim(m, "another")
	if got := wait(t, "the end of its context", why); !errors.Is(got, executor.ErrLeaseLost) {
		t.Errorf("cause %v, want that the lease is lost", got)
	}
	if d := cmp.Diff([]wirev1.StatusKind{wirev1.StatusKind_STATUS_KIND_STARTED}, p.words(uuid.UUID(m.RunId))); d != "" || !p.there(m) {
		t.Errorf("STATUS (-want +got):\n%s", d)
	}
}

// TestOwnClaimIsKnown: its answer was lost, and it asks again.
func TestOwnClaimIsKnown(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	asked, err := p.nc.SubscribeSync("$JS.API.DIRECT.GET.STATUS")
	if err != nil {
		t.Fatal(err)
	}
	begun, release := make(chan *executor.Run, 1), make(chan struct{})
	e := p.employ(map[string]executor.Handler{"waits": func(ctx context.Context, run *executor.Run) error {
		begun <- run
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}})
	m := p.message("waits")
	run := p.publish(m)
	held := wait(t, "the handler", begun)
	p.claim(m, e.ID())
	if _, err := asked.NextMsg(patience); err != nil {
		t.Fatalf("nobody asked whose claim it is: %v", err)
	}
	before := held.LeaseUntil()
	p.until("two more signs of life", func() bool { return held.LeaseUntil().Sub(before) > 400*time.Millisecond })
	close(release)
	if s := p.ended(run); s.Kind != wirev1.StatusKind_STATUS_KIND_SUCCEEDED {
		t.Errorf("%s: its own claim stopped it", s.Kind)
	}
}

// TestUncertainIsGivenBack: a message that another server process may have delivered before is not executed; it is claimed, so that nobody else goes on with it,
// and given back.
func TestUncertainIsGivenBack(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	mine, theirs, sure := p.message("x"), p.message("x"), p.message("sure")
	mine.Server, theirs.Server = mine.Server+1, theirs.Server+1
	p.publish(mine)
	p.publish(theirs)
	p.publish(sure)
	p.claim(theirs, "another")
	began := time.Now()
	p.employ(map[string]executor.Handler{
		"x":    func(context.Context, *executor.Run) error { t.Error("it was executed"); return nil },
		"sure": func(context.Context, *executor.Run) error { return nil },
	})
	if s := p.ended(uuid.UUID(sure.RunId)); s.Kind != wirev1.StatusKind_STATUS_KIND_SUCCEEDED {
		t.Errorf("through the same server: %s", s.Kind)
	}
	s := p.ended(uuid.UUID(mine.RunId))
	if s.Kind != wirev1.StatusKind_STATUS_KIND_RELEASED || s.Reason != "uncertain" {
		t.Errorf("%s %s, want that it is given back", s.Kind, s.Reason)
	}
	if took := p.started(uuid.UUID(mine.RunId)).at.Sub(began); took < 1900*time.Millisecond {
		t.Errorf("claimed after %s, before whoever may work on it could", took)
	}
	if d := cmp.Diff([]wirev1.StatusKind{wirev1.StatusKind_STATUS_KIND_STARTED, wirev1.StatusKind_STATUS_KIND_RELEASED}, p.words(uuid.UUID(mine.RunId))); d != "" {
		t.Errorf("STATUS (-want +got):\n%s", d)
	}
	p.gone(mine)
	// Of what another claimed nothing is said but, when it comes again, that it did.
	if s := p.ended(uuid.UUID(theirs.RunId)); s.Kind != wirev1.StatusKind_STATUS_KIND_LOST {
		t.Errorf("claimed by another: %s", s.Kind)
	}
}

func TestHandlerThatDoesNotStop(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	release, left, blobs := make(chan struct{}), make(chan struct{}), &memory{}
	p.employ(map[string]executor.Handler{
		"deaf": func(_ context.Context, run *executor.Run) error {
			defer close(left)
			_, _ = io.WriteString(run.Stdout(), "once\n")
			<-release
			return nil
		},
		"ok": func(context.Context, *executor.Run) error { return nil },
	}, func(cfg *executor.Config) { cfg.Slots, cfg.Blobs = 1, blobs })
	m := p.message("deaf")
	m.AttemptTimeout = 20_000
	s := p.ended(p.publish(m))
	if s.Kind != wirev1.StatusKind_STATUS_KIND_FAILED || s.Reason != "timeout" {
		t.Errorf("%s %s, want that it timed out", s.Kind, s.Reason)
	}
	p.gone(m)
	close(release)
	wait(t, "the handler's return", left)
	// The slot comes back, and what the handler returned at last changes nothing.
	if s := p.ended(p.publish(p.message("ok"))); s.Kind != wirev1.StatusKind_STATUS_KIND_SUCCEEDED {
		t.Errorf("the next run: %s", s.Kind)
	}
	if words := p.words(uuid.UUID(m.RunId)); words[len(words)-1] != wirev1.StatusKind_STATUS_KIND_FAILED {
		t.Errorf("STATUS has %v", words)
	}
	if blobs.puts != 1 {
		t.Errorf("the log was stored %d times", blobs.puts)
	}
}
