// Package check is what the tests of all packages say again and again: that there is no error, and that something is to come, which is waited for and never slept
// for. Tests and their helpers call it, on the test's own goroutine; programs do not. What one package alone checks stays there.
package check

import (
	"testing"
	"time"
)

// Patience is how long a test waits for what must come. It ends a test that hangs; how quick something must be is for the test itself to measure.
const Patience = time.Minute

// OK ends the test where there is an error.
func OK(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Await asks again and again until the answer is yes, where no event tells that it is time to. It ends the test where that never comes.
func Await(tb testing.TB, what string, yes func() bool) {
	tb.Helper()
	over := time.NewTimer(Patience)
	defer over.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-tick.C:
		case <-over.C:
			tb.Fatalf("never came: %s", what)
		}
	}
}

// Receive takes the next value, and ends the test where none comes. A closed channel has its zero value to give.
func Receive[T any](tb testing.TB, what string, from <-chan T) T {
	tb.Helper()
	over := time.NewTimer(Patience)
	defer over.Stop()
	select {
	case v := <-from:
		return v
	case <-over.C:
		tb.Fatalf("never came: %s", what)
		panic("unreachable")
	}
}
