package floor

import (
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// The rows of one job are those of the product: the same columns, and about the same bytes.
const (
	shards   = 64
	specText = `{"schedule":{"once":{"at":"2026-11-21T15:00:00.123456Z"}}}`
	executor = "worker-host-1a2b3c4d5e6f"
)

// batch are the jobs of one round of transactions, sorted by the key of their timers.
type batch struct {
	jobs, runs []uuid.UUID
	shards     []int32
	hash       []byte
	due        int64 // microseconds
	bucket     int64 // minutes
	mark       int64
}

// newBatch makes ids, random ones or ascending ones.
func newBatch(n int, mark int64, ascending bool) (batch, error) {
	now := time.Now()
	b := batch{due: now.UnixMicro(), bucket: now.Unix() / 60, mark: mark, hash: make([]byte, 32)}
	_, _ = rand.Read(b.hash) // never fails
	type ids struct {
		job, run uuid.UUID
		shard    int32
	}
	all := make([]ids, n)
	for i := range all {
		job, err := newID(ascending)
		if err != nil {
			return b, err
		}
		all[i] = ids{job: job, run: uuid.NewSHA1(job, b.hash)}
		if !ascending {
			all[i].shard = int32(job[0]) % shards
		}
	}
	slices.SortFunc(all, func(x, y ids) int {
		if x.shard != y.shard {
			return int(x.shard - y.shard)
		}
		return slices.Compare(x.run[:], y.run[:])
	})
	for _, x := range all {
		b.jobs, b.runs, b.shards = append(b.jobs, x.job), append(b.runs, x.run), append(b.shards, x.shard)
	}
	return b, nil
}

func newID(ascending bool) (uuid.UUID, error) {
	id, err := uuid.NewRandom()
	if ascending {
		id, err = uuid.NewV7()
	}
	if err != nil {
		return id, fmt.Errorf("make an id: %w", err)
	}
	return id, nil
}

// sizesOf splits a number of jobs into batches.
func sizesOf(jobs, size int) []int {
	var out []int
	for ; jobs > 0; jobs -= size {
		out = append(out, min(jobs, size))
	}
	return out
}
