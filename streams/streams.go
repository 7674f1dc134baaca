// Package streams is the NATS JetStream side of Waterclock: the topology of its streams, the subjects, the sealed tickets, the embedded server, the publish
// window, and the pull that honours priority.
//
// It carries messages and decides nothing: what is due, what is run and what is recorded is the business of planner, executor and status. SQL is the truth;
// every stream here may be lost without losing a run.
package streams

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
)

// Names of the streams. That of RUNS carries its generation, so that nothing said about an older one can touch the one that took its place.
const (
	runsPrefix   = RunsStream + "-"
	RunsStream   = "RUNS" // as SQL knows it; the stream itself is called RUNS-<generation>
	StatusStream = "STATUS"
	SubmitStream = "SUBMIT"
	LiveStream   = "LIVE"
	DeadStream   = "DEAD"
)

// RecorderConsumer is the durable consumer that all recorders share.
const RecorderConsumer = "recorder"

// Subjects that carry no token of their own.
const (
	runSubjects      = "run.>"
	statusSubjects   = "status.>"
	EnqueueSubjects  = "enqueue.*" // publish-only submits, kept in SUBMIT
	SubmitSubjects   = "submit.*"  // submits by request and reply, kept nowhere
	liveSubjects     = "live.>"
	deadSubjects     = "dead.>"
	RecordedSubject  = "recorded"
	RollCallSubject  = "rollcall" // asks every executor for a heartbeat at once
	LeftSubject      = "left"     // a planner has given its shards away
	heartbeatPattern = "hb.*"
	controlAll       = "ctl._all"
)

// StatusSubject is where a role publishes its StatusBatches.
func StatusSubject(sender string) string { return "status." + sender }

// DeadSubject is where a message of the given origin (submit, status) goes that cannot be taken; namespace may be empty.
func DeadSubject(origin, namespace string) string {
	if namespace == "" {
		return "dead." + origin
	}
	return "dead." + origin + "." + namespace
}

// LiveSubject is where the live log of a run goes; its progress goes one token further down, where the last word is found without reading the log.
func LiveSubject(namespace string, run uuid.UUID) string {
	return "live." + namespace + "." + run.String()
}

func progressSubject(namespace string, run uuid.UUID) string {
	return LiveSubject(namespace, run) + ".progress"
}

func wakeSubject(shard int32) string        { return "wake." + strconv.Itoa(int(shard)) }
func heartbeatSubject(id string) string     { return "hb." + id }
func controlSubject(executor string) string { return "ctl." + executor }

// Lane is one road from planners to executors: a queue at a priority. Namespace is job.SharedNamespace where all namespaces share the queue.
type Lane struct {
	Namespace string
	Queue     string
	Priority  job.Priority
}

// String returns the lane as logs and metrics show it.
func (l Lane) String() string { return l.Namespace + "/" + l.Queue + "/" + l.Priority.String() }

func (l Lane) filter() string {
	return "run." + l.Namespace + "." + l.Queue + "." + l.Priority.String() + ".>"
}

// consumerPrefix is what the durable names of the lane's consumers begin with: there is one at a time, and each that is made anew has a name of its own (see
// laneConsumer). Tokens hold neither dots nor tildes, so the name is unambiguous.
func (l Lane) consumerPrefix() string {
	return l.Namespace + "~" + l.Queue + "~" + l.Priority.String() + "~"
}

// RunSubject names one hand-over: MaxMsgsPerSubject 1 makes the stream refuse it a second time while the first is there.
func RunSubject(l Lane, run uuid.UUID, dispatch int64) string {
	b := make([]byte, 0, 64+len(l.Namespace)+len(l.Queue))
	b = append(b, "run."...)
	b = append(b, l.Namespace...)
	b = append(b, '.')
	b = append(b, l.Queue...)
	b = append(b, '.')
	b = append(b, l.Priority.String()...)
	b = append(b, '.')
	b = append(b, run.String()...)
	b = append(b, '.')
	b = strconv.AppendInt(b, dispatch, 10)
	return string(b)
}

// ErrSubject is the error of a subject that is not of Waterclock's making.
var ErrSubject = errors.New("subject is malformed")

// ParseRunSubject is the inverse of RunSubject.
func ParseRunSubject(subject string) (Lane, uuid.UUID, int64, error) {
	bad := func() (Lane, uuid.UUID, int64, error) {
		return Lane{}, uuid.Nil, 0, fmt.Errorf("%w: %q; allowed: run.<namespace>.<queue>.<priority>.<run id>.<dispatch>", ErrSubject, subject)
	}
	tok := strings.Split(subject, ".")
	if len(tok) != 6 || tok[0] != "run" {
		return bad()
	}
	p, ok := parsePriority(tok[3])
	if !ok {
		return bad()
	}
	run, err := uuid.Parse(tok[4])
	if err != nil {
		return bad()
	}
	dispatch, err := strconv.ParseInt(tok[5], 10, 64)
	if err != nil || dispatch < 1 {
		return bad()
	}
	return Lane{Namespace: tok[1], Queue: tok[2], Priority: p}, run, dispatch, nil
}

// lanePriority reads only the priority out of a run subject; it is on the path of every delivery.
func lanePriority(subject string) (job.Priority, bool) {
	for i, dots := 0, 0; i < len(subject); i++ {
		if subject[i] != '.' {
			continue
		}
		if dots++; dots == 3 {
			rest := subject[i+1:]
			if end := strings.IndexByte(rest, '.'); end > 0 {
				return parsePriority(rest[:end])
			}
			return 0, false
		}
	}
	return 0, false
}

func parsePriority(s string) (job.Priority, bool) {
	for _, p := range job.Priorities {
		if p.String() == s {
			return p, true
		}
	}
	return 0, false
}

// NamespaceOf returns the last token of a submit or enqueue subject.
func NamespaceOf(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }
