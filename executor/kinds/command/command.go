// Package command is the kind "exec": a run is a command of the executor's machine.
//
// The command is an argument vector, never a shell string. It runs only where the executor was started with an allow-list that has it, under a guard process
// that kills it with everything it has started when the lease on the run is over, whatever has become of the executor. Its output is the log of the run; its
// exit code decides the outcome.
//
// It is no sandbox: a command may do what the executor's user may. cmd registers the handler; nothing else calls it.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterclock-io/waterclock/executor"
	"github.com/waterclock-io/waterclock/executor/guard"
	"github.com/waterclock-io/waterclock/job/fielderr"
)

// Kind is the name under which the handler is to be registered.
const Kind = "exec"

// DefaultGrace is how long a command has between SIGTERM and SIGKILL when the configuration does not say.
const DefaultGrace = 5 * time.Second

// maxGrace leaves the guard time to kill before the executor gives the handler up.
const maxGrace = executor.LeakAfter - 2*time.Second

// feedEvery is how often the guard hears how long the lease is.
const feedEvery = 300 * time.Millisecond

// Config says what the handler may run.
type Config struct {
	// Allow lists what may be executed, as absolute paths; AllowAll among them allows everything, for development. Empty refuses every run.
	//
	// A path allows the very file, and links that lead to it, which are then executed by its own name; what the path itself leads to is allowed only by this
	// name. So to allow one applet of busybox allows no other.
	Allow []string
	// Grace is how long a command that is to stop has between SIGTERM and SIGKILL: DefaultGrace if 0, 8 s at most. It is never longer than the lease.
	Grace time.Duration

	// lookupEnv is os.LookupEnv but in tests.
	lookupEnv func(string) (string, bool)
}

// AllowAll in Config.Allow allows every command.
const AllowAll = "*"

// Validate reports fields that would never do what they seem to.
func (c Config) Validate() error {
	for _, path := range c.Allow {
		if path != AllowAll && !strings.HasPrefix(path, "/") {
			return &fielderr.FieldError{Field: "allow", Given: path, Allowed: `absolute paths, or "*" for every command`}
		}
	}
	if c.Grace < 0 || c.Grace > maxGrace {
		return &fielderr.FieldError{Field: "grace", Given: c.Grace.String(), Allowed: "0 to " + maxGrace.String()}
	}
	return nil
}

// Handler returns the handler of the kind. The program's main must call guard.Main first.
//
// It succeeds with exit code 0. Any other code, and the end by a signal of somebody's (128 + its number), is a retriable error with reason "exit" and that
// code. A payload that is malformed or not allowed, and a command that cannot be started anywhere else either, is fatal.
func Handler(c Config) executor.Handler {
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	c.Grace = min(max(c.Grace, 0), maxGrace)
	c.Allow = slices.Clone(c.Allow)
	for i, path := range c.Allow {
		c.Allow[i] = filepath.Clean(path)
	}
	if c.lookupEnv == nil {
		c.lookupEnv = os.LookupEnv
	}
	return func(ctx context.Context, run *executor.Run) error {
		p, err := decode(run.Payload, c.allowsAll())
		if err != nil {
			return executor.Fatal(err)
		}
		path, err := c.resolve(p)
		if err != nil {
			return executor.Fatal(err)
		}
		cmd := guard.Command{
			Argv: append([]string{path}, p.Argv[1:]...), Env: c.environment(p, run), Dir: p.Dir,
			Stdout: run.Stdout(), Stderr: run.Stderr(),
		}
		if p.Stdin != "" {
			cmd.Stdin = strings.NewReader(p.Stdin)
		}
		return supervise(ctx, cmd, run, c.Grace)
	}
}

// lease is what supervise needs of a run.
type lease interface {
	LeaseUntil() time.Time
	Stderr() io.Writer
}

// supervise runs a command to its end, and stops it when ctx ends.
func supervise(ctx context.Context, cmd guard.Command, l lease, grace time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// The end of ctx must not kill at once: most of its causes leave time for SIGTERM.
	p, err := guard.Start(context.WithoutCancel(ctx), cmd, l.LeaseUntil())
	if err != nil {
		var start *guard.StartError
		if errors.As(err, &start) && !start.Retriable() {
			return executor.Fatal(err)
		}
		return err
	}
	done := make(chan struct{})
	var exit guard.Exit
	go func() {
		defer close(done)
		exit, err = p.Wait()
	}()
	feed := time.NewTicker(feedEvery)
	defer feed.Stop()
	ended := ctx.Done()
	for {
		select {
		case <-done:
			return judge(ctx, exit, err, l.Stderr())
		case <-feed.C:
			// Also while it stops: the grace is good for nothing after the lease. An error means that it has ended.
			_ = p.Feed(l.LeaseUntil())
		case <-ended:
			ended = nil
			if errors.Is(context.Cause(ctx), executor.ErrLeaseLost) {
				p.Kill()
				continue
			}
			p.Stop(max(min(grace, time.Until(l.LeaseUntil())), 0))
		}
	}
}

// judge says what the end of a command means for its attempt.
func judge(ctx context.Context, exit guard.Exit, err error, stderr io.Writer) error {
	switch exit.Reason {
	case guard.ReasonExited:
	case guard.ReasonStopped:
		// Whatever it returned, it was not let finish.
		return fmt.Errorf("stopped: %w", context.Cause(ctx))
	case guard.ReasonFenced:
		return executor.WithCode(fmt.Errorf("killed by its guard: %w", executor.ErrLeaseLost), "lost", 0)
	default:
		return errors.Join(fmt.Errorf("killed: %s", exit.Reason), err)
	}
	if err != nil {
		// The work itself is done, and its exit code is known.
		fmt.Fprintf(stderr, "waterclock: output is incomplete: %v\n", err) // nowhere else to say it
	}
	switch {
	case exit.Signal != "":
		return executor.WithCode(errors.New("killed by "+exit.Signal), "exit", 128+int32(unix.SignalNum(exit.Signal))) //nolint:gosec // below 65
	case exit.Code != 0:
		return executor.WithCode(fmt.Errorf("exit code %d", exit.Code), "exit", int32(exit.Code)) //nolint:gosec // a byte
	}
	return nil
}
