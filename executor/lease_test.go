package executor_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/waterclock-io/waterclock/chaos/proxy"
	"github.com/waterclock-io/waterclock/executor"
	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/internal/natstest"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
)

// TestLeaseThatIsNotConfirmed: whatever cuts an executor off, the work is stopped before the lease is over, and nothing is said of it.
func TestLeaseThatIsNotConfirmed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		cut  func(p *plant, l *proxy.Proxy, e *executor.Config)
		back func(p *plant, l *proxy.Proxy)
	}{
		{"frozen link", func(_ *plant, l *proxy.Proxy, _ *executor.Config) { l.Freeze() }, func(_ *plant, l *proxy.Proxy) { l.Heal() }},
		{
			"frozen link, clogged", func(_ *plant, l *proxy.Proxy, cfg *executor.Config) {
				l.Freeze()
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
			func(_ *plant, l *proxy.Proxy) { l.Heal() },
		},
		{"server stopped", func(p *plant, _ *proxy.Proxy, _ *executor.Config) { p.srv.Stop() }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPlant(t)
			l := natstest.Link(t, p.srv.Addr())
			begun, why := make(chan *executor.Run, 1), make(chan error, 1)
			var cfg *executor.Config
			e := p.employVia(l.Addr(), map[string]executor.Handler{"stops": untilStopped(begun, why)}, func(c *executor.Config) { cfg = c })
			run := p.publish(p.message("stops"))
			held := check.Receive(t, "the handler", begun)
			p.started(run)
			ack := cfg.Lease.AckWait
			// A lease that is confirmed moves.
			first := held.LeaseUntil()
			check.Await(t, "lease confirmed", func() bool { return held.LeaseUntil().After(first) })

			cut := time.Now()
			c.cut(p, l, cfg)
			cause := check.Receive(t, "the end of the context", why)
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
			p.wordsAre(run, wirev1.StatusKind_STATUS_KIND_STARTED, wirev1.StatusKind_STATUS_KIND_LOST)
		})
	}
}

// TestOutboxDoesNotSpin: while NATS is away a status is tried again at intervals, and it is there when NATS is back.
func TestOutboxDoesNotSpin(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	l := natstest.Link(t, p.srv.Addr())
	tries := make(chan struct{}, 1<<20)
	begun, release := make(chan struct{}, 1), make(chan struct{})
	var conn *nats.Conn
	p.employVia(l.Addr(), map[string]executor.Handler{"waits": func(context.Context, *executor.Run) error {
		begun <- struct{}{}
		<-release
		return nil
	}}, func(cfg *executor.Config) {
		conn = cfg.Conn
		cfg.Logger = slog.New(counter{slog.DiscardHandler, "status not taken", tries})
	})
	m := p.message("waits")
	run := p.publish(m)
	check.Receive(t, "the handler", begun)
	l.Cut()
	check.Await(t, "connection lost", func() bool { return !conn.IsConnected() })
	close(release)
	check.Receive(t, "first try", tries)
	check.Receive(t, "second try", tries)
	if n := len(tries); n > 10 {
		t.Errorf("%d tries more at once", n)
	}
	l.Heal()
	p.ends("its end", run, wirev1.StatusKind_STATUS_KIND_SUCCEEDED)
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
	check.Receive(t, "the handler", begun)
	began := time.Now()
	s := p.started(run)
	if after := time.Since(began); after < 400*time.Millisecond || s.msgID != run.String()+"/1" {
		t.Errorf("said after %s with message id %q", after, s.msgID)
	}
	p.ends("its end", run, wirev1.StatusKind_STATUS_KIND_SUCCEEDED)
	p.gone(m)
	p.wordsAre(run, wirev1.StatusKind_STATUS_KIND_STARTED, wirev1.StatusKind_STATUS_KIND_SUCCEEDED)
}

func TestClaimOfAnotherStops(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	begun, why := make(chan *executor.Run, 1), make(chan error, 1)
	p.employ(map[string]executor.Handler{"stops": untilStopped(begun, why)})
	m := p.message("stops")
	p.publish(m)
	check.Receive(t, "the handler", begun)
	p.claim(m, "another")
	if got := check.Receive(t, "the end of its context", why); !errors.Is(got, executor.ErrLeaseLost) {
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
	asked, err := p.nc.SubscribeSync("$JS.API.STREAM.MSG.GET.STATUS")
	check.OK(t, err)
	begun, release := make(chan *executor.Run, 1), make(chan struct{})
	e := p.employ(map[string]executor.Handler{"waits": untilReleased(begun, release)})
	m := p.message("waits")
	run := p.publish(m)
	held := check.Receive(t, "the handler", begun)
	p.claim(m, e.ID())
	if _, err := asked.NextMsg(check.Patience); err != nil {
		t.Fatalf("nobody asked whose claim it is: %v", err)
	}
	before := held.LeaseUntil()
	check.Await(t, "two more signs of life", func() bool { return held.LeaseUntil().Sub(before) > 400*time.Millisecond })
	close(release)
	p.ends("its own claim stopped it", run, wirev1.StatusKind_STATUS_KIND_SUCCEEDED)
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
		"x":    neverRun(t),
		"sure": succeed,
	})
	p.ends("through the same server", uuid.UUID(sure.RunId), wirev1.StatusKind_STATUS_KIND_SUCCEEDED)
	s := p.ended(uuid.UUID(mine.RunId))
	if s.Kind != wirev1.StatusKind_STATUS_KIND_RELEASED || s.Reason != "uncertain" {
		t.Errorf("%s %s, want that it is given back", s.Kind, s.Reason)
	}
	if took := p.started(uuid.UUID(mine.RunId)).at.Sub(began); took < 1900*time.Millisecond {
		t.Errorf("claimed after %s, before whoever may work on it could", took)
	}
	p.wordsAre(uuid.UUID(mine.RunId), wirev1.StatusKind_STATUS_KIND_STARTED, wirev1.StatusKind_STATUS_KIND_RELEASED)
	p.gone(mine)
	// Of what another claimed nothing is said but, when it comes again, that it did.
	p.ends("claimed by another", uuid.UUID(theirs.RunId), wirev1.StatusKind_STATUS_KIND_LOST)
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
		"ok": succeed,
	}, func(cfg *executor.Config) { cfg.Slots, cfg.Blobs = 1, blobs })
	m := p.message("deaf")
	m.AttemptTimeout = 20_000
	s := p.ended(p.publish(m))
	if s.Kind != wirev1.StatusKind_STATUS_KIND_FAILED || s.Reason != "timeout" {
		t.Errorf("%s %s, want that it timed out", s.Kind, s.Reason)
	}
	p.gone(m)
	close(release)
	check.Receive(t, "the handler's return", left)
	// The slot comes back, and what the handler returned at last changes nothing.
	p.ends("the next run", p.publish(p.message("ok")), wirev1.StatusKind_STATUS_KIND_SUCCEEDED)
	if words := p.words(uuid.UUID(m.RunId)); words[len(words)-1] != wirev1.StatusKind_STATUS_KIND_FAILED {
		t.Errorf("STATUS has %v", words)
	}
	if blobs.puts != 1 {
		t.Errorf("the log was stored %d times", blobs.puts)
	}
}
