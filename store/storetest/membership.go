package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/store"
)

func testMembership(t *testing.T, open Open) {
	s := open(t)
	b := newGroup(s).bundle()
	t.Run("members", func(t *testing.T) { testMembers(t, b) })
	t.Run("shards", func(t *testing.T) { testShards(t, b) })
}

func testMembers(t *testing.T, b *bundle) {
	renew := func(id string, ttl time.Duration) ([]string, time.Time) {
		t.Helper()
		members, now, err := b.Renew(t.Context(), store.Member{ID: id, Host: "host-" + id, RenewedAt: b.base}, ttl)
		check(t, err)
		var ids []string
		for _, m := range members {
			if m.Host != "host-"+m.ID || m.RenewedAt.After(now) || now.Sub(m.RenewedAt) > ttl {
				t.Errorf("member %+v at %v with ttl %v", m, now, ttl)
			}
			ids = append(ids, m.ID)
		}
		return ids, now
	}
	before, err := b.Now(t.Context())
	check(t, err)
	ids, now := renew("m2", time.Hour)
	same(t, "members", []string{"m2"}, ids)
	if now.Before(before) {
		t.Errorf("now is %v, and was %v before", now, before)
	}
	ids, _ = renew("m3", time.Hour)
	same(t, "members", []string{"m2", "m3"}, ids)
	ids, _ = renew("m1", time.Hour)
	same(t, "members", []string{"m1", "m2", "m3"}, ids)

	// Once database time has moved on, who did not renew within ttl is gone, and is back when it renews.
	waitFor(t, b, now.Add(3*time.Millisecond))
	ids, _ = renew("m3", time.Microsecond)
	same(t, "members within a microsecond", []string{"m3"}, ids)
	ids, _ = renew("m1", time.Hour)
	same(t, "members within an hour", true, len(ids) >= 2)

	check(t, b.Leave(t.Context(), "m3"))
	check(t, b.Leave(t.Context(), "nobody"))
	ids, _ = renew("m1", time.Hour)
	for _, id := range ids {
		if id == "m3" {
			t.Errorf("members %v, want them without the one that left", ids)
		}
	}
}

// waitFor waits until database time has passed a time.
func waitFor(t *testing.T, b *bundle, until time.Time) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		now, err := b.Now(ctx)
		check(t, err)
		if now.After(until) {
			return
		}
	}
}

func testShards(t *testing.T, b *bundle) {
	shards := func() []store.Shard {
		t.Helper()
		list, err := b.Shards(t.Context())
		check(t, err)
		return list
	}
	byID := func(list []store.Shard) map[int32]store.Shard {
		m := map[int32]store.Shard{}
		for _, sh := range list {
			m[sh.ID] = sh
		}
		return m
	}
	fresh := map[int32]store.Shard{}
	var all []int32
	for i := range b.shards {
		fresh[i] = store.Shard{ID: i}
		all = append(all, i)
	}
	same(t, "shards at first", fresh, byID(shards()))
	claim := func(member string, ids ...int32) map[int32]store.Shard {
		t.Helper()
		list, err := b.Claim(t.Context(), member, ids)
		check(t, err)
		return byID(list)
	}
	last := b.shards - 1
	same(t, "first claim", map[int32]store.Shard{last: {ID: last, Owner: "a", Epoch: 1}}, claim("a", last))
	same(t, "claim of what one owns", map[int32]store.Shard{last: {ID: last, Owner: "a", Epoch: 1}}, claim("a", last))

	save := func(member string, sh store.Shard) {
		t.Helper()
		check(t, b.Checkpoint(t.Context(), member, []store.Shard{sh}))
	}
	at := b.at(time.Second)
	save("a", store.Shard{ID: last, Epoch: 1, Checkpoint: at.Add(999)})
	want := store.Shard{ID: last, Owner: "a", Epoch: 1, Checkpoint: at}
	same(t, "checkpoint", want, byID(shards())[last])
	save("b", store.Shard{ID: last, Epoch: 1, Checkpoint: b.at(time.Hour)})
	same(t, "checkpoint of one who does not own it", want, byID(shards())[last])
	save("a", store.Shard{ID: last, Epoch: 2, Checkpoint: b.at(time.Hour)})
	same(t, "checkpoint at another epoch", want, byID(shards())[last])

	want.Owner, want.Epoch = "b", 2
	got := claim("b", all...)
	same(t, "taken over", want, got[last])
	same(t, "number of shards claimed", int(b.shards), len(got))
	save("a", store.Shard{ID: last, Epoch: 1, Checkpoint: b.at(time.Hour)})
	same(t, "checkpoint of the owner before", want, byID(shards())[last])
	want.Owner, want.Epoch = "a", 3
	same(t, "taken back", want, claim("a", last)[last])
	save("a", store.Shard{ID: last, Epoch: 1, Checkpoint: b.at(time.Hour)})
	same(t, "checkpoint of an earlier ownership of one's own", want, byID(shards())[last])

	check(t, b.Leave(t.Context(), "a"))
	left := byID(shards())
	want.Owner = ""
	same(t, "shard of the one that left", want, left[last])
	for i := range last {
		same(t, "shard of the one that stays", store.Shard{ID: i, Owner: "b", Epoch: 1}, left[i])
	}
	want.Owner, want.Epoch = "a", 4
	same(t, "claim after leaving", want, claim("a", last)[last])

	// Of two that claim at one time each shard has one owner, and both are told which.
	answers := make([]map[int32]store.Shard, 2)
	names := []string{"x" + uuid.NewString(), "y" + uuid.NewString()}
	parallel(t, 2, func(i int) error {
		list, err := b.Claim(t.Context(), names[i], all)
		answers[i] = byID(list)
		return err
	})
	for id, sh := range byID(shards()) {
		for i, name := range names {
			if a := answers[i][id]; a.Owner != name || (sh.Owner == name && a.Epoch != sh.Epoch) || a.Epoch > sh.Epoch {
				t.Errorf("shard %+v, %s was told %+v", sh, name, a)
			}
		}
	}
	check(t, b.Checkpoint(t.Context(), "a", nil))
}
