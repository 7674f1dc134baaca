package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

func testRegistry(t *testing.T, open Open) {
	s := open(t)
	b := newGroup(s).bundle()
	t.Run("cluster", func(t *testing.T) {
		first, err := b.Cluster(t.Context())
		check(t, err)
		again, err := b.Cluster(t.Context())
		check(t, err)
		same(t, "asked again", first, again)
		if first.StoreID == uuid.Nil || len(first.Key) != 32 || !slices.ContainsFunc(first.Key, func(c byte) bool { return c != 0 }) {
			t.Errorf("cluster %+v, want an id and 32 random bytes", first)
		}
		other, err := open(t).Cluster(t.Context())
		check(t, err)
		if other.StoreID == first.StoreID || slices.Equal(other.Key, first.Key) {
			t.Error("two stores have the same id or key")
		}
	})
	t.Run("keys", func(t *testing.T) { testKeys(t, b) })
	t.Run("shared queues", func(t *testing.T) {
		names, err := b.SharedQueues(t.Context())
		check(t, err)
		same(t, "queues", []string{job.DefaultQueue}, names)
	})
	t.Run("streams", func(t *testing.T) { testStreams(t, b) })
}

func testKeys(t *testing.T, b *bundle) {
	mk := func(id, ns string, at time.Duration) store.APIKey {
		return store.APIKey{ID: id, Namespace: ns, Note: "note " + id, Hash: []byte(id + "\x00hash"), CreatedAt: b.at(at)}
	}
	old, young, other := mk("k3", "one", time.Hour), mk("k1", "one", 2*time.Hour), mk("k2", "two", 3*time.Hour)
	young.ExpiresAt = b.at(24 * time.Hour)
	for _, k := range []store.APIKey{young, other, old} {
		check(t, b.CreateKey(t.Context(), k))
	}
	if err := b.CreateKey(t.Context(), mk("k1", "two", 0)); err == nil {
		t.Error("a key was made a second time")
	}
	keys := func(ns string) []store.APIKey {
		t.Helper()
		list, err := b.Keys(t.Context(), ns)
		check(t, err)
		return list
	}
	same(t, "keys of a namespace, oldest first", []store.APIKey{old, young}, keys("one"))
	same(t, "keys of all", []store.APIKey{old, young, other}, keys(""))
	same(t, "keys of an unknown namespace", []store.APIKey{}, keys("three"))
	got, err := b.KeyByID(t.Context(), "k1")
	check(t, err)
	same(t, "key by id", young, got)
	for _, err := range []error{b.RevokeKey(t.Context(), "k9"), func() error { _, err := b.KeyByID(t.Context(), "k9"); return err }()} {
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("error %v, want ErrNotFound", err)
		}
	}
	before, err := b.Now(t.Context())
	check(t, err)
	check(t, b.RevokeKey(t.Context(), "k3"))
	first, err := b.KeyByID(t.Context(), "k3")
	check(t, err)
	if first.RevokedAt.Before(before) {
		t.Errorf("revoked at %v, before %v", first.RevokedAt, before)
	}
	waitFor(t, b, first.RevokedAt)
	check(t, b.RevokeKey(t.Context(), "k3"))
	again, err := b.KeyByID(t.Context(), "k3")
	check(t, err)
	same(t, "key revoked twice", first, again)
	same(t, "revoked ones are listed", []store.APIKey{first, young}, keys("one"))
}

func testStreams(t *testing.T, b *bundle) {
	streams := func() []store.Stream {
		t.Helper()
		list, err := b.Streams(t.Context())
		check(t, err)
		slices.SortFunc(list, func(x, y store.Stream) int { return slices.Compare([]byte(x.Name), []byte(y.Name)) })
		return list
	}
	next := func(name string, from int64) store.Stream {
		t.Helper()
		st, err := b.NextGeneration(t.Context(), name, from)
		check(t, err)
		return st
	}
	save := func(name string, gen int64, seq uint64) {
		t.Helper()
		check(t, b.SaveStreamSeq(t.Context(), store.Stream{Name: name, Generation: gen, LastSeq: seq}))
	}
	same(t, "streams at first", []store.Stream{}, streams())
	same(t, "first generation", store.Stream{Name: "RUNS", Generation: 1}, next("RUNS", 0))
	same(t, "first generation, asked by a slower one", store.Stream{Name: "RUNS", Generation: 1}, next("RUNS", 0))
	save("RUNS", 1, 10)
	save("RUNS", 1, 9)
	same(t, "sequence goes up only", []store.Stream{{Name: "RUNS", Generation: 1, LastSeq: 10}}, streams())
	save("RUNS", 2, 99)
	save("RUNS", 0, 99)
	same(t, "sequence of another generation", []store.Stream{{Name: "RUNS", Generation: 1, LastSeq: 10}}, streams())
	same(t, "a slower one gets what is known", store.Stream{Name: "RUNS", Generation: 1, LastSeq: 10}, next("RUNS", 0))
	same(t, "second generation begins anew", store.Stream{Name: "RUNS", Generation: 2}, next("RUNS", 1))
	save("RUNS", 1, 11)
	same(t, "late sequence of the generation before", []store.Stream{{Name: "RUNS", Generation: 2}}, streams())
	same(t, "another stream", store.Stream{Name: "STATUS", Generation: 1}, next("STATUS", 0))
	same(t, "both", []store.Stream{{Name: "RUNS", Generation: 2}, {Name: "STATUS", Generation: 1}}, streams())
	parallel(t, 4, func(int) error {
		st, err := b.NextGeneration(t.Context(), "RUNS", 2)
		if err == nil && st.Generation != 3 {
			t.Errorf("generation %d, want 3 for all that ask at one time", st.Generation)
		}
		return err
	})
}
