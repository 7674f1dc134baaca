package check

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// verdict is a test that notes how it was ended.
type verdict struct {
	testing.TB
	said string
}

func (*verdict) Helper()                        {}
func (v *verdict) Fatal(args ...any)            { v.end(fmt.Sprint(args...)) }
func (v *verdict) Fatalf(f string, args ...any) { v.end(fmt.Sprintf(f, args...)) }

func (v *verdict) end(said string) {
	v.said = said
	panic(v)
}

// of returns what ended a test that does this; empty where nothing did.
func of(do func(testing.TB)) string {
	v := &verdict{}
	func() {
		defer func() {
			if got := recover(); got != nil && got != any(v) {
				panic(got)
			}
		}()
		do(v)
	}()
	return v.said
}

func TestWhatFailsEndsTheTest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		later := func(d time.Duration) func() bool { return func() bool { return time.Since(began) >= d } }
		full := make(chan int, 1)
		full <- 1
		for _, c := range []struct {
			name, want string
			took       time.Duration
			do         func(testing.TB)
		}{
			{"no error", "", 0, func(tb testing.TB) { OK(tb, nil) }},
			{"an error", "broken", 0, func(tb testing.TB) { OK(tb, errors.New("broken")) }},
			{"true at once", "", 0, func(tb testing.TB) { Await(tb, "x", later(0)) }},
			{"true in time", "", time.Second, func(tb testing.TB) { Await(tb, "x", later(time.Second)) }},
			{"never true", "never came: x", Patience, func(tb testing.TB) { Await(tb, "x", func() bool { return false }) }},
			{"there", "", 0, func(tb testing.TB) {
				if got := Receive(tb, "x", full); got != 1 {
					t.Errorf("received %d", got)
				}
			}},
			{"never there", "never came: x", Patience, func(tb testing.TB) { Receive(tb, "x", full) }},
		} {
			began = time.Now()
			if said := of(c.do); said != c.want || time.Since(began) != c.took {
				t.Errorf("%s: %q after %s, want %q after %s", c.name, said, time.Since(began), c.want, c.took)
			}
		}
	})
}
