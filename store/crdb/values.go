package crdb

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

var errNotArray = errors.New("value is not an *array")

// row hands out the columns of a row in their order, from the binary form of the wire. Nothing of it is kept: strings and bytes are copied.
type row struct {
	values [][]byte
	next   int
	// names are strings that many rows share, such as queues.
	names map[string]string
}

func (r *row) take() []byte {
	v := r.values[r.next]
	r.next++
	return v
}

func (r *row) int64() int64 { return int64(binary.BigEndian.Uint64(r.take())) } //nolint:gosec // the bits

func (r *row) int32() int32 { return int32(binary.BigEndian.Uint32(r.take())) } //nolint:gosec // the bits

func (r *row) bool() bool { return r.take()[0] != 0 }

// string returns "" for NULL.
func (r *row) string() string { return string(r.take()) }

// name is string for values that come again and again.
func (r *row) name() string {
	v := r.take()
	if s, ok := r.names[string(v)]; ok {
		return s
	}
	if r.names == nil {
		r.names = map[string]string{}
	}
	s := string(v)
	r.names[s] = s
	return s
}

// bytes returns nil for NULL and for empty.
func (r *row) bytes() []byte {
	v := r.take()
	if len(v) == 0 {
		return nil
	}
	return append([]byte(nil), v...)
}

func (r *row) uuid() (id uuid.UUID) {
	copy(id[:], r.take())
	return id
}

func (r *row) time() time.Time { return fromMicros(r.int64()) }

// micros is how a time is stored: whole microseconds since 1970, 0 for the zero time.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// truncate is what a time is after it was stored and read back.
func truncate(t time.Time) time.Time { return fromMicros(micros(t)) }

// unnest is rows of a batch as a table u, from parameter number first on.
func unnest(first int, cols []column) string {
	var params, names strings.Builder
	for i, c := range cols {
		if i > 0 {
			params.WriteString(", ")
			names.WriteString(", ")
		}
		params.WriteString("$" + strconv.Itoa(first+i) + "::" + c.kind.sql + "[]")
		names.WriteString(c.name)
	}
	return "unnest(" + params.String() + ") AS u(" + names.String() + ")"
}

// insert is a statement that inserts the rows of a batch; tail follows it.
func insert(table string, first int, cols []column, tail string) string {
	names, values := make([]string, len(cols)), make([]string, len(cols))
	for i, c := range cols {
		names[i], values[i] = c.name, "u."+c.name
		if c.expr != "" {
			values[i] = c.expr
		}
	}
	return "INSERT INTO " + table + " (" + strings.Join(names, ", ") + ") SELECT " + strings.Join(values, ", ") + " FROM " + unnest(first, cols) + " " + tail
}

// assign is the SET list that takes columns from a batch.
func assign(cols []column) string {
	set := make([]string, len(cols))
	for i, c := range cols {
		set[i] = c.name + " = u." + c.name
		if c.expr != "" {
			set[i] = c.name + " = " + c.expr
		}
	}
	return strings.Join(set, ", ")
}

// selected is the list of columns of a table t, each as it is named.
func selected(alias string, cols []column) string {
	list := make([]string, len(cols))
	for i, c := range cols {
		list[i] = alias + "." + c.name
	}
	return strings.Join(list, ", ")
}
