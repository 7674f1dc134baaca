// Package job is the domain of Waterclock: jobs, schedules, runs, the state machine and the policies that decide what becomes of a run.
// It does no I/O and knows neither SQL, NATS nor HTTP; every other package builds on it.
package job

import (
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job/schedule"
)

// Limits of what a job may carry.
const (
	// MaxPayload is the largest payload of a job, in bytes. Larger inputs belong in a blob store, with their address as the payload.
	MaxPayload = 256 << 10
	// SharedNamespace is the namespace token of queues that all namespaces share.
	SharedNamespace = "_"
	// DefaultQueue is the queue of jobs that name none; it is shared.
	DefaultQueue = "default"
	// DefaultNamespace is the namespace of callers on loopback that show no key.
	DefaultNamespace = "default"
)

// Defaults of a Spec.
const (
	DefaultMaxAttempts    = 3
	DefaultInitialBackoff = time.Second
	DefaultMaxBackoff     = time.Hour
	DefaultMultiplier     = 2.0
	DefaultAttemptTimeout = time.Hour
)

// Priority orders the runs of a queue that are due: a lower value goes first.
type Priority int32

// The priorities, most urgent first.
const (
	Critical Priority = iota + 1
	High
	Normal
	Low
)

// Priorities lists every priority, most urgent first.
var Priorities = [...]Priority{Critical, High, Normal, Low}

// String returns the name that subjects, columns and flags carry.
func (p Priority) String() string {
	switch p {
	case Critical:
		return "critical"
	case High:
		return "high"
	case Normal:
		return "normal"
	case Low:
		return "low"
	default:
		return "unknown"
	}
}

// State is the state of a job, as opposed to the Step of a run.
type State string

// The states that a job is stored with. A one-time job stays Active in its row; that it is completed follows from its having no timer.
const (
	Active    State = "active"
	Paused    State = "paused"
	Completed State = "completed"
	Deleted   State = "deleted"
)

// CatchUp says what becomes of occurrences that nobody could start in time.
type CatchUp string

// The catch-up policies.
const (
	CatchUpLatest CatchUp = "latest" // run the latest missed one, skip the others
	CatchUpAll    CatchUp = "all"    // run every missed one, oldest first
	CatchUpNone   CatchUp = "none"   // run none that is later than CatchUpGrace
)

// CatchUpGrace is how late an occurrence may be before CatchUpNone calls it missed.
const CatchUpGrace = time.Minute

// Overlap says what becomes of an occurrence that falls due while an earlier run of its job has not ended.
type Overlap string

// The overlap policies.
const (
	OverlapForbid Overlap = "forbid" // skip the later one
	OverlapAllow  Overlap = "allow"  // run them side by side
)

// Spec is what the owner of a job chooses beside its name, kind, queue and priority. Zero fields mean the defaults.
type Spec struct {
	Schedule       schedule.Schedule `json:"schedule"`
	Retry          RetryPolicy       `json:"retry,omitzero"`
	AttemptTimeout time.Duration     `json:"attempt_timeout,omitempty"`
	TotalDeadline  time.Duration     `json:"total_deadline,omitempty"`
	StartDeadline  time.Duration     `json:"start_deadline,omitempty"`
	CatchUp        CatchUp           `json:"catch_up,omitempty"`
	Overlap        Overlap           `json:"overlap,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
}

// Recurring tells whether the schedule may have more than one occurrence.
func (s *Spec) Recurring() bool { return s.Schedule.Kind != schedule.Once }

// Forbids tells whether a later occurrence is skipped while an earlier run of the job goes on.
func (s *Spec) Forbids() bool { return s.Recurring() && s.Overlap != OverlapAllow }

// Timeout returns how long an attempt may take.
func (s *Spec) Timeout() time.Duration {
	if s.AttemptTimeout > 0 {
		return s.AttemptTimeout
	}
	return DefaultAttemptTimeout
}

// Pause tells who holds a job, since when, and why.
type Pause struct {
	By   string
	At   time.Time
	Note string
}

// Job is a definition: what to run, when, and how much it matters.
type Job struct {
	ID             uuid.UUID
	Namespace      string
	Name           string
	Shard          int32
	Version        int64
	State          State
	Kind           string
	Queue          string
	QueueNamespace string // SharedNamespace, or Namespace where the queue is the namespace's own
	Priority       Priority
	Spec           Spec
	Payload        []byte
	BodyHash       []byte // of what an idempotency key must find unchanged; SHA-256
	DueAt          time.Time
	Pause          *Pause
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// DeadlineBase is the moment from which the deadlines of a run count: its nominal time, or the making of its job where that was later (a start in the past).
func (j *Job) DeadlineBase(nominal time.Time) time.Time {
	if nominal.Before(j.CreatedAt) {
		return j.CreatedAt
	}
	return nominal
}

// Origin tells why a run exists.
type Origin string

// The origins of a run.
const (
	FromSchedule Origin = "schedule"
	FromTrigger  Origin = "trigger"
)
