package convert

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

// BodyHash returns the SHA-256 of a spec as its user gave it, before "now" and delay are resolved: a repeated submit must find the hash of the first.
//
// The encoding is our own, because the deterministic mode of protobuf promises nothing from one version of the library to the next, and hashes are
// compared with those that older binaries have stored. It must never change for fields that exist.
func BodyHash(s *waterclockv1.JobSpec) []byte {
	sum := sha256.Sum256(appendMessage(nil, s.ProtoReflect()))
	return sum[:]
}

// appendMessage writes the populated fields in order of their numbers, each as number, kind of value, and value; strings and messages with their length.
func appendMessage(b []byte, m protoreflect.Message) []byte {
	type field struct {
		fd protoreflect.FieldDescriptor
		v  protoreflect.Value
	}
	var fields []field
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		fields = append(fields, field{fd, v})
		return true
	})
	slices.SortFunc(fields, func(x, y field) int { return cmp.Compare(x.fd.Number(), y.fd.Number()) })
	for _, f := range fields {
		b = binary.AppendUvarint(b, uint64(f.fd.Number())) //nolint:gosec // field numbers are positive
		switch {
		case f.fd.IsMap():
			b = appendMap(b, f.fd, f.v.Map())
		case f.fd.IsList():
			b = binary.AppendUvarint(b, uint64(f.v.List().Len())) //nolint:gosec // a length
			for i := range f.v.List().Len() {
				b = appendValue(b, f.fd, f.v.List().Get(i))
			}
		default:
			b = appendValue(b, f.fd, f.v)
		}
	}
	return b
}

func appendMap(b []byte, fd protoreflect.FieldDescriptor, m protoreflect.Map) []byte {
	var keys []protoreflect.MapKey
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(x, y protoreflect.MapKey) int { return cmp.Compare(x.String(), y.String()) })
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for _, k := range keys {
		b = appendBytes(b, k.String())
		b = appendValue(b, fd.MapValue(), m.Get(k))
	}
	return b
}

func appendValue(b []byte, fd protoreflect.FieldDescriptor, v protoreflect.Value) []byte {
	switch x := v.Interface().(type) {
	case protoreflect.Message:
		return appendBytes(b, appendMessage(nil, x))
	case string:
		return appendBytes(b, x)
	case []byte:
		return appendBytes(b, x)
	case bool:
		if x {
			return append(b, 1)
		}
		return append(b, 0)
	case protoreflect.EnumNumber:
		return binary.AppendVarint(b, int64(x))
	case float32, float64:
		return binary.BigEndian.AppendUint64(b, math.Float64bits(v.Float()))
	case uint32, uint64:
		return binary.AppendUvarint(b, v.Uint())
	case int32, int64:
		return binary.AppendVarint(b, v.Int())
	default:
		// Every kind of protobuf value is above.
		panic("convert: no encoding for " + string(fd.FullName()))
	}
}

func appendBytes[T string | []byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}
