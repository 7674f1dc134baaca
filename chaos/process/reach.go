package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/waterclock-io/waterclock/internal/failpoint"
)

const (
	// ReachLimit is how long a process that is to kill itself at a failpoint is waited for once it is up.
	ReachLimit = 8 * time.Second
	// provokeEvery is how often that process is helped to get there. It is in no step with what planners do each second, or the same one would always be the first.
	provokeEvery = 2300 * time.Millisecond
)

// Reach starts the process so that it kills itself at a pass of a failpoint, and tells whether it did. Where it does not come there it is ended in order, within
// endLimit: some places are on the way out. A provocation that is not nil is called once the process is up, and again until it has died. Afterwards the process
// does not run, unless ctx has ended. That it ended by itself, and not there, is an error.
func (p *Process) Reach(ctx context.Context, point string, pass int, endLimit time.Duration, provocation func(context.Context) error) (bool, error) {
	err := p.Start(ctx, fmt.Sprintf("%s=%s=kill@%d", failpoint.Variable, point, pass))
	if err != nil && !errors.Is(err, ErrEnded) { // it may come to the place before it is up
		return false, err
	}
	asked, err := p.awaitEnd(ctx, endLimit, provocation)
	if err != nil {
		return false, err
	}
	if p.Killed() && p.Said(failpoint.Struck(point)) {
		return true, nil
	}
	if !asked && !p.Killed() { // who was killed elsewhere is an executor whose job did it
		return false, fmt.Errorf("%s ended by itself (%s) before it reached %s (see %s)", p.o.Name, p.Fate(), point, p.log.Name())
	}
	return false, nil
}

// awaitEnd returns when the process has ended, and whether it was asked to.
func (p *Process) awaitEnd(ctx context.Context, endLimit time.Duration, provocation func(context.Context) error) (asked bool, err error) {
	limit := time.NewTimer(ReachLimit)
	defer limit.Stop()
	again := time.NewTicker(provokeEvery)
	defer again.Stop()
	for {
		if provocation != nil && p.Running() {
			if err := provocation(ctx); err != nil {
				return false, err
			}
		}
		select {
		case <-p.Ended():
			return false, nil
		case <-limit.C:
			err := p.Terminate(endLimit)
			if errors.Is(err, os.ErrProcessDone) {
				return false, nil
			}
			return true, err
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-again.C:
		}
	}
}
