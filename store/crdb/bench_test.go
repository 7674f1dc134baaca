package crdb

import (
	"testing"

	"github.com/waterclock-io/waterclock/internal/pgtest"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/store/storetest"
)

// BenchmarkPostgres measures the write path on a server that waits for the disk, as one that keeps its promises does.
func BenchmarkPostgres(b *testing.B) {
	cluster := pgtest.Start(b, pgtest.Options{Fsync: true})
	storetest.Bench(b, func(b *testing.B) store.Store { return open(b, cluster.NewDatabase(b), Options{}) })
}
