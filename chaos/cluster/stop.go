package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/waterclock-io/waterclock/chaos/process"
)

// Stop heals everything, ends the processes in order, kills those that do not end, and returns when none is left; what had to be killed, had ended by itself, or was
// left by others, is an error. Data is removed, logs stay. It may be called again, and returns the same.
func (c *Cluster) Stop(ctx context.Context) error {
	c.stopping.Do(func() { c.stopErr = c.stop(ctx) })
	return c.stopErr
}

func (c *Cluster) stop(ctx context.Context) error {
	var errs []error
	if c.unsupervised != nil {
		errs = append(errs, c.unsupervised(), c.missing())
	}
	for _, m := range c.members {
		m.heal()
	}
	if c.nats != nil {
		c.nats.heal()
	}
	for _, p := range c.Processes() {
		_ = p.Cont() // not running, at worst
	}
	limit := c.endLimit()
	if until, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(until)/2)
	}
	end := func(all ...*process.Process) error {
		var calls []func() error
		for _, p := range all {
			if p.Running() {
				calls = append(calls, func() error { return p.Terminate(limit) })
			}
		}
		return together(calls...)
	}
	// Who hands out first, who records last: what is still worked on gets its outcome into SQL.
	errs = append(errs, end(processesOf(c.of("api", "planner"))...), end(processesOf(c.of("executor"))...), end(processesOf(c.of("recorder"))...))
	if c.nats != nil {
		c.nats.admin.Close()
	}
	errs = append(errs, end(c.Processes()...), process.Sweep(c.o.Dir, c.o.AckWait+5*time.Second))
	for _, m := range c.members {
		errs = append(errs, m.close())
	}
	if c.nats != nil {
		errs = append(errs, c.nats.close())
	}
	if c.sql != nil {
		errs = append(errs, c.sql.close())
	}
	return errors.Join(append(errs, os.RemoveAll(c.BlobDir()))...)
}

// missing tells which processes have ended by themselves. Each fault brings back what it hit, and an executor may have died of its work a moment ago.
func (c *Cluster) missing() error {
	var errs []error
	executors := processesOf(c.of("executor"))
	for _, p := range c.Processes() {
		murdered := slices.Contains(executors, p) && p.Killed()
		if !p.Running() && !murdered {
			errs = append(errs, fmt.Errorf("%s has ended by itself: %s (see %s)", p.Name(), p.Fate(), p.LogFile()))
		}
	}
	return errors.Join(errs...)
}

func processesOf(members []*member) []*process.Process {
	out := make([]*process.Process, len(members))
	for i, m := range members {
		out[i] = m.Process
	}
	return out
}
