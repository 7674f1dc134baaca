// Clock prints what its clocks say, for TestSkew: the wall time in nanoseconds, then in milliseconds how long a timer, a deadline of a context, and one of a
// connection of 100 ms took by the monotonic clock, and by the wall clock.
package main

import (
	"context"
	"fmt"
	"net"
	"time"
)

func main() {
	const d = 100 * time.Millisecond
	begun := time.Now()
	<-time.After(d)
	timer, wall := time.Since(begun), time.Now().Round(0).Sub(begun.Round(0))

	begun = time.Now()
	ctx, cancel := context.WithDeadline(context.Background(), begun.Add(d).Round(0)) // by the wall clock
	defer cancel()
	<-ctx.Done()
	deadline := time.Since(begun)

	begun = time.Now()
	near, far := net.Pipe()
	defer func() { _ = far.Close() }() // nothing was written
	_ = near.SetReadDeadline(begun.Add(d))
	_, _ = near.Read(make([]byte, 1)) // ends with the deadline
	fmt.Println(time.Now().UnixNano(), timer.Milliseconds(), deadline.Milliseconds(), time.Since(begun).Milliseconds(), wall.Milliseconds())
}
