package auth

import (
	"net/netip"
	"sync"
	"time"

	"github.com/waterclock-io/waterclock/store"
)

// maxEntries bounds what strangers can make us remember.
const maxEntries = 10_000

// cache remembers keys for a few seconds, also those that do not exist.
type cache struct {
	mu   sync.Mutex
	keys map[string]cached
}

type cached struct {
	key store.APIKey
	at  time.Time
}

func newCache() *cache { return &cache{keys: map[string]cached{}} }

func (c *cache) get(id string, now time.Time) (store.APIKey, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.keys[id]
	return k.key, ok && now.Sub(k.at) < cacheFor
}

func (c *cache) put(id string, k store.APIKey, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.keys) >= maxEntries {
		for old, e := range c.keys {
			if now.Sub(e.at) >= cacheFor {
				delete(c.keys, old)
			}
		}
		if len(c.keys) >= maxEntries {
			clear(c.keys)
		}
	}
	c.keys[id] = cached{k, now}
}

// An address may fail this often at once, and then once per refill.
const (
	maxFailures = 10
	refill      = 6 * time.Second
)

// throttle counts the failures of addresses, as buckets that fill again by themselves.
type throttle struct {
	mu    sync.Mutex
	until map[netip.Addr]time.Time // when the bucket will be full again
}

func newThrottle() *throttle { return &throttle{until: map[netip.Addr]time.Time{}} }

// network is what one party can choose addresses from freely.
func network(a netip.Addr) netip.Addr {
	if a.Is6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}

func (t *throttle) allowed(a netip.Addr, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.until[network(a)].Sub(now) <= (maxFailures-1)*refill
}

func (t *throttle) failed(a netip.Addr, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.until) >= maxEntries {
		for old, full := range t.until {
			if !full.After(now) {
				delete(t.until, old)
			}
		}
		// Still full of offenders: an attacker with that many addresses is not stopped by counting them, and memory must stay bounded.
		if len(t.until) >= maxEntries {
			clear(t.until)
		}
	}
	full := t.until[network(a)]
	if full.Before(now) {
		full = now
	}
	t.until[network(a)] = full.Add(refill)
}
