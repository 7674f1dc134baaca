package streams

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Embedded is a NATS server with JetStream inside this process.
type Embedded struct {
	srv *server.Server
}

// EmbeddedOptions says where an embedded server keeps its data and listens.
type EmbeddedOptions struct {
	// Dir is the folder of JetStream's data.
	Dir string
	// Listen is host:port for clients from outside; port 0 takes a free one.
	Listen string
	Logger *slog.Logger
}

// embeddedSync bounds what a power loss can take from the embedded server. SQL makes good even that. Each round costs a few file operations per stream, also where
// there is nothing to write: at 100 ms that was a third of what an idle host used.
const embeddedSync = time.Second

// StartEmbedded starts a server and returns when it accepts connections. The error names the address where the port is in use.
func StartEmbedded(o EmbeddedOptions) (*Embedded, error) {
	host, portText, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("nats.listen: %q is not host:port: %w", o.Listen, err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil || port < 0 || port > 65535 {
		return nil, fmt.Errorf("nats.listen: port %q given; allowed: 0 to 65535", portText)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	} else {
		// The server itself would log and exit; find out first.
		l, err := Listen(o.Listen)
		if err != nil {
			return nil, fmt.Errorf("nats.listen: %w", err)
		}
		if err := l.Close(); err != nil {
			return nil, fmt.Errorf("nats.listen: %w", err)
		}
	}
	opts := &server.Options{
		ServerName:   "waterclock",
		Host:         host,
		Port:         port,
		JetStream:    true,
		StoreDir:     o.Dir,
		SyncInterval: embeddedSync,
		NoSigs:       true,
		NoLog:        false,
		MaxPayload:   1 << 20,
		// An executor that was stopped comes back to find its lease over; the server need not wait for it either.
		PingInterval: 10 * time.Second,
		MaxPingsOut:  2,
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("make embedded NATS server: %w", err)
	}
	srv.SetLoggerV2(&natsLog{o.Logger.With("component", "nats")}, false, false, false)
	srv.Start()
	if !srv.ReadyForConnections(30 * time.Second) {
		srv.Shutdown()
		return nil, errors.New("embedded NATS server did not become ready within 30s")
	}
	return &Embedded{srv: srv}, nil
}

// Listen opens a TCP port. One that is in use is tried again for a second: the port of a process that was killed may be held for a moment by what it was about
// to start.
func Listen(addr string) (net.Listener, error) {
	for limit := time.Now().Add(time.Second); ; {
		l, err := net.Listen("tcp", addr)
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(limit) {
			return l, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Addr returns host:port that clients from outside connect to.
func (e *Embedded) Addr() string { return e.srv.Addr().String() }

// InProcess is what Connect needs to speak to the server without a socket.
func (e *Embedded) InProcess() *server.Server { return e.srv }

// Stop ends the server and waits until its data is written.
func (e *Embedded) Stop() {
	e.srv.Shutdown()
	e.srv.WaitForShutdown()
}

// natsLog hands the server's words to slog. What it calls a notice is of no interest to who runs Waterclock.
type natsLog struct{ log *slog.Logger }

func (l *natsLog) Noticef(f string, v ...any) { l.log.Debug(fmt.Sprintf(f, v...)) }
func (l *natsLog) Warnf(f string, v ...any)   { l.log.Warn(fmt.Sprintf(f, v...)) }
func (l *natsLog) Fatalf(f string, v ...any)  { l.log.Error(fmt.Sprintf(f, v...)) }
func (l *natsLog) Errorf(f string, v ...any)  { l.log.Error(fmt.Sprintf(f, v...)) }
func (l *natsLog) Debugf(string, ...any)      {}
func (l *natsLog) Tracef(string, ...any)      {}
