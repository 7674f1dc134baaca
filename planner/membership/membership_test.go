package membership_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waterclock-io/waterclock/planner/membership"
)

func TestAssignMovesOnlyWhatItMust(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		members := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9.-]{1,30}-[0-9]{1,7}-[A-Z2-7]{6}`), 2, 9, rapid.ID).Draw(t, "members")
		before := membership.Assign(members, 64)
		dead := rapid.IntRange(0, len(members)-1).Draw(t, "dead")
		left := append(append([]string{}, members[:dead]...), members[dead+1:]...)
		after := membership.Assign(left, 64)
		for s := range int32(64) {
			if before[s] != members[dead] && after[s] != before[s] {
				t.Fatalf("shard %d moved from %s to %s when %s died", s, before[s], after[s], members[dead])
			}
			if after[s] == members[dead] || after[s] == "" {
				t.Fatalf("shard %d belongs to %q", s, after[s])
			}
		}
		// Who comes back gets exactly its own.
		for s, m := range membership.Assign(members, 64) {
			if m != before[s] {
				t.Fatalf("shard %d: %s, then %s", s, before[s], m)
			}
		}
	})
}

func TestAssignIsBalanced(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 8; n++ {
		// Over many sets of members, as their ids are drawn at random: nobody is always the loser.
		total, worst := map[int]int{}, 0
		const sets = 200
		for set := range sets {
			members := make([]string, n)
			for i := range members {
				members[i] = fmt.Sprintf("host-%d-%d-ABC", 1000+i, set)
			}
			count := map[string]int{}
			for _, m := range membership.Assign(members, 64) {
				count[m]++
			}
			for i, m := range members {
				total[i] += count[m]
				worst = max(worst, count[m])
			}
		}
		fair := 64 / n
		for i, c := range total {
			if c < sets*fair*8/10 || c > sets*(fair+1)*12/10 {
				t.Errorf("%d members: number %d got %d of %d shards in all", n, i, c, sets*64)
			}
		}
		if worst > 64*2/n+12 {
			t.Errorf("%d members: one got %d of 64", n, worst)
		}
	}
	if got := membership.Assign(nil, 2); got[0] != "" || got[1] != "" {
		t.Errorf("of nobody: %v", got)
	}
}

func TestNextDeath(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		ago  []time.Duration // when each renewed
		want time.Duration   // when the first is dead
	}{
		{nil, membership.TTL}, {[]time.Duration{0}, membership.TTL}, {[]time.Duration{0, 2 * time.Second, time.Second}, time.Second},
		{[]time.Duration{2900 * time.Millisecond}, 100 * time.Millisecond}, {[]time.Duration{0, time.Minute}, 0},
	} {
		renewed := make([]time.Time, len(c.ago))
		for i, ago := range c.ago {
			renewed[i] = now.Add(-ago)
		}
		// A little after it, so that the database finds it dead.
		if got := membership.NextDeath(renewed, now) - c.want; got <= 0 || got > 100*time.Millisecond {
			t.Errorf("%v: %s after", c.ago, got)
		}
	}
}
