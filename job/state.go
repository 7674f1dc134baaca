package job

import "fmt"

// Step is where a run stands. Its numbers are stored and sent: never reuse one.
type Step int32

// The steps of a run.
const (
	StepNone       Step = 0 // not made yet
	StepWaiting    Step = 1 // something must come first
	StepDue        Step = 2 // waits for its time, and then for its planner
	StepDispatched Step = 3 // handed out to JetStream
	StepRunning    Step = 4 // an executor has said that it works on it
	StepCancelling Step = 5 // asked to stop
	StepSucceeded  Step = 6
	StepFailed     Step = 7
	StepCancelled  Step = 8
	StepSkipped    Step = 9
)

var stepNames = map[Step]string{
	StepNone: "–", StepWaiting: "waiting", StepDue: "due", StepDispatched: "dispatched", StepRunning: "running",
	StepCancelling: "cancelling", StepSucceeded: "succeeded", StepFailed: "failed", StepCancelled: "cancelled", StepSkipped: "skipped",
}

// String returns the name of the step.
func (s Step) String() string {
	if n, ok := stepNames[s]; ok {
		return n
	}
	return fmt.Sprintf("step(%d)", int32(s))
}

// Terminal tells whether the run has ended: nothing changes it any more.
func (s Step) Terminal() bool { return s >= StepSucceeded && s <= StepSkipped }

// InFlight tells whether the run has been handed out and has not ended.
func (s Step) InFlight() bool { return s >= StepDispatched && s <= StepCancelling }

// RunState is what a user sees of a run; it follows from its step and attempt.
type RunState string

// StateOf returns what a user sees of a run in a step at an attempt.
func StateOf(s Step, attempt int32) RunState {
	switch s {
	case StepDue:
		if attempt > 1 {
			return "retrying"
		}
		return "scheduled"
	case StepDispatched:
		return "queued"
	default:
		return RunState(s.String())
	}
}

// Event is what happens to a run. Whether a failure leaves attempts is settled before the table is asked (see Settle).
type Event string

// The events.
const (
	EventSubmit    Event = "submit"    // made by submit, recurrence or trigger, free to run
	EventHold      Event = "hold"      // made while, or moved because, something must come first
	EventClear     Event = "clear"     // what it waited for has come
	EventDispatch  Event = "dispatch"  // the guard held: marked, and about to be published
	EventSkip      Event = "skip"      // its policy says not to run it
	EventStarted   Event = "started"   // an executor works on it
	EventSucceeded Event = "succeeded" // the work is done
	EventRetry     Event = "retry"     // failed, lost or timed out with attempts left
	EventFailed    Event = "failed"    // failed with none left, fatally, or past its deadline
	EventRequeue   Event = "requeue"   // released, snoozed, or lost before it started: same attempt
	EventCancel    Event = "cancel"    // asked to end, by cancel or delete
	EventStopped   Event = "stopped"   // the executor confirms that it stopped because it was told to
)

// Transition is one line of the state machine.
type Transition struct {
	From  Step
	Event Event
	To    Step
	Note  string
}

// Transitions is the state machine of a run, whole: what is not in it is refused. The table of docs/architecture.md is made from it.
var Transitions = []Transition{
	{StepNone, EventSubmit, StepDue, ""},
	{StepNone, EventHold, StepWaiting, "the job is paused"},

	{StepWaiting, EventClear, StepDue, ""},
	{StepWaiting, EventSkip, StepSkipped, "reason"},
	{StepWaiting, EventCancel, StepCancelled, ""},

	{StepDue, EventDispatch, StepDispatched, "dispatch + 1"},
	{StepDue, EventHold, StepWaiting, "the job is paused"},
	{StepDue, EventSkip, StepSkipped, "reason: missed, overlap, start_deadline, paused"},
	{StepDue, EventFailed, StepFailed, "total deadline over"},
	{StepDue, EventCancel, StepCancelled, ""},

	{StepDispatched, EventStarted, StepRunning, ""},
	{StepDispatched, EventSucceeded, StepSucceeded, "short runs report only their end"},
	{StepDispatched, EventRetry, StepDue, "after back-off, attempt + 1"},
	{StepDispatched, EventFailed, StepFailed, "reason"},
	{StepDispatched, EventRequeue, StepDue, "same attempt"},
	{StepDispatched, EventCancel, StepCancelled, "its message is deleted, every executor is told"},
	{StepDispatched, EventStopped, StepDue, "stopped without a cancel in SQL: same attempt"},

	{StepRunning, EventStarted, StepRunning, "said again"},
	{StepRunning, EventSucceeded, StepSucceeded, ""},
	{StepRunning, EventRetry, StepDue, "after back-off, attempt + 1"},
	{StepRunning, EventFailed, StepFailed, "reason"},
	{StepRunning, EventRequeue, StepDue, "released by a drain or snoozed: same attempt"},
	{StepRunning, EventCancel, StepCancelling, ""},
	{StepRunning, EventStopped, StepDue, "stopped without a cancel in SQL: same attempt"},

	{StepCancelling, EventStarted, StepCancelling, "answered with kill"},
	{StepCancelling, EventSucceeded, StepSucceeded, "it was quicker"},
	{StepCancelling, EventRetry, StepCancelled, ""},
	{StepCancelling, EventFailed, StepCancelled, ""},
	{StepCancelling, EventRequeue, StepCancelled, ""},
	{StepCancelling, EventCancel, StepCancelling, "said again"},
	{StepCancelling, EventStopped, StepCancelled, ""},
}

type stepEvent struct {
	step  Step
	event Event
}

var transitionIndex = func() map[stepEvent]Step {
	m := make(map[stepEvent]Step, len(Transitions))
	for _, t := range Transitions {
		m[stepEvent{t.From, t.Event}] = t.To
	}
	return m
}()

// Next returns the step that follows, and false where the state machine refuses the event.
func Next(from Step, event Event) (Step, bool) {
	to, ok := transitionIndex[stepEvent{from, event}]
	return to, ok
}
