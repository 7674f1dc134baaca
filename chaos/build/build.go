// Package build makes the binaries of a fault run: a waterclock with its failpoints (package internal/failpoint), and a nats-server of the version that go.mod
// names, both with a wall clock that an environment variable sets wrong.
//
// The wrong clock is that of one machine: started with WATERCLOCK_CLOCK_SKEW=-30s, a process reads every wall time 30 s behind. Its monotonic clock is
// untouched, so timers, deadlines and durations are right, as they are on a machine whose clock was set wrong before the process began. It is done by
// compiling the standard library anew with another time.Now, made at build time from the one that is installed (go build -overlay), so nothing of it is in the
// product. That takes about a minute and a half of processor time once; then the build cache has it. TrueClock does without.
//
// The fault runs under chaos call it, and tests. It needs the go command, and to run within the module.
package build

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// SkewVariable is the environment variable by which a process that was built here has a wrong wall clock: how far ahead, as a Go duration. A process that
// cannot read it panics at its start.
const SkewVariable = "WATERCLOCK_CLOCK_SKEW"

// Option changes how something is built.
type Option func(*options)

type options struct{ trueClock bool }

// TrueClock leaves the clock alone, which is quicker to build.
func TrueClock() Option { return func(o *options) { o.trueClock = true } }

// Waterclock builds the product with its failpoints.
func Waterclock(ctx context.Context, out string, opts ...Option) error {
	return program(ctx, out, "github.com/waterclock-io/waterclock/cmd/waterclock", opts)
}

// NATSServer builds the server that the product embeds as a program of its own.
func NATSServer(ctx context.Context, out string, opts ...Option) error {
	return program(ctx, out, "github.com/nats-io/nats-server/v2", opts)
}

func program(ctx context.Context, out, pkg string, opts []Option) error {
	var o options
	for _, set := range opts {
		set(&o)
	}
	args := []string{"build", "-tags", "failpoints"}
	env := os.Environ()
	if !o.trueClock {
		overlay, remove, err := skewedTime(ctx)
		if err != nil {
			return fmt.Errorf("build %s: %w", pkg, err)
		}
		defer remove()
		// Everything is compiled anew: the quickest way. Without an overlay the flags of others share what is in the build cache.
		args = append(args, "-overlay", overlay, "-gcflags=all=-dwarf=false", "-ldflags=-s -w")
		env = append(env, "CGO_ENABLED=0")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", out, pkg)...) //nolint:gosec // our own arguments
	cmd.Env = env
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, text)
	}
	return nil
}
