package guard

import "time"

// The guard's file descriptors, counted after standard input, output and error.
const (
	ordersFD  = 3
	reportsFD = 4
)

// order is one message of the executor to the guard. The first one has Start and Until; later ones have one of Until, Stop and Kill.
// Both sides are the same binary (/proc/self/exe), so gob needs no versions; it keeps arguments that are not UTF-8 as they are.
type order struct {
	Start *startOrder
	// Until is where the lease now ends.
	Until instant
	// Stop asks for SIGTERM now and SIGKILL after Grace.
	Stop  bool
	Grace time.Duration
	// Kill asks for SIGKILL now.
	Kill bool
}

// startOrder travels in the pipe and not in the guard's own arguments and environment, where other users of the machine could read it.
type startOrder struct {
	Path string
	Argv []string
	Env  []string
	Dir  string
}

// report is one message of the guard to the executor: first Started or one of the failures, then, after Started, Exit.
type report struct {
	// Started is the pid of the command.
	Started int
	// Errno is why the command could not be executed.
	Errno int
	// LeaseOver says that the lease ended before the start.
	LeaseOver bool
	Exit      *exitReport
}

type exitReport struct {
	Code, Signal         int
	Reason               Reason
	KilledAt             time.Time
	UserTime, SystemTime time.Duration
	Stragglers           int
}
