//go:build !linux

package guard

import (
	"time"

	"golang.org/x/sys/unix"
)

// On macOS this clock goes on while the machine sleeps.
const systemClock = unix.CLOCK_MONOTONIC

// alarm rings at an instant, or late by as long as the machine slept.
type alarm struct {
	rings chan struct{}
	timer *time.Timer
}

func newAlarm() (*alarm, error) { return &alarm{rings: make(chan struct{}, 1)}, nil }

// set replaces the instant at which the alarm rings. A ring of an earlier setting that is still under way only makes the keeper look.
func (a *alarm) set(at instant) error {
	if a.timer != nil {
		a.timer.Stop()
	}
	a.timer = time.AfterFunc(time.Duration(at-now()), func() {
		select {
		case a.rings <- struct{}{}:
		default:
		}
	})
	return nil
}
