package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/store"
)

// What is asked of the streams: how far they are, and where a message is.

// How long after its mark, or after its time where that is later, the message of a hand-over may be stored, by the clock of the NATS server; and how long before
// its time a run may be marked. What is stored later is refused by executors.
const (
	PublishWithin = 3 * time.Second
	MaxMarkAhead  = 250 * time.Millisecond
)

// StoredWithin is how long after the mark of a hand-over, by the clock of the database, its message may be stored so that an executor would run it; with what that
// clock and the one of the NATS server may run apart in so short a time.
const StoredWithin = PublishWithin + MaxMarkAhead + 250*time.Millisecond

// StoredBy returns the moment, by the clock of the database, after which no message of a hand-over is stored that an executor would run.
func StoredBy(t *store.Timer) time.Time { return t.DispatchedAt.Add(StoredWithin) }

// RunsState is what the planner polls of RUNS.
type RunsState struct {
	// ServerTime is the clock of the NATS server when it answered.
	ServerTime time.Time
	LastSeq    uint64
	Messages   uint64
}

// PollRuns asks how far RUNS is. jetstream.ErrStreamNotFound where it is gone.
func PollRuns(ctx context.Context, js jetstream.JetStream, r Runs) (RunsState, error) {
	s, err := js.Stream(ctx, r.Name)
	if err != nil {
		return RunsState{}, fmt.Errorf("poll %s: %w", r.Name, err)
	}
	info := s.CachedInfo()
	return RunsState{ServerTime: info.TimeStamp, LastSeq: info.State.LastSeq, Messages: info.State.Msgs}, nil
}

// StatusFill returns how full STATUS is with what no recorder has applied, from 0 to 1, its last sequence, and the sequence up to which all is applied.
func StatusFill(ctx context.Context, js jetstream.JetStream) (fill float64, last, applied uint64, err error) {
	s, err := js.Stream(ctx, StatusStream)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("look up %s: %w", StatusStream, err)
	}
	info := s.CachedInfo()
	c, err := s.Consumer(ctx, RecorderConsumer)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
	case err != nil:
		return 0, 0, 0, fmt.Errorf("look up consumer %s: %w", RecorderConsumer, err)
	default:
		applied = c.CachedInfo().AckFloor.Stream
	}
	if info.State.Msgs > 0 && info.Config.MaxBytes > 0 {
		waiting := float64(info.State.LastSeq-min(applied, info.State.LastSeq)) / float64(info.State.Msgs)
		fill = min(waiting, 1) * float64(info.State.Bytes) / float64(info.Config.MaxBytes)
	}
	return fill, info.State.LastSeq, applied, nil
}

// What JetStream answers to the deletion of what is not there.
const (
	codeNoSequence   = 10043
	codeDeleteFailed = 10057
)

// Settle returns once every publish to RUNS that its leader has taken so far is in the stream, or never will be. A leader that cannot reach the others keeps what it
// has taken, and that may be stored much later under the time at which it was taken. What is asked for here, to delete what is not there, goes the same way.
func Settle(ctx context.Context, js jetstream.JetStream, r Runs) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	m, err := js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.MSG.DELETE."+r.Name, fmt.Appendf(nil, `{"seq":%d,"no_erase":true}`, math.MaxInt64))
	if err != nil {
		return fmt.Errorf("settle %s: %w", r.Name, err)
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return fmt.Errorf("settle %s: unreadable answer %q: %w", r.Name, m.Data, err)
	}
	if answer.Error == nil || (answer.Error.ErrorCode != codeNoSequence && answer.Error.ErrorCode != codeDeleteFailed) {
		return fmt.Errorf("settle %s: %q", r.Name, m.Data)
	}
	return nil
}

// FindRun looks for the message of a hand-over by its literal subject. found is false where it is gone.
func FindRun(ctx context.Context, js jetstream.JetStream, r Runs, subject string) (seq uint64, found bool, err error) {
	m, err := findRun(ctx, js, r, subject)
	if err != nil || m == nil {
		return 0, false, err
	}
	return m.Sequence, true, nil
}

// findRun returns nil where the message is gone.
func findRun(ctx context.Context, js jetstream.JetStream, r Runs, subject string) (*jetstream.RawStreamMsg, error) {
	s, err := js.Stream(ctx, r.Name)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", r.Name, err)
	}
	m, err := s.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up message %s: %w", subject, err)
	}
	return m, nil
}

// Waiting tells whether a message is where it should be: not delivered yet, or delivered and under the lease of somebody.
func Waiting(ctx context.Context, js jetstream.JetStream, r Runs, l Lane, seq uint64) (bool, error) {
	info, err := findConsumer(ctx, js, r.Name, l)
	if errors.Is(err, errNoConsumer) {
		return true, nil // nobody serves the queue now
	}
	if err != nil {
		return false, err
	}
	return seq > info.Delivered.Stream || info.NumAckPending > 0 || info.NumRedelivered > 0, nil
}

// DeleteRun takes back the message of a hand-over. Deleting by sequence costs a fraction of a purge by subject, and cannot hang a fetch.
func DeleteRun(ctx context.Context, js jetstream.JetStream, r Runs, seq uint64) error {
	s, err := js.Stream(ctx, r.Name)
	if err != nil {
		return fmt.Errorf("look up %s: %w", r.Name, err)
	}
	if err := s.DeleteMsg(ctx, seq); err != nil {
		// The error does not tell whether the message was gone already, which is as good.
		if _, gone := s.GetMsg(ctx, seq); errors.Is(gone, jetstream.ErrMsgNotFound) {
			return nil
		}
		return fmt.Errorf("delete message %d of %s: %w", seq, r.Name, err)
	}
	return nil
}

// Gone tells whether the error means that the stream or consumer asked for does not exist (any more).
func Gone(err error) bool {
	return errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, jetstream.ErrNoStreamResponse)
}
