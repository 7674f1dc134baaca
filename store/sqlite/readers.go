package sqlite

import (
	"context"
	"errors"
)

// readers is a pool of connections that read snapshots beside the writer.
type readers struct {
	free chan *conn
}

func openReaders(path string, n, cacheKiB int) (*readers, error) {
	r := &readers{free: make(chan *conn, n)}
	for range n {
		c, err := connect(path, cacheKiB, true)
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		r.free <- c
	}
	return r, nil
}

// do reads in one snapshot: all statements of the function see the same state.
func (r *readers) do(ctx context.Context, read func(c *conn) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var c *conn
	select {
	case c = <-r.free:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { r.free <- c }()
	if _, err := c.exec("BEGIN"); err != nil {
		return classify(err)
	}
	defer func() { _, _ = c.exec("ROLLBACK") }() // nothing was written
	return classify(read(c))
}

// close closes the connections. No call may be under way.
func (r *readers) close() error {
	var errs []error
	for {
		select {
		case c := <-r.free:
			errs = append(errs, c.close())
		default:
			return errors.Join(errs...)
		}
	}
}
