// Package failpoint names the moments between two steps of the product at which a fault run lets a process die, and the places where it hands out an error
// that a machine would give only now and then.
//
// The roles pass them by a call of Here or Err; the fault runs under chaos arm them. It is not for tests within one process: what is armed kills the process.
//
// Points are armed by the environment variable WATERCLOCK_FAILPOINTS, several separated by semicolons:
//
//	planner.marked=kill@2     the second pass of this process kills it
//	planner.marked=kill:0.01  each pass kills it with this probability
//	store.retry=error:0.2     each pass gets an error with this probability; error@n works too
//	store.commit=lost:0.05    the same, for a commit that happens and whose answer is lost
//
// An unknown name or malformed text ends the process at its start, with exit code 2 and the reason on the standard error stream. There a process also
// says when a point strikes for the first time (see Struck): before it dies, or when it gets the error.
//
// What was published or acknowledged a moment before a point may still be in the buffer of the NATS client: of those points that speak of something as sent, one
// finds now a message that left and now one that did not.
//
// It is compiled out: all of this exists only behind the build tag "failpoints". Without it Here and Err are empty and inlined away, the variable is not
// read, and no name is in the binary, which TestCompiledOut shows.
package failpoint

// Variable is the environment variable that arms points.
const Variable = "WATERCLOCK_FAILPOINTS"

// The roles, as the processes of a cluster: "dev" is all of them.
const (
	roleAPI      = "api"
	rolePlanner  = "planner"
	roleRecorder = "recorder"
	roleExecutor = "executor"
)

// The ways into api, and what follows a commit there.
const (
	SubmitPrepared  = "submit.prepared"  // jobs are checked, nothing is stored
	SubmitCommitted = "submit.committed" // stored, nobody has been answered
	SubmitWaking    = "submit.waking"    // before planners are told
	SubmitWoken     = "submit.woken"     // planners are told, the caller not answered
	SubmitReplying  = "submit.replying"  // before the answer to a request over NATS
	EnqueueFetched  = "enqueue.fetched"  // messages of SUBMIT are taken
	EnqueueStored   = "enqueue.stored"   // the store has answered, nothing is acknowledged
	EnqueueAcked    = "enqueue.acked"    // acknowledged
	EnqueueBurying  = "enqueue.burying"  // before a refused message goes to the dead letters
	EnqueueBuried   = "enqueue.buried"   // there, not acknowledged
	ChangeDeciding  = "change.deciding"  // a cancel, pause, update, … holds its locks
	ChangeCommitted = "change.committed" // committed, nobody told
	ChangeWithdrawn = "change.withdrawn" // executors are told, planners not
	ChangeTold      = "change.told"      // all are told, the caller not answered
	WithdrawOrdered = "withdraw.ordered" // an executor is told to stop, its message not deleted
)

// StreamsGeneration is where SQL knows a new generation of RUNS that does not exist: whoever starts first makes it, a planner where it is lost.
const StreamsGeneration = "streams.generation"

// The planner.
const (
	PlannerRead       = "planner.read"       // due rows are read
	PlannerMarking    = "planner.marking"    // before the mark
	PlannerMarked     = "planner.marked"     // marked, not published
	PlannerPublishing = "planner.publishing" // its time has come
	PlannerPublished  = "planner.published"  // sent, its answer not awaited
	PlannerAnswered   = "planner.answered"   // RUNS has answered
	PlannerReporting  = "planner.reporting"  // before dispatched, skipped, … goes to STATUS
	PlannerReported   = "planner.reported"   // sent, its answer not awaited
	PlannerClaimed    = "planner.claimed"    // shards are its own in SQL, not planned yet
	PlannerOwned      = "planner.owned"      // planned, what is handed out not loaded
	PlannerLost       = "planner.lost"       // the watch has found a hand-over gone, not reported
	PlannerTakenBack  = "planner.taken_back" // a message is deleted, the run not reported as released
)

