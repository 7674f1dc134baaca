package crdb

import (
	"encoding/binary"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// array is a parameter in the binary form of the wire, built element by element: pgx would look at each element by reflection.
type array struct {
	elem uint32
	n    uint32
	body []byte
}

// arrayCodec takes *array beside what the codec of the type takes.
type arrayCodec struct{ pgtype.Codec }

// PreferredFormat implements pgtype.Codec.
func (arrayCodec) PreferredFormat() int16 { return pgtype.BinaryFormatCode }

// PlanEncode implements pgtype.Codec.
func (c arrayCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(*array); ok && format == pgtype.BinaryFormatCode {
		return arrayPlan{}
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

type arrayPlan struct{}

// Encode implements pgtype.EncodePlan: dimensions, flags, type of the elements, length, lower bound, elements.
func (arrayPlan) Encode(value any, buf []byte) ([]byte, error) {
	a, ok := value.(*array)
	if !ok {
		return nil, errNotArray
	}
	if a.n == 0 {
		buf = binary.BigEndian.AppendUint32(buf, 0)
		buf = binary.BigEndian.AppendUint32(buf, 0)
		return binary.BigEndian.AppendUint32(buf, a.elem), nil
	}
	buf = binary.BigEndian.AppendUint32(buf, 1)
	buf = binary.BigEndian.AppendUint32(buf, 0)
	buf = binary.BigEndian.AppendUint32(buf, a.elem)
	buf = binary.BigEndian.AppendUint32(buf, a.n)
	buf = binary.BigEndian.AppendUint32(buf, 1)
	return append(buf, a.body...), nil
}

func (a *array) int4(v int32) {
	a.body = binary.BigEndian.AppendUint32(a.body, 4)
	a.body = binary.BigEndian.AppendUint32(a.body, uint32(v)) //nolint:gosec // the bits
	a.n++
}

func (a *array) int8(v int64) {
	a.body = binary.BigEndian.AppendUint32(a.body, 8)
	a.body = binary.BigEndian.AppendUint64(a.body, uint64(v)) //nolint:gosec // the bits
	a.n++
}

func (a *array) bool(v bool) {
	a.body = append(a.body, 0, 0, 0, 1, 0)
	if v {
		a.body[len(a.body)-1] = 1
	}
	a.n++
}

func (a *array) uuid(v uuid.UUID) {
	a.body = binary.BigEndian.AppendUint32(a.body, 16)
	a.body = append(a.body, v[:]...)
	a.n++
}

func (a *array) bytes(v []byte) {
	a.body = binary.BigEndian.AppendUint32(a.body, uint32(len(v))) //nolint:gosec // far below 4 GiB
	a.body = append(a.body, v...)
	a.n++
}

// text stores what SQL text can hold: what an executor reports may be anything, and one bad byte would refuse its whole batch.
func (a *array) text(v string) {
	v = clean(v)
	a.body = binary.BigEndian.AppendUint32(a.body, uint32(len(v))) //nolint:gosec // far below 4 GiB
	a.body = append(a.body, v...)
	a.n++
}

// clean replaces what is not UTF-8, and NUL.
func clean(v string) string {
	if utf8.ValidString(v) && strings.IndexByte(v, 0) < 0 {
		return v
	}
	return strings.ReplaceAll(strings.ToValidUTF8(v, "\uFFFD"), "\x00", "\uFFFD")
}

// uuids is an array of ids.
func uuids(ids []uuid.UUID) *array {
	a := &array{elem: pgtype.UUIDOID, body: make([]byte, 0, 20*len(ids))}
	for _, id := range ids {
		a.uuid(id)
	}
	return a
}

// kind is the type of a column.
type kind struct {
	sql  string
	oid  uint32
	size int // of an element, about
}

var (
	int4Kind  = kind{"int4", pgtype.Int4OID, 4}
	int8Kind  = kind{"int8", pgtype.Int8OID, 8}
	boolKind  = kind{"bool", pgtype.BoolOID, 1}
	textKind  = kind{"text", pgtype.TextOID, 8}
	byteaKind = kind{"bytea", pgtype.ByteaOID, 32}
	uuidKind  = kind{"uuid", pgtype.UUIDOID, 16}
)

// column is one column of a batch.
type column struct {
	name string
	kind kind
	// expr is what is written where it is not the element as it is.
	expr string
}

// batch is the rows of one statement, an array per column, filled row by row in the order of the columns.
type batch struct {
	arrays []array
	next   int
}

func newBatch(cols []column, rows int) *batch {
	b := &batch{arrays: make([]array, len(cols))}
	for i, c := range cols {
		b.arrays[i] = array{elem: c.kind.oid, body: make([]byte, 0, rows*(4+c.kind.size))}
	}
	return b
}

func (b *batch) take() *array {
	a := &b.arrays[b.next]
	if b.next++; b.next == len(b.arrays) {
		b.next = 0
	}
	return a
}

func (b *batch) int4(v int32)     { b.take().int4(v) }
func (b *batch) int8(v int64)     { b.take().int8(v) }
func (b *batch) bool(v bool)      { b.take().bool(v) }
func (b *batch) text(v string)    { b.take().text(v) }
func (b *batch) bytes(v []byte)   { b.take().bytes(v) }
func (b *batch) uuid(v uuid.UUID) { b.take().uuid(v) }
func (b *batch) time(v time.Time) { b.take().int8(micros(v)) }
func (b *batch) rows() int        { return int(b.arrays[0].n) }
func (b *batch) args(more ...any) []any {
	args := make([]any, 0, len(b.arrays)+len(more))
	for i := range b.arrays {
		args = append(args, &b.arrays[i])
	}
	return append(args, more...)
}
