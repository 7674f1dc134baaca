package job

import (
	"strconv"
	"time"

	"github.com/google/uuid"
)

// keyedNamespace is the UUIDv5 name space of jobs made with an idempotency key, and of run ids. It must never change: ids made before would be
// made a second time.
var keyedNamespace = uuid.MustParse("6d2f3f0e-0f58-5c8c-9a6d-1f7f6b0c5a11")

// KeyedID returns the id of the job that a namespace makes with an idempotency key: the same key is the same job.
func KeyedID(namespace, key string) uuid.UUID {
	return uuid.NewSHA1(keyedNamespace, []byte("job\x00"+namespace+"\x00"+key))
}

// RunID returns the id of an occurrence. Made twice from the same job, origin, nominal time and nonce it is the same run, which is what makes
// every insert of a run idempotent. The nonce is empty for scheduled runs, else the id of the request.
func RunID(jobID uuid.UUID, origin Origin, nominal time.Time, nonce string) uuid.UUID {
	b := make([]byte, 0, 64)
	b = append(b, origin...)
	b = append(b, 0)
	b = strconv.AppendInt(b, nominal.UnixMicro(), 10)
	b = append(b, 0)
	b = append(b, nonce...)
	return uuid.NewSHA1(jobID, b)
}

// ShardOf spreads jobs over n shards by the hash of their id.
func ShardOf(jobID uuid.UUID, n int32) int32 {
	// FNV-1a over the whole id: time-ordered ids share their first bytes, keyed ones have a fixed version nibble.
	h := uint32(2166136261)
	for _, c := range jobID {
		h = (h ^ uint32(c)) * 16777619
	}
	return int32(h % uint32(n)) //nolint:gosec // n is small and positive
}
