package harness

import (
	"context"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/chaos/fault"
)

// world is what faults are brought upon: the single host, or a cluster of processes.
type world interface {
	start(ctx context.Context) error
	// stop ends every process, gently at first; the error says what did not end, or what is left of it.
	stop(ctx context.Context) error
	// close ends what is still there, however the run went.
	close() error

	faults() []fault.Fault
	// unavailable are faults that this machine cannot bring, each with its reason.
	unavailable() []string

	apis() []string
	natsURL() string
	// keys are API keys by namespace; nil where none is needed.
	keys() map[string]string
	// slots are how many runs its executors may work on at once, by the queue that they serve: "default", "namespace/queue".
	slots() map[string]int
	// murders is how many jobs may kill the executor that runs them.
	murders() int
	// storeURL is where the truth can be read beside the processes: sqlite:PATH or postgres://….
	storeURL() string
	// logs are the files that the processes write.
	logs() []string
	note(format string, args ...any)
}

// window is the time in which a fault lasted, until what it hit was up again.
type window struct {
	checker.Window
	loses bool // as of the fault
}