// The recorder.
const (
	RecorderFetched    = "recorder.fetched"    // a batch of STATUS is taken
	RecorderRecording  = "recorder.recording"  // before the transaction
	RecorderCommitting = "recorder.committing" // within it, before the commit
	RecorderCommitted  = "recorder.committed"  // committed, nobody told
	RecorderTold       = "recorder.told"       // planners and watchers are told, nothing acknowledged
	RecorderAcked      = "recorder.acked"      // all is acknowledged
	RecorderBurying    = "recorder.burying"    // before what cannot be applied goes to the dead letters
	RecorderBuried     = "recorder.buried"     // there, not acknowledged
)

// The executor.
const (
	ExecutorReceived  = "executor.received"   // a message has come
	ExecutorClaiming  = "executor.claiming"   // before started is published
	ExecutorClaimed   = "executor.claimed"    // started is in STATUS
	ExecutorStarting  = "executor.starting"   // before the handler is called
	ExecutorWorked    = "executor.worked"     // the handler has returned, nothing is said of it
	ExecutorLogged    = "executor.logged"     // the log is kept, the outcome not said
	ExecutorReporting = "executor.reporting"  // before outcomes go to STATUS
	ExecutorReported  = "executor.reported"   // sent, their answer not awaited
	ExecutorConfirmed = "executor.confirmed"  // in STATUS, the run not acknowledged
	ExecutorAcked     = "executor.acked"      // the run is acknowledged
	ExecutorLost      = "executor.lost"       // before a second delivery is answered
	ExecutorSettled   = "executor.settled"    // an older message is claimed, not given back
	ExecutorGivesBack = "executor.gives_back" // before deliveries without a slot are given back
	ExecutorFlushing  = "executor.flushing"   // drained, what it has to say not sent yet
)

// The stores.
const (
	// StoreRetry is where a statement fails because it has to be repeated: a serialization failure; in SQLite, which repeats nothing, a file that is busy.
	StoreRetry = "store.retry"
	// StoreCommit is where the answer to a commit gets lost that has happened.
	StoreCommit = "store.commit"
)

// Point is one of them.
type Point struct {
	Name string
	// Roles are the processes that pass it: api, planner, recorder, executor.
	Roles []string
}

// All are the points at which a process can die. Errors are no part of it.
var All = []Point{
	{SubmitPrepared, api}, {SubmitCommitted, api}, {SubmitWaking, api}, {SubmitWoken, api}, {SubmitReplying, api},
	{EnqueueFetched, api}, {EnqueueStored, api}, {EnqueueAcked, api}, {EnqueueBurying, api}, {EnqueueBuried, api},
	{ChangeDeciding, api}, {ChangeCommitted, api}, {ChangeWithdrawn, api}, {ChangeTold, api}, {WithdrawOrdered, api},

	{StreamsGeneration, sql},

	{PlannerRead, planner}, {PlannerMarking, planner}, {PlannerMarked, planner}, {PlannerPublishing, planner}, {PlannerPublished, planner},
	{PlannerAnswered, planner}, {PlannerReporting, planner}, {PlannerReported, planner}, {PlannerClaimed, planner}, {PlannerOwned, planner},
	{PlannerLost, planner}, {PlannerTakenBack, planner},

	{RecorderFetched, recorder}, {RecorderRecording, recorder}, {RecorderCommitting, recorder}, {RecorderCommitted, recorder},
	{RecorderTold, recorder}, {RecorderAcked, recorder}, {RecorderBurying, recorder}, {RecorderBuried, recorder},

	{ExecutorReceived, executor}, {ExecutorClaiming, executor}, {ExecutorClaimed, executor}, {ExecutorStarting, executor}, {ExecutorWorked, executor},
	{ExecutorLogged, executor}, {ExecutorReporting, executor}, {ExecutorReported, executor}, {ExecutorConfirmed, executor}, {ExecutorAcked, executor},
	{ExecutorLost, executor}, {ExecutorSettled, executor}, {ExecutorGivesBack, executor}, {ExecutorFlushing, executor},
}

// Errors are the points at which an error can be handed out.
var Errors = []Point{{StoreRetry, sql}, {StoreCommit, sql}}

var (
	api      = []string{roleAPI}
	planner  = []string{rolePlanner}
	recorder = []string{roleRecorder}
	executor = []string{roleExecutor}
	sql      = []string{roleAPI, rolePlanner, roleRecorder}
)
