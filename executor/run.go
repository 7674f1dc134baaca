package executor

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// Run is what a handler gets to know of its run.
type Run struct {
	JobID     uuid.UUID
	ID        uuid.UUID
	Namespace string
	Name      string // of the job; may be empty
	Kind      string
	Queue     string
	Priority  string
	Payload   []byte
	Labels    map[string]string

	// Attempt counts from 1 to MaxAttempts.
	Attempt     int32
	MaxAttempts int32
	// Dispatch is the fencing token: it grows with every hand-over of the run. A system that remembers the highest one it has seen can refuse the writes of
	// an executor that was taken for dead and is not.
	Dispatch int64
	// ScheduledAt is the nominal time of the run; Civil the same on the wall clock of its schedule's zone, empty for one-time jobs.
	ScheduledAt time.Time
	Civil       string

	a *attempt
}

// IdempotencyKey is the same for all attempts of a run and differs between runs: what to give to systems that know such keys.
func (r *Run) IdempotencyKey() string { return r.ID.String() }

// SetResult keeps what the run returns; the last call counts. Up to MaxInlineResult it is kept in history, beyond that in the blob store.
func (r *Run) SetResult(b []byte) { r.a.result.Store(&b) }

// Progress says how far the work is, from 0 to 1, with a few words. It is shown to who watches, and may be called often: only the latest is sent, at
// most four times a second.
func (r *Run) Progress(fraction float64, note string) { r.a.progress(fraction, note) }

// Stdout is the output stream of the run's log. What is written can be read while the run goes on, and is kept with its history.
func (r *Run) Stdout() io.Writer { return r.a.log().Stdout() }

// Stderr is the error stream of the run's log.
func (r *Run) Stderr() io.Writer { return r.a.log().Stderr() }

// LeaseUntil is the moment at which this executor stops the attempt unless it can confirm its lease before. It moves as the attempt goes on.
func (r *Run) LeaseUntil() time.Time { return r.a.fenceAt() }

type runKey struct{}

// FromContext returns the run that a handler's context belongs to.
func FromContext(ctx context.Context) (*Run, bool) {
	r, ok := ctx.Value(runKey{}).(*Run)
	return r, ok
}

// atomicTime is a monotonic moment that several goroutines read and write, as nanoseconds since the process began.
type atomicTime struct{ v atomic.Int64 }

var processStart = time.Now()

func (t *atomicTime) store(at time.Time) { t.v.Store(int64(at.Sub(processStart))) }
func (t *atomicTime) load() time.Time    { return processStart.Add(time.Duration(t.v.Load())) }
