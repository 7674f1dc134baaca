package streams

import (
	"fmt"
	"hash/fnv"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// ServerMark names the NATS server process that a connection speaks to: another mark, another process. 0 while there is no connection.
func ServerMark(nc *nats.Conn) uint64 {
	id := nc.ConnectedServerId()
	if id == "" {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never fails
	return h.Sum64()
}

// Dial says how to reach NATS.
type Dial struct {
	// URL of the servers; ignored where Embedded is set.
	URL string
	// Embedded is the server of this process, spoken to without a socket.
	Embedded *Embedded
	// Credentials is the path of a NATS credentials file; empty = none.
	Credentials string
	// Name is what the server's monitoring shows of this connection.
	Name   string
	Logger *slog.Logger
}

// Connect returns a connection that reconnects for ever and keeps no buffer while it is away: what is published meanwhile fails at once, because a message
// that slips out later than its sender believes is worse than none.
func Connect(d Dial) (*nats.Conn, error) {
	log := d.Logger.With("component", "nats", "connection", d.Name)
	opts := []nats.Option{
		nats.Name("waterclock " + d.Name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 100*time.Millisecond),
		nats.ReconnectBufSize(-1),
		nats.RetryOnFailedConnect(false),
		nats.Timeout(3 * time.Second),
		nats.FlusherTimeout(2 * time.Second), // a clogged link is a broken one
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("NATS connection lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("NATS connection is back") }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			log.Warn("NATS error", "subject", subject, "error", err)
		}),
	}
	if d.Credentials != "" {
		opts = append(opts, nats.UserCredentials(d.Credentials))
	}
	url := d.URL
	if d.Embedded != nil {
		opts = append(opts, nats.InProcessServer(d.Embedded.InProcess()))
		url = ""
	}
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS %s: %w", url, err)
	}
	return nc, nil
}
