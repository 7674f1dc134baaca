package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"

	modernc "modernc.org/sqlite"
)

// conn is one connection with the statements that were prepared on it. It is used by one goroutine at a time.
//
// It goes past database/sql: its locks, context goroutines and conversions by reflection cost as much as the statements themselves.
type conn struct {
	raw   driver.Conn
	stmts map[string]statement
	args  []driver.NamedValue
	row   []driver.Value
}

type statement interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// dsn names a database with what every connection needs. The page cache is in KiB, 0 for SQLite's default.
func dsn(path string, cacheKiB int) string {
	q := url.Values{}
	for _, p := range []string{
		"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(0)", "temp_store(MEMORY)",
		// A checkpoint blocks the writer for its length: often and short. A log that a long read made long is cut back.
		"wal_autocheckpoint(2000)", "journal_size_limit(67108864)",
	} {
		q.Add("_pragma", p)
	}
	if cacheKiB > 0 {
		q.Add("_pragma", "cache_size(-"+strconv.Itoa(cacheKiB)+")")
	}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

func connect(path string, cacheKiB int, readOnly bool) (*conn, error) {
	raw, err := (&modernc.Driver{}).Open(dsn(path, cacheKiB))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, classify(err))
	}
	c := &conn{raw: raw, stmts: map[string]statement{}}
	if readOnly {
		if _, err := c.exec("PRAGMA query_only = 1"); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	return c, nil
}

func (c *conn) close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.Close())
	}
	errs = append(errs, c.raw.Close())
	return errors.Join(errs...)
}

func (c *conn) prepare(text string) (statement, error) {
	if s, ok := c.stmts[text]; ok {
		return s, nil
	}
	raw, err := c.raw.Prepare(text)
	if err != nil {
		return nil, fmt.Errorf("prepare %q: %w", text, err)
	}
	s, ok := raw.(statement)
	if !ok {
		return nil, fmt.Errorf("driver statement %T cannot take a context", raw)
	}
	c.stmts[text] = s
	return s, nil
}

// bind fills the scratch arguments; values are int64, string, []byte or nil.
func (c *conn) bind(args []any) []driver.NamedValue {
	c.args = c.args[:0]
	for i, a := range args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return c.args
}

// exec runs a statement and returns how many rows it changed.
func (c *conn) exec(text string, args ...any) (int64, error) {
	s, err := c.prepare(text)
	if err != nil {
		return 0, err
	}
	// No context: a statement takes microseconds, and an interrupt would take the whole transaction with it.
	r, err := s.ExecContext(context.Background(), c.bind(args))
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// query calls scan for each row. The row is overwritten by the next; scan may not use the connection.
func (c *conn) query(text string, scan func(row *row) error, args ...any) (err error) {
	s, err := c.prepare(text)
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(context.Background(), c.bind(args))
	if err != nil {
		return err
	}
	defer func() {
		if closing := rows.Close(); err == nil {
			err = closing
		}
	}()
	n := len(rows.Columns())
	if cap(c.row) < n {
		c.row = make([]driver.Value, n)
	}
	r := row{values: c.row[:n]}
	for {
		switch err := rows.Next(r.values); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		r.next = 0
		if err := scan(&r); err != nil {
			return err
		}
	}
}

// has tells whether a query returns a row.
func (c *conn) has(text string, args ...any) (bool, error) {
	found := false
	err := c.query(text, func(*row) error { found = true; return nil }, args...)
	return found, err
}
