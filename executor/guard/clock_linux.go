package guard

import (
	"os"

	"golang.org/x/sys/unix"
)

const systemClock = unix.CLOCK_BOOTTIME

// alarm rings at an instant, and at once after a sleep of the machine that went past it, which Go's own timers would not.
type alarm struct {
	rings chan struct{}
	fd    int
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(systemClock, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	a := &alarm{rings: make(chan struct{}, 1), fd: fd}
	file := os.NewFile(uintptr(fd), "alarm")
	go func() {
		var expirations [8]byte
		for {
			if _, err := file.Read(expirations[:]); err != nil {
				return
			}
			select {
			case a.rings <- struct{}{}:
			default:
			}
		}
	}()
	return a, nil
}

// set replaces the instant at which the alarm rings.
func (a *alarm) set(at instant) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(at), 1))}
	return os.NewSyscallError("timerfd_settime", unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &spec, nil))
}
