package guard

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// A tree that is being killed is looked at again after these pauses; every death inside it is a reason to look at once.
	firstSweepPause = 2 * time.Millisecond
	lastSweepPause  = 50 * time.Millisecond
)

// keeper is the guard's state. One goroutine owns it, and that goroutine alone reaps: as long as it has not reaped the command, the
// command's process id and group id belong to nobody else.
type keeper struct {
	pid   int
	until instant
	alarm *alarm

	exited bool // the command itself; the tree may go on
	status syscall.WaitStatus
	empty  bool // nothing of the tree is left

	stopped    bool // SIGTERM was sent
	graceEnd   time.Time
	killing    bool
	killedAt   time.Time
	reason     Reason
	stragglers int
	pause      time.Duration
}

// keep returns when the whole tree is dead.
func (k *keeper) keep(orders <-chan order, childEnded <-chan os.Signal) exitReport {
	grace, sweep := time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	for {
		k.reap()
		if k.exited && !k.killing {
			// A run leaves nothing behind.
			k.killing = true
		}
		if k.killing && !k.empty {
			k.killTree()
			k.reap()
			sweep.Reset(k.nextPause())
		}
		if k.exited && k.empty {
			return k.report()
		}

		select {
		case o, ok := <-orders:
			if !ok {
				orders = nil
				k.kill(ReasonOrphaned)
				break
			}
			if !k.lapsed() {
				k.obey(o)
				if k.stopped {
					grace.Reset(time.Until(k.graceEnd))
				}
			}
		case <-k.alarm.rings:
			k.lapsed()
		case <-grace.C:
			if k.stopped {
				k.kill(ReasonStopped)
			}
		case <-sweep.C:
		case <-childEnded:
		}
	}
}

// lapsed kills if the lease is over; an order that comes later cannot bring it back.
func (k *keeper) lapsed() bool {
	if now() < k.until {
		return false
	}
	k.kill(ReasonFenced)
	return true
}

func (k *keeper) obey(o order) {
	switch {
	case o.Kill:
		k.kill(ReasonStopped)
	case o.Stop:
		end := time.Now().Add(o.Grace)
		if !k.stopped {
			k.stopped, k.graceEnd = true, end
			if k.reap(); !k.exited {
				k.reason = ReasonStopped
				_ = unix.Kill(-k.pid, unix.SIGTERM)
				// A command that was itself stopped could not see the request.
				_ = unix.Kill(-k.pid, unix.SIGCONT)
			}
		}
		if end.Before(k.graceEnd) {
			k.graceEnd = end
		}
	case o.Until != 0:
		k.extend(o.Until)
	}
}

func (k *keeper) extend(until instant) {
	k.until = until
	if k.alarm.set(until) != nil {
		// A lease that nothing would end must not begin.
		k.kill(ReasonFenced)
	}
}

// kill begins the end of the tree; the first reason stands, and a command that has just ended by itself was not killed.
func (k *keeper) kill(reason Reason) {
	k.reap()
	if k.killing || k.exited {
		return
	}
	k.killing, k.killedAt, k.reason = true, time.Now(), reason
}

// killTree sends SIGKILL to everything in sight. A fork that a signal interrupts is undone by the kernel, so a group dies as a whole;
// processes that were forked out of it while we looked are children of this process afterwards and are met by the next look.
func (k *keeper) killTree() {
	if !k.exited {
		_ = unix.Kill(-k.pid, unix.SIGKILL)
	}
	own := unix.Getpgrp()
	for _, pid := range descendants() {
		if group, err := unix.Getpgid(pid); err == nil && group > 1 && group != own {
			_ = unix.Kill(-group, unix.SIGKILL)
		}
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

func (k *keeper) nextPause() time.Duration {
	k.pause = min(max(firstSweepPause, 2*k.pause), lastSweepPause)
	return k.pause
}

// reap collects the dead. Having no child at all means that no descendant is left, since orphans become children of the subreaper.
func (k *keeper) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			k.empty = true
			return
		case pid == 0:
			return
		case pid == k.pid:
			k.exited, k.status = true, status
		case k.exited && k.killedAt.IsZero() && status.Signal() == syscall.SIGKILL:
			k.stragglers++
		}
	}
}

func (k *keeper) report() exitReport {
	e := exitReport{Code: k.status.ExitStatus(), Reason: k.reason, KilledAt: k.killedAt, Stragglers: k.stragglers}
	if e.Reason == "" {
		e.Reason = ReasonExited
	}
	if k.status.Signaled() {
		e.Signal = int(k.status.Signal())
	}
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &usage) == nil {
		e.UserTime, e.SystemTime = time.Duration(usage.Utime.Nano()), time.Duration(usage.Stime.Nano())
	}
	return e
}
