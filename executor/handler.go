package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Handler works on one attempt of a run. It returns nil where the work is done. What it returns else decides what follows: an error as it is may succeed
// next time and is retried by the job's policy; Fatal, RetryAfter and Snooze say otherwise.
//
// The context ends when the attempt must stop; context.Cause tells why (ErrTimeout, ErrDeadline, ErrCancelled, ErrLeaseLost, ErrDraining). After that nothing
// the handler returns may take effect, so a handler that does not stop only wastes its slot.
type Handler func(ctx context.Context, run *Run) error

// The causes with which the context of an attempt ends.
var (
	ErrTimeout   = errors.New("the attempt's time-out is over")
	ErrDeadline  = errors.New("the run's total deadline is over")
	ErrCancelled = errors.New("the run was cancelled")
	// ErrLeaseLost: this executor could not confirm its lease in time, or another took the run. Another attempt may have begun.
	ErrLeaseLost = errors.New("the lease on the run is lost")
	ErrDraining  = errors.New("the executor is shutting down")
)

// outcome is an error that says what is to follow.
type outcome struct {
	err    error
	fatal  bool
	snooze bool
	delay  time.Duration
	reason string
	code   int32
}

func (o *outcome) Error() string { return o.err.Error() }
func (o *outcome) Unwrap() error { return o.err }

// Fatal marks an error that no further attempt can mend: the run fails at once. Like the marks below it leaves nil as it is.
func Fatal(err error) error {
	if err == nil {
		return nil
	}
	o := asOutcome(err)
	o.fatal = true
	return o
}

// RetryAfter marks an error after which the next attempt shall not begin before a delay, in place of the back-off of the job's policy.
func RetryAfter(err error, delay time.Duration) error {
	if err == nil {
		return nil
	}
	o := asOutcome(err)
	o.delay = max(delay, time.Microsecond)
	return o
}

// WithCode gives an error the handler's own code, such as an exit code or an HTTP status, and a one-word reason for history.
func WithCode(err error, reason string, code int32) error {
	if err == nil {
		return nil
	}
	o := asOutcome(err)
	o.reason, o.code = reason, code
	return o
}

// Snooze is returned by a handler that wants to be called again after a delay. It costs no attempt.
func Snooze(delay time.Duration) error {
	return &outcome{err: fmt.Errorf("snoozed for %s", delay), snooze: true, delay: max(delay, time.Microsecond)}
}

// Outcome is what the executor makes of a handler's error.
type Outcome struct {
	// Fatal: no further attempt follows.
	Fatal bool
	// Snooze: the handler asked to be called again.
	Snooze bool
	// Delay before the next attempt; 0 leaves it to the policy.
	Delay time.Duration
	// Reason and Code are those of WithCode.
	Reason string
	Code   int32
}

// OutcomeOf tells what an error says beyond its words, so that handlers can be tested without an executor.
func OutcomeOf(err error) Outcome {
	var o *outcome
	if !errors.As(err, &o) {
		return Outcome{}
	}
	return Outcome{Fatal: o.fatal, Snooze: o.snooze, Delay: o.delay, Reason: o.reason, Code: o.code}
}

// asOutcome returns a copy that may be changed.
func asOutcome(err error) *outcome {
	var o *outcome
	if errors.As(err, &o) {
		c := *o
		c.err = err
		return &c
	}
	return &outcome{err: err}
}

// JSON makes a Handler of a function with a typed payload and result, both as JSON. A payload that does not decode is fatal: no attempt can mend it.
func JSON[P, R any](f func(ctx context.Context, payload P) (R, error)) Handler {
	return func(ctx context.Context, run *Run) error {
		var p P
		if len(run.Payload) > 0 {
			if err := json.Unmarshal(run.Payload, &p); err != nil {
				return Fatal(fmt.Errorf("decode payload of kind %s: %w", run.Kind, err))
			}
		}
		r, err := f(ctx, p)
		if err != nil {
			return err
		}
		b, err := json.Marshal(r)
		if err != nil {
			return Fatal(fmt.Errorf("encode result of kind %s: %w", run.Kind, err))
		}
		run.SetResult(b)
		return nil
	}
}
