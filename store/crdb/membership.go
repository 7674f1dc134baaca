package crdb

import (
	"context"
	"slices"
	"time"

	"github.com/waterclock-io/waterclock/store"
)

// forgetAfter is how many times its lease a member may be silent before its row is deleted; it lives no longer than its lease in any case.
const forgetAfter = 10

const (
	renew = "INSERT INTO members (member_id, host, renewed_at) VALUES ($1, $2, " + sqlNow + ") " +
		"ON CONFLICT (member_id) DO UPDATE SET host = excluded.host, renewed_at = excluded.renewed_at RETURNING renewed_at"
	readMembers = "SELECT member_id, host, renewed_at FROM members ORDER BY member_id"
	forget      = "DELETE FROM members WHERE renewed_at < $1"
)

// Renew implements store.Membership. Writing and reading are two transactions: in one, all members would conflict with each other every second at
// SERIALIZABLE.
func (s *Store) Renew(ctx context.Context, m store.Member, ttl time.Duration) ([]store.Member, time.Time, error) {
	var now time.Time
	err := s.write(ctx, statement{
		text: renew, args: []any{clean(m.ID), clean(m.Host)},
		each: func(r *row) error { now = r.time(); return nil },
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	var alive []store.Member
	err = s.read(ctx, s.hot, collect(&alive, func(r *row) (store.Member, error) {
		return store.Member{ID: r.string(), Host: r.string(), RenewedAt: r.time()}, nil
	}, readMembers))
	if err != nil {
		return nil, time.Time{}, err
	}
	old := now.Add(-forgetAfter * ttl)
	if slices.ContainsFunc(alive, func(m store.Member) bool { return m.RenewedAt.Before(old) }) {
		if err := s.write(ctx, statement{text: forget, args: []any{micros(old)}}); err != nil {
			return nil, time.Time{}, err
		}
	}
	return slices.DeleteFunc(alive, func(m store.Member) bool { return !m.RenewedAt.After(now.Add(-ttl)) }), now, nil
}

// Leave implements store.Membership.
func (s *Store) Leave(ctx context.Context, id string) error {
	return s.write(ctx,
		statement{text: "DELETE FROM members WHERE member_id = $1", args: []any{clean(id)}},
		statement{text: lockOwned, args: []any{clean(id)}},
		statement{text: "UPDATE shards SET owner = '' WHERE owner = $1", args: []any{clean(id)}})
}

// lockOwned locks in the order in which others lock.
const lockOwned = "SELECT shard FROM shards WHERE owner = $1 ORDER BY shard FOR UPDATE"

const (
	readShards  = "SELECT shard, owner, epoch, checkpoint FROM shards ORDER BY shard"
	claimShards = "UPDATE shards AS s SET owner = $2, epoch = s.epoch + 1 FROM unnest($1::int4[]) AS u(shard) WHERE s.shard = u.shard AND s.owner <> $2"
	// A claim reads in the statement after the one that writes.
	readClaimed = "SELECT s.shard, s.owner, s.epoch, s.checkpoint FROM shards AS s WHERE s.shard = ANY ($1::int4[]) ORDER BY s.shard"
	checkpoint  = "UPDATE shards AS s SET checkpoint = u.checkpoint FROM unnest($1::int4[], $2::int8[], $3::int8[]) AS u(shard, epoch, checkpoint) " +
		"WHERE s.shard = u.shard AND s.epoch = u.epoch AND s.owner = $4"
)

func scanShard(r *row) (store.Shard, error) {
	return store.Shard{ID: r.int32(), Owner: r.string(), Epoch: r.int64(), Checkpoint: r.time()}, nil
}

// Shards implements store.Membership.
func (s *Store) Shards(ctx context.Context) (list []store.Shard, err error) {
	err = s.read(ctx, s.hot, collect(&list, scanShard, readShards))
	return list, err
}

// Claim implements store.Membership.
func (s *Store) Claim(ctx context.Context, member string, shards []int32) (list []store.Shard, err error) {
	if len(shards) == 0 {
		return nil, nil
	}
	ids := &array{elem: int4Kind.oid}
	for _, id := range slices.Sorted(slices.Values(shards)) {
		ids.int4(id)
	}
	err = s.write(ctx, statement{text: claimShards, args: []any{ids, clean(member)}}, collect(&list, scanShard, readClaimed, ids))
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Checkpoint implements store.Membership.
func (s *Store) Checkpoint(ctx context.Context, member string, shards []store.Shard) error {
	if len(shards) == 0 {
		return nil
	}
	sorted := slices.Clone(shards)
	slices.SortFunc(sorted, func(a, b store.Shard) int { return int(a.ID) - int(b.ID) })
	b := newBatch([]column{{"shard", int4Kind, ""}, {"epoch", int8Kind, ""}, {"checkpoint", int8Kind, ""}}, len(sorted))
	for _, sh := range sorted {
		b.int4(sh.ID)
		b.int8(sh.Epoch)
		b.time(sh.Checkpoint)
	}
	return s.write(ctx, statement{text: checkpoint, args: b.args(clean(member))})
}
