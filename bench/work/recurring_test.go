package work

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock-io/waterclock/bench/world"
)

func TestFires(t *testing.T) {
	t.Parallel()
	f := &fires{first: time.Now().Truncate(time.Second), period: time.Second, each: 3, starts: make([]atomic.Int64, 12), all: make(chan struct{})}
	for series := range 4 {
		for occurrence := range 3 {
			if series == 2 && occurrence == 1 {
				continue // missing
			}
			f.start(uint64(series), f.due(series, occurrence))
		}
	}
	f.start(1, f.due(1, 2))                                       // again
	f.start(1, f.due(1, 3))                                       // after its end
	f.start(1, f.due(1, 0).Add(-time.Second))                     // before its beginning
	f.start(1, f.due(1, 0).Add(time.Microsecond))                 // at no time of its own
	f.start(warmBase, time.Now())                                 // of the warm-up
	v := f.values(world.Usage{CPU: time.Second}, f.due(3, 2))     // the last
	if v["fires"] != 11 || v["missing"] != 1 || v["again"] != 4 { // three of them strange
		t.Errorf("values %v", v)
	}
	select {
	case <-f.all:
		t.Error("it took all occurrences to have started")
	default:
	}
	f.start(2, f.due(2, 1))
	<-f.all
}
