// Package membership is the rule by which living planners share the shards: when one counts as gone, and who plans which shard. Planners follow it with the
// members that SQL names, and the simulation of many planners follows it too. It does no I/O.
package membership

import (
	"hash/fnv"
	"strconv"
	"time"
)

// A member that has not renewed within TTL by database time is dead, and its shards go to the others.
const (
	RenewEvery = time.Second
	TTL        = 3 * time.Second
)

// When a member is dead the others look for it a little later, so that the database says so too, each at a moment of its own within the spread: all heirs at once
// would make late what they have to do beside it.
const (
	deathSlack  = 20 * time.Millisecond
	DeathSpread = 300 * time.Millisecond
)

// NextDeath returns how long after now, both by database time, the first of some members will be dead unless it renews. Look
// again then, and up to DeathSpread later.
func NextDeath(renewed []time.Time, now time.Time) time.Duration {
	first := TTL
	for _, at := range renewed {
		first = min(first, at.Add(TTL).Sub(now))
	}
	return max(first, 0) + deathSlack
}

// Assign spreads shards over members by rendezvous hashing: when a member comes or goes, only its own shards move. Shards of nobody belong to "".
func Assign(members []string, shards int32) map[int32]string {
	out := make(map[int32]string, shards)
	for s := range shards {
		var best uint64
		owner := ""
		for _, m := range members {
			h := fnv.New64a()
			_, _ = h.Write([]byte(m + "/" + strconv.Itoa(int(s)))) // never fails
			// FNV leaves the tails of short inputs alike; mix, or one member gets most.
			x := h.Sum64()
			x ^= x >> 33
			x *= 0xff51afd7ed558ccd
			x ^= x >> 33
			x *= 0xc4ceb9fe1a85ec53
			x ^= x >> 33
			if owner == "" || x > best {
				best, owner = x, m
			}
		}
		out[s] = owner
	}
	return out
}
