package sqlite

import (
	"context"
	"time"

	"github.com/waterclock-io/waterclock/store"
)

// forgetAfter is how long the row of a silent member is kept, for whoever looks into the file; its lease is over long before.
const forgetAfter = 24 * time.Hour

// Renew implements store.Membership.
func (s *Store) Renew(ctx context.Context, m store.Member, ttl time.Duration) (alive []store.Member, now time.Time, err error) {
	err = s.write(ctx, 1, func(c *conn) error {
		alive, now = nil, s.clock()
		if _, err := c.exec("DELETE FROM members WHERE renewed_at < ?", micros(now.Add(-max(forgetAfter, ttl)))); err != nil {
			return err
		}
		_, err := c.exec("INSERT INTO members (member_id, host, renewed_at) VALUES (?, ?, ?) "+
			"ON CONFLICT (member_id) DO UPDATE SET host = excluded.host, renewed_at = excluded.renewed_at", m.ID, m.Host, micros(now))
		if err != nil {
			return err
		}
		return c.query("SELECT member_id, host, renewed_at FROM members WHERE renewed_at > ? ORDER BY member_id", func(r *row) error {
			alive = append(alive, store.Member{ID: r.string(), Host: r.string(), RenewedAt: r.time()})
			return nil
		}, micros(now.Add(-ttl)))
	})
	return alive, now, err
}

// Leave implements store.Membership.
func (s *Store) Leave(ctx context.Context, id string) error {
	return s.write(ctx, 2, func(c *conn) error {
		if _, err := c.exec("DELETE FROM members WHERE member_id = ?", id); err != nil {
			return err
		}
		_, err := c.exec("UPDATE shards SET owner = '' WHERE owner = ?", id)
		return err
	})
}

const shardColumns = "shard, owner, epoch, checkpoint"

func scanShard(r *row) store.Shard {
	return store.Shard{ID: r.int32(), Owner: r.string(), Epoch: r.int64(), Checkpoint: r.time()}
}

// Shards implements store.Membership.
func (s *Store) Shards(ctx context.Context) (list []store.Shard, err error) {
	err = s.read(ctx, func(c *conn) error {
		return c.query("SELECT "+shardColumns+" FROM shards ORDER BY shard", func(r *row) error { list = append(list, scanShard(r)); return nil })
	})
	return list, err
}

// Claim implements store.Membership.
func (s *Store) Claim(ctx context.Context, member string, shards []int32) (list []store.Shard, err error) {
	err = s.write(ctx, len(shards), func(c *conn) error {
		list = nil
		for _, id := range shards {
			if _, err := c.exec("UPDATE shards SET owner = ?1, epoch = epoch + 1 WHERE shard = ?2 AND owner <> ?1", member, int64(id)); err != nil {
				return err
			}
			err := c.query("SELECT "+shardColumns+" FROM shards WHERE shard = ?", func(r *row) error { list = append(list, scanShard(r)); return nil }, int64(id))
			if err != nil {
				return err
			}
		}
		return nil
	})
	return list, err
}

// Checkpoint implements store.Membership.
func (s *Store) Checkpoint(ctx context.Context, member string, shards []store.Shard) error {
	return s.write(ctx, len(shards), func(c *conn) error {
		for _, sh := range shards {
			_, err := c.exec("UPDATE shards SET checkpoint = ? WHERE shard = ? AND owner = ? AND epoch = ?",
				micros(sh.Checkpoint), int64(sh.ID), member, sh.Epoch)
			if err != nil {
				return err
			}
		}
		return nil
	})
}
