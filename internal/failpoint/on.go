//go:build failpoints

package failpoint

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
)

// armed is a point that may strike.
type armed struct {
	Arm
	passes atomic.Int64
	told   sync.Once
}

// points are those that are armed, by name. It is written once, before main.
var points = map[string]*armed{}

func init() {
	arms, err := Parse(os.Getenv(Variable))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for _, a := range arms {
		points[a.Name] = &armed{Arm: a}
	}
}

// strikes counts a pass, and tells whether it is the one.
func (a *armed) strikes() (pass int64, strikes bool) {
	pass = a.passes.Add(1)
	if a.At > 0 {
		return pass, pass == a.At
	}
	return pass, rand.Float64() < a.Probability //nolint:gosec // no secret
}

// Here kills the process without a further step where the point is armed and its turn has come.
func Here(name string) {
	a := points[name]
	if a == nil {
		return
	}
	pass, strikes := a.strikes()
	if !strikes {
		return
	}
	fmt.Fprintf(os.Stderr, "%skilled at pass %d\n", Struck(name), pass)
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%scannot kill this process: %v\n", Struck(name), err)
		os.Exit(2)
	}
	select {} // the signal is on its way; nothing more may happen here
}

// Err returns the error to hand out at a point, nil as a rule.
func Err(name string) error {
	a := points[name]
	if a == nil {
		return nil
	}
	pass, strikes := a.strikes()
	if !strikes {
		return nil
	}
	err := fmt.Errorf("%s%s at pass %d", Struck(name), a.Action, pass)
	a.told.Do(func() { fmt.Fprintln(os.Stderr, err) }) // the first, so that a fault run knows
	return err
}
