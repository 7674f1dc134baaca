package harness

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/waterclock-io/waterclock/chaos/process"
)

const (
	// hostSlots is more than the default: commands that wait need no processor.
	hostSlots = 40
	// stopLimit is how long the processes of a world may take to end by themselves.
	stopLimit = 30 * time.Second
)

// host is the single host: one `waterclock dev` at a time, always on the same ports and the same data. It is a world.
type host struct {
	*process.Process
	dir  string // data
	url  string
	nats string
	// lease is the AckWait of its executor.
	lease time.Duration
}

func newHost(o Options) (*host, error) {
	var addresses [2]string
	for i := range addresses {
		var err error
		if addresses[i], err = process.FreeAddress(); err != nil {
			return nil, err
		}
	}
	h := &host{dir: filepath.Join(o.Dir, "data"), url: "http://" + addresses[0], nats: "nats://" + addresses[1], lease: o.Lease}
	var err error
	h.Process, err = process.New(process.Options{
		Name: "process", Path: o.Binary, Dir: o.Dir, LogDir: o.Dir, Env: process.Environment(o.Dir), End: syscall.SIGTERM,
		Args: []string{
			"dev", "--data", h.dir, "--http", addresses[0], "--nats", addresses[1], "--log.level", "info", "--executor.slots", strconv.Itoa(hostSlots),
			"--lease.ack_wait", o.Lease.String(), "--lease.heartbeat", (o.Lease / 6).String(), "--lease.margin", (o.Lease / 3).String(),
		},
		Up: func(context.Context) error {
			if !h.Said("HTTP   " + h.url) {
				return errors.New("it does not say that it listens")
			}
			return nil
		},
	})
	return h, err
}

func (h *host) start(ctx context.Context) error { return h.Start(ctx) }

func (h *host) stop(context.Context) error { return h.Terminate(stopLimit) }

func (h *host) close() error {
	_ = h.Kill() // it has ended, as a rule
	return h.Close()
}

func (h *host) apis() []string                  { return []string{h.url} }
func (h *host) storeURL() string                { return "sqlite:" + filepath.Join(h.dir, "waterclock.db") }
func (h *host) natsURL() string                 { return h.nats }
func (h *host) keys() map[string]string         { return nil }
func (h *host) slots() map[string]int           { return map[string]int{"default": hostSlots} }
func (h *host) murders() int                    { return 0 }
func (h *host) logs() []string                  { return []string{h.LogFile()} }
func (h *host) unavailable() []string           { return nil }
func (h *host) note(format string, args ...any) { h.Note(format, args...) }
