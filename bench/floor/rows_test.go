package floor

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSizesOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		jobs, size int
		want       []int
	}{{0, 5, nil}, {3, 5, []int{3}}, {10, 5, []int{5, 5}}, {11, 5, []int{5, 5, 1}}} {
		if diff := cmp.Diff(test.want, sizesOf(test.jobs, test.size)); diff != "" {
			t.Errorf("%d by %d (-want +got):\n%s", test.jobs, test.size, diff)
		}
	}
}

func TestBatchIsSortedByKey(t *testing.T) {
	t.Parallel()
	for _, ascending := range []bool{false, true} {
		b, err := newBatch(500, 1, ascending)
		if err != nil {
			t.Fatal(err)
		}
		if len(b.jobs) != 500 || len(b.runs) != 500 || len(b.shards) != 500 {
			t.Fatalf("%d jobs, %d runs, %d shards", len(b.jobs), len(b.runs), len(b.shards))
		}
		if !slices.IsSorted(b.shards) {
			t.Error("shards are not sorted")
		}
		for i := 1; i < len(b.runs); i++ {
			if b.shards[i-1] == b.shards[i] && slices.Compare(b.runs[i-1][:], b.runs[i][:]) >= 0 {
				t.Errorf("runs %d and %d of a shard are not in order", i-1, i)
			}
		}
	}
}
