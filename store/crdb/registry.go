package crdb

import (
	"context"
	"fmt"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// Cluster implements store.Registry.
func (s *Store) Cluster(ctx context.Context) (cl store.Cluster, err error) {
	err = s.read(ctx, s.hot, statement{text: "SELECT store_id, key FROM cluster WHERE one = 1", each: func(r *row) error {
		cl = store.Cluster{StoreID: r.uuid(), Key: r.bytes()}
		return nil
	}})
	return cl, err
}

const keyColumns = "key_id, namespace, note, hash, created_at, revoked_at, expires_at"

func scanAPIKey(r *row) (store.APIKey, error) {
	return store.APIKey{
		ID: r.string(), Namespace: r.string(), Note: r.string(), Hash: r.bytes(), CreatedAt: r.time(), RevokedAt: r.time(), ExpiresAt: r.time(),
	}, nil
}

// CreateKey implements store.Registry.
func (s *Store) CreateKey(ctx context.Context, k store.APIKey) error {
	return s.write(ctx, statement{
		text: "INSERT INTO api_keys (" + keyColumns + ") VALUES ($1, $2, $3, $4, $5, $6, $7)",
		args: []any{k.ID, k.Namespace, clean(k.Note), k.Hash, micros(k.CreatedAt), micros(k.RevokedAt), micros(k.ExpiresAt)},
	})
}

// Keys implements store.Registry.
func (s *Store) Keys(ctx context.Context, namespace string) (keys []store.APIKey, err error) {
	err = s.read(ctx, s.hot, collect(&keys, scanAPIKey,
		"SELECT "+keyColumns+" FROM api_keys WHERE $1::text = '' OR namespace = $1::text ORDER BY created_at, key_id", clean(namespace)))
	return keys, err
}

// KeyByID implements store.Registry.
func (s *Store) KeyByID(ctx context.Context, id string) (store.APIKey, error) {
	var keys []store.APIKey
	if err := s.read(ctx, s.hot, collect(&keys, scanAPIKey, "SELECT "+keyColumns+" FROM api_keys WHERE key_id = $1", clean(id))); err != nil {
		return store.APIKey{}, err
	}
	if len(keys) == 0 {
		return store.APIKey{}, keyNotFound(id)
	}
	return keys[0], nil
}

// RevokeKey implements store.Registry.
func (s *Store) RevokeKey(ctx context.Context, id string) error {
	found := false
	err := s.write(ctx, statement{
		text: "UPDATE api_keys SET revoked_at = CASE WHEN revoked_at = 0 THEN " + sqlNow + " ELSE revoked_at END WHERE key_id = $1 RETURNING 1",
		args: []any{clean(id)}, begin: func() { found = false }, each: func(*row) error { found = true; return nil },
	})
	if err == nil && !found {
		return keyNotFound(id)
	}
	return err
}

func keyNotFound(id string) error { return fmt.Errorf("API key %q: %w", id, store.ErrNotFound) }

// SharedQueues implements store.Registry.
func (s *Store) SharedQueues(ctx context.Context) (names []string, err error) {
	err = s.read(ctx, s.hot, collect(&names, func(r *row) (string, error) { return r.string(), nil },
		"SELECT q.name FROM queues AS q WHERE q.namespace = $1::text UNION SELECT $2::text ORDER BY 1", job.SharedNamespace, job.DefaultQueue))
	return names, err
}

const streamColumns = "name, generation, last_seq"

func scanStream(r *row) (store.Stream, error) {
	return store.Stream{Name: r.string(), Generation: r.int64(), LastSeq: uint64(r.int64())}, nil //nolint:gosec // stored from a uint64
}

// Streams implements store.Registry.
func (s *Store) Streams(ctx context.Context) (list []store.Stream, err error) {
	err = s.read(ctx, s.hot, collect(&list, scanStream, "SELECT "+streamColumns+" FROM streams ORDER BY name"))
	return list, err
}

// NextGeneration implements store.Registry.
func (s *Store) NextGeneration(ctx context.Context, name string, from int64) (st store.Stream, err error) {
	var found []store.Stream
	err = s.write(ctx,
		statement{
			text: "INSERT INTO streams (name, generation, last_seq) VALUES ($1, $2, 0) ON CONFLICT (name) DO UPDATE " +
				"SET generation = excluded.generation, last_seq = 0 WHERE streams.generation < excluded.generation",
			args: []any{clean(name), from + 1},
		},
		collect(&found, scanStream, "SELECT "+streamColumns+" FROM streams WHERE name = $1", clean(name)))
	if err != nil {
		return st, err
	}
	return found[0], nil
}

// SaveStreamSeq implements store.Registry.
func (s *Store) SaveStreamSeq(ctx context.Context, st store.Stream) error {
	return s.write(ctx, statement{
		text: "UPDATE streams SET last_seq = $1 WHERE name = $2 AND generation = $3 AND last_seq < $1",
		args: []any{int64(st.LastSeq), clean(st.Name), st.Generation}, //nolint:gosec // sequences stay far below 2^63
	})
}
