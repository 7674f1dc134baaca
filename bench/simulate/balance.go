package simulate

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/waterclock-io/waterclock/planner/membership"
)

// Balance is how evenly the rule spreads shards over planners, over many sets of ids.
type Balance struct {
	Planners int
	Shards   int32
	// Mean and Worst are of the largest share over the mean; Idle is how many planners of a set have no shard at all, on average.
	Mean, Worst, Idle float64
}

// Balances draws sets of ids as processes make theirs, and spreads each number of shards over each number of planners.
func Balances(seed uint64, sets int, planners []int, shards []int32) []Balance {
	var out []Balance
	for _, n := range planners {
		for _, of := range shards {
			rng := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // repeatable on purpose
			b := Balance{Planners: n, Shards: of}
			for range sets {
				count := map[string]int{}
				for _, owner := range membership.Assign(ids(rng, n), of) {
					count[owner]++
				}
				shares := make([]int, 0, n)
				for _, c := range count {
					shares = append(shares, c)
				}
				b.Idle += float64(n-len(shares)) / float64(sets)
				for len(shares) < n {
					shares = append(shares, 0)
				}
				s := Spread(shares)
				b.Mean += s / float64(sets)
				b.Worst = max(b.Worst, s)
			}
			out = append(out, b)
		}
	}
	return out
}

// ids are like those of real planners: host, process, six random letters.
func ids(rng *rand.Rand, n int) []string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	out := make([]string, n)
	for i := range out {
		var b strings.Builder
		fmt.Fprintf(&b, "planner-%d-%d-", i, 1+rng.IntN(40_000))
		for range 6 {
			b.WriteByte(letters[rng.IntN(len(letters))])
		}
		out[i] = b.String()
	}
	return out
}
