package guard

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// instant is in nanoseconds on systemClock, which is the same in all processes of the machine, never set back, and goes on while the
// machine sleeps.
type instant int64

func now() instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(systemClock, &ts); err != nil {
		// Zero would keep a lease alive for ever; the largest instant ends it.
		return math.MaxInt64
	}
	return instant(ts.Nano())
}

// deadline turns until into an instant. The system's clock is read first: a stop of this process between the two readings makes the
// deadline earlier than it should be, never later.
func deadline(until time.Time) instant {
	at, left := now(), instant(time.Until(until))
	if left > math.MaxInt64-at {
		return math.MaxInt64
	}
	return at + left
}
