package guard

import (
	"encoding/gob"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// marker and processName together tell a guard from any other start of the binary. The command sees neither.
	marker      = "WATERCLOCK_GUARD"
	processName = "waterclock-guard"
)

// Main must be the first call of the program's main (and of TestMain where a test starts commands). In a guard process it does the guard's
// work and exits; in any other process it returns false at once.
func Main() bool {
	if len(os.Args) != 1 || os.Args[0] != processName || os.Getenv(marker) == "" {
		return false
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "waterclock-guard:", err)
		os.Exit(1)
	}
	os.Exit(0)
	return false
}

// serve is the guard's life: one start order, one command, one tree.
func serve() error {
	// The kernel ties the command's death signal to the thread that forked it, not to the process.
	runtime.LockOSThread()
	// Handled and dropped, not ignored: the command would inherit ignored signals.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	childEnded := make(chan os.Signal, 1)
	signal.Notify(childEnded, syscall.SIGCHLD)

	syscall.CloseOnExec(ordersFD)
	syscall.CloseOnExec(reportsFD)
	orders, reports := os.NewFile(ordersFD, "orders"), os.NewFile(reportsFD, "reports")
	decoder, encoder := gob.NewDecoder(orders), gob.NewEncoder(reports)
	if err := adoptDescendants(); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	alarm, err := newAlarm()
	if err != nil {
		return fmt.Errorf("make the lease's alarm: %w", err)
	}

	var first order
	if err := decoder.Decode(&first); err != nil || first.Start == nil {
		return fmt.Errorf("read the start order: %w", err)
	}
	if now() >= first.Until {
		return encoder.Encode(report{LeaseOver: true})
	}
	pid, err := fork(*first.Start)
	if err != nil {
		return encoder.Encode(report{Errno: errnoOf(err)})
	}
	letGo()
	k := &keeper{pid: pid, alarm: alarm}
	k.extend(first.Until)
	// The executor may be gone already; the closed pipe tells.
	_ = encoder.Encode(report{Started: pid})

	incoming := make(chan order)
	go func() {
		defer close(incoming)
		for {
			var o order
			if decoder.Decode(&o) != nil {
				return
			}
			incoming <- o
		}
	}()
	exit := k.keep(incoming, childEnded)
	return encoder.Encode(report{Exit: &exit})
}

// fork starts the command on the guard's own standard streams.
func fork(s startOrder) (int, error) {
	restore := preferAsOOMVictim()
	defer restore()
	return syscall.ForkExec(s.Path, s.Argv, &syscall.ProcAttr{
		Dir: s.Dir, Env: s.Env, Files: []uintptr{0, 1, 2}, Sys: commandAttributes(),
	})
}

// letGo drops the guard's hold on the command's pipes and on folders that somebody may want to unmount: the ends of the pipes must be seen
// when the command closes them.
func letGo() {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	for fd := range 3 {
		if err == nil {
			err = unix.Dup2(int(null.Fd()), fd)
		}
		if err != nil {
			_ = unix.Close(fd)
		}
	}
	_ = os.Chdir("/")
}

func errnoOf(err error) int {
	if errno, ok := err.(syscall.Errno); ok {
		return int(errno)
	}
	return int(syscall.EINVAL)
}
