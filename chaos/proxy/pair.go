package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// What waits in a direction is at most chunks × chunkSize bytes, beside what the kernel's buffers hold.
const (
	chunkSize = 16 << 10
	chunks    = 64
)

// pair is a connection of a client and the one to the server that belongs to it.
type pair struct {
	proxy  *Proxy
	client *net.TCPConn
	over   chan struct{} // closed by reset

	mu     sync.Mutex
	server *net.TCPConn
	isOver bool
}

// chunk is what was read at once, and when.
type chunk struct {
	bytes []byte
	at    time.Time
}

func (c *pair) serve() {
	defer c.proxy.forget(c)
	if !c.dial() {
		drop(c.client)
		return
	}
	var both sync.WaitGroup
	both.Go(func() { c.pump(ToServer, c.client, c.server) })
	both.Go(func() { c.pump(ToClient, c.server, c.client) })
	both.Wait()
	_, _ = c.client.Close(), c.server.Close() // both ends have said that they are done, or it was reset
}

func (c *pair) dial() bool {
	ctx, cancel := context.WithTimeout(context.Background(), dialLimit)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp4", c.proxy.target)
	if err != nil {
		return false
	}
	server := conn.(*net.TCPConn)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isOver {
		drop(server)
		return false
	}
	c.server = server
	return true
}

func (c *pair) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isOver {
		return
	}
	c.isOver = true
	close(c.over)
	drop(c.client)
	if c.server != nil {
		drop(c.server)
	}
}

// pump carries one direction until its sender is done, and then tells the receiver so; an error in either is a reset of both.
func (c *pair) pump(d Direction, from, to *net.TCPConn) {
	queue := make(chan chunk, chunks)
	var failed error // read after queue is closed
	c.proxy.work.Go(func() {
		defer close(queue)
		failed = c.read(d, from, queue)
	})
	for ch := range queue {
		if !c.await(d, ch) {
			continue // until the reader has seen it too
		}
		if _, err := to.Write(ch.bytes); err != nil {
			c.reset()
		}
	}
	if failed != nil || to.CloseWrite() != nil {
		c.reset()
	}
}

// read fills the queue until the sender is done. It stops reading while the direction is held, so that the sender's own buffers fill up.
func (c *pair) read(d Direction, from *net.TCPConn, queue chan<- chunk) error {
	buf := make([]byte, chunkSize)
	for {
		if !c.await(d, chunk{}) {
			return net.ErrClosed
		}
		n, err := from.Read(buf)
		if n > 0 {
			select {
			case queue <- chunk{append([]byte(nil), buf[:n]...), time.Now()}:
			case <-c.over:
				return net.ErrClosed
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// await returns when a chunk may go on, or false when the connection is over. A chunk of no bytes waits only for a hold to end.
func (c *pair) await(d Direction, ch chunk) bool {
	var paced time.Duration // how long this chunk has been kept for the sake of the rate
	for {
		s := c.proxy.now()
		var left time.Duration
		if len(ch.bytes) > 0 {
			p := s.pace[d]
			left = time.Until(ch.at.Add(p.Delay))
			if p.Rate > 0 {
				left = max(left, 0) + time.Duration(len(ch.bytes))*time.Second/time.Duration(p.Rate) - paced
			}
		}
		if !s.hold[d] && left <= 0 {
			select {
			case <-c.over:
				return false
			default:
				return true
			}
		}
		var timer <-chan time.Time
		if !s.hold[d] {
			timer = time.After(left)
		}
		began := time.Now()
		select {
		case <-timer:
			if s.pace[d].Rate > 0 {
				paced += time.Since(began)
			}
		case <-s.changed:
		case <-c.over:
			return false
		}
	}
}
