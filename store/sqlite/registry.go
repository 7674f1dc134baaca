package sqlite

import (
	"context"
	"fmt"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// Cluster implements store.Registry.
func (s *Store) Cluster(ctx context.Context) (cl store.Cluster, err error) {
	err = s.read(ctx, func(c *conn) error {
		return c.query("SELECT store_id, key FROM cluster", func(r *row) error {
			cl = store.Cluster{StoreID: r.uuid(), Key: r.bytes()}
			return nil
		})
	})
	return cl, err
}

// CreateKey implements store.Registry.
func (s *Store) CreateKey(ctx context.Context, k store.APIKey) error {
	return s.write(ctx, 1, func(c *conn) error {
		_, err := c.exec("INSERT INTO api_keys ("+keyColumns+") VALUES (?,?,?,?,?,?,?)",
			k.ID, k.Namespace, k.Note, k.Hash, micros(k.CreatedAt), micros(k.RevokedAt), micros(k.ExpiresAt))
		return err
	})
}

const keyColumns = "key_id, namespace, note, hash, created_at, revoked_at, expires_at"

func scanKey(r *row) store.APIKey {
	return store.APIKey{
		ID: r.string(), Namespace: r.string(), Note: r.string(), Hash: r.bytes(), CreatedAt: r.time(), RevokedAt: r.time(), ExpiresAt: r.time(),
	}
}

// Keys implements store.Registry.
func (s *Store) Keys(ctx context.Context, namespace string) (keys []store.APIKey, err error) {
	err = s.read(ctx, func(c *conn) error {
		return c.query("SELECT "+keyColumns+" FROM api_keys WHERE ?1 = '' OR namespace = ?1 ORDER BY created_at, key_id",
			func(r *row) error { keys = append(keys, scanKey(r)); return nil }, namespace)
	})
	return keys, err
}

// KeyByID implements store.Registry.
func (s *Store) KeyByID(ctx context.Context, id string) (k store.APIKey, err error) {
	err = s.read(ctx, func(c *conn) error {
		found := false
		err := c.query("SELECT "+keyColumns+" FROM api_keys WHERE key_id = ?", func(r *row) error { k, found = scanKey(r), true; return nil }, id)
		if err == nil && !found {
			err = keyNotFound(id)
		}
		return err
	})
	return k, err
}

// RevokeKey implements store.Registry.
func (s *Store) RevokeKey(ctx context.Context, id string) error {
	return s.write(ctx, 1, func(c *conn) error {
		n, err := c.exec("UPDATE api_keys SET revoked_at = CASE revoked_at WHEN 0 THEN ? ELSE revoked_at END WHERE key_id = ?", micros(s.clock()), id)
		if err == nil && n == 0 {
			err = keyNotFound(id)
		}
		return err
	})
}

func keyNotFound(id string) error { return fmt.Errorf("API key %q: %w", id, store.ErrNotFound) }

// SharedQueues implements store.Registry.
func (s *Store) SharedQueues(ctx context.Context) (names []string, err error) {
	err = s.read(ctx, func(c *conn) error {
		return c.query("SELECT name FROM queues WHERE namespace = ?1 UNION SELECT ?2 ORDER BY name",
			func(r *row) error { names = append(names, r.string()); return nil }, job.SharedNamespace, job.DefaultQueue)
	})
	return names, err
}

func scanStream(r *row) store.Stream {
	return store.Stream{Name: r.string(), Generation: r.int64(), LastSeq: uint64(r.int64())}
}

// Streams implements store.Registry.
func (s *Store) Streams(ctx context.Context) (list []store.Stream, err error) {
	err = s.read(ctx, func(c *conn) error {
		return c.query("SELECT name, generation, last_seq FROM streams ORDER BY name", func(r *row) error { list = append(list, scanStream(r)); return nil })
	})
	return list, err
}

// NextGeneration implements store.Registry.
func (s *Store) NextGeneration(ctx context.Context, name string, from int64) (st store.Stream, err error) {
	err = s.write(ctx, 1, func(c *conn) error {
		_, err := c.exec("INSERT INTO streams (name, generation, last_seq) VALUES (?1, ?2 + 1, 0) "+
			"ON CONFLICT (name) DO UPDATE SET generation = ?2 + 1, last_seq = 0 WHERE generation <= ?2", name, from)
		if err != nil {
			return err
		}
		return c.query("SELECT name, generation, last_seq FROM streams WHERE name = ?", func(r *row) error { st = scanStream(r); return nil }, name)
	})
	return st, err
}

// SaveStreamSeq implements store.Registry.
func (s *Store) SaveStreamSeq(ctx context.Context, st store.Stream) error {
	return s.write(ctx, 1, func(c *conn) error {
		_, err := c.exec("UPDATE streams SET last_seq = ?1 WHERE name = ?2 AND generation = ?3 AND last_seq < ?1",
			int64(st.LastSeq), st.Name, st.Generation)
		return err
	})
}
