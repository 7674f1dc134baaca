package work

import (
	"math"
	"slices"
	"time"
)

func sortedCopy(all []time.Duration) []time.Duration {
	sorted := slices.Clone(all)
	slices.Sort(sorted)
	return sorted
}

// quantile is the smallest value that at least the given part of all is not above; 0 where there are none.
func quantile(sorted []time.Duration, part float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(part*float64(len(sorted))))-1)]
}
