// Package guard runs one command under a small process of its own, the guard, which kills the command with everything it has started
// when it is no longer fed. That is how an executor fences its work even while the executor itself is stopped, hung or dead:
//
//	executor ──orders (fd 3)──▶ guard ──fork──▶ command, in a session of its own
//	         ◀─reports (fd 4)──
//
// The guard is the same binary, executed again; [Main] must be the first thing that the program's main calls. Orders carry the instant at
// which the lease ends, on a clock that all processes of the machine share and that goes on while the machine sleeps: time an order
// spent waiting in the pipe, and a freeze of the whole machine, never lengthen a lease. A closed pipe means that the executor is gone.
//
// On Linux the guard is the subreaper of the tree: descendants that left the command's process group (setsid, double fork) come back to it
// and are killed too. The guard reports only when no process of the tree is left, so [Process.Wait] returning means that nothing of the
// run still works, neither after a kill nor after a normal end. If the guard itself is killed, the command gets SIGKILL from the kernel and its process
// group from the executor; descendants that had left the group are then not found any more. Elsewhere (macOS) only the process group is
// killed, and the command outlives a guard that was killed alone unless the executor is there to kill its group.
//
// The package knows nothing of runs, leases from NATS or output formats, never calls a shell and never interprets an argument. The executor's
// command kind calls it.
package guard

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"
)

// Command says what is to run. Nothing in it is interpreted or added to.
type Command struct {
	// Argv is the argument vector. Argv[0] is a path, absolute or relative to Dir, or, without a slash, a name that is looked up in the
	// absolute folders of the PATH in Env (never in the executor's own PATH).
	Argv []string
	// Env is the whole environment of the command, as KEY=value; nothing is inherited.
	Env []string
	// Dir is the working directory; empty means the executor's.
	Dir string
	// Stdin is read until its end or the command's, whichever is first; nil means the null device. A Read that is still blocked when the
	// command ends is left behind.
	Stdin io.Reader
	// Stdout and Stderr take the output, each from one goroutine; nil means the null device. When a writer fails, the command's pipe is
	// closed and Wait returns the writer's error.
	Stdout, Stderr io.Writer
}

// Reason says why a command ended.
type Reason string

// The reasons; a run may be reported as its own success or failure only after ReasonExited.
const (
	// ReasonExited: by itself.
	ReasonExited Reason = "exited"
	// ReasonStopped: after Stop, Kill, or the end of the context; Exit.KilledAt is zero if SIGTERM was enough.
	ReasonStopped Reason = "stopped"
	// ReasonFenced: the lease ran out without being fed.
	ReasonFenced Reason = "fenced"
	// ReasonOrphaned: the executor went away, or its pipe broke.
	ReasonOrphaned Reason = "orphaned"
	// ReasonGuardLost: the guard died before it could report; how the command ended is not known, only that it was killed.
	ReasonGuardLost Reason = "guard lost"
)

// Exit is how a command ended.
type Exit struct {
	// Code is the exit code, -1 if a signal ended the command or the guard was lost.
	Code int
	// Signal is the name of the signal that ended the command, such as "SIGKILL"; empty if it exited.
	Signal string
	// Reason is why it ended.
	Reason Reason
	// KilledAt is when the guard sent SIGKILL to the tree while the command was still running; zero if it did not.
	KilledAt time.Time
	// UserTime and SystemTime are the CPU time of the tree, as far as its processes were waited for.
	UserTime, SystemTime time.Duration
	// Stragglers is the number of processes that outlived the command and were killed for it.
	Stragglers int
}

// ErrEnded is returned by Feed when the command has ended or its guard can no longer be reached.
var ErrEnded = errors.New("the command has ended")

// errLeaseOver is why a command was not started at all.
var errLeaseOver = errors.New("the lease was over before the command could start")

var (
	errNoMain   = errors.New("this process is a guard that did not know it: the program's main must call guard.Main first")
	errNoReport = errors.New("no report from the guard process")
)

// A StartError says that the command never ran.
type StartError struct {
	// Field is what is at fault: "argv", "argv[0]", "env" or "dir" of the Command, "until", or "guard" for the guard process itself.
	Field string
	// Value is what was given, if that may be shown; the environment never is.
	Value string
	// Err is the cause, often a syscall.Errno or one of the os errors.
	Err error
}

func (e *StartError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("start command: %s: %v", e.Field, e.Err)
	}
	return fmt.Sprintf("start command: %s %q: %v", e.Field, e.Value, e.Err)
}

func (e *StartError) Unwrap() error { return e.Err }

// Retriable reports whether the same command may start at another time or place: true for a machine that is short of something and for
// trouble with the guard itself, false for a command that is wrong.
func (e *StartError) Retriable() bool {
	if e.Field == "guard" || errors.Is(e.Err, errLeaseOver) {
		return true
	}
	for _, errno := range []syscall.Errno{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ETXTBSY, syscall.EINTR, syscall.EIO} {
		if errors.Is(e.Err, errno) {
			return true
		}
	}
	return false
}
