package sqlite

import (
	"database/sql/driver"
	"time"

	"github.com/google/uuid"
)

// row hands out the columns of a row in their order.
type row struct {
	values []driver.Value
	next   int
}

func (r *row) take() driver.Value {
	v := r.values[r.next]
	r.next++
	return v
}

func (r *row) int64() int64 { v, _ := r.take().(int64); return v }

func (r *row) int32() int32 { return int32(r.int64()) }

func (r *row) bool() bool { return r.int64() != 0 }

func (r *row) string() string { v, _ := r.take().(string); return v }

// bytes returns nil for NULL. The driver has copied the bytes.
func (r *row) bytes() []byte { v, _ := r.take().([]byte); return v }

func (r *row) uuid() (id uuid.UUID) {
	copy(id[:], r.bytes())
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

// blob makes an empty slice NULL: the driver returns both as nil.
func blob(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}
