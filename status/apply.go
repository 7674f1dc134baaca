package status

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/internal/failpoint"
	"github.com/waterclock-io/waterclock/job"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/streams"
)

// How long a batch waits before it is tried again while SQL is away.
const (
	retryFirst = 100 * time.Millisecond
	retryMost  = 2 * time.Second
	// wakeAhead is how soon a row must be due for its planner to be told of it; the rest is found by its next read.
	wakeAhead = 1500 * time.Millisecond
)

// applyBatch applies messages and acknowledges them. It returns when all are settled (applied, refused or dead) or ctx has ended.
func (r *Recorder) applyBatch(ctx context.Context, msgs []jetstream.Msg) {
	failpoint.Here(failpoint.RecorderFetched)
	events := make([]*event, 0, len(msgs)*2)
	kept := map[int]bool{}
	for i, m := range msgs {
		events = r.read(ctx, events, kept, i, m)
	}
	if !r.settle(ctx, events, kept) {
		return
	}
	for i, m := range msgs {
		if !kept[i] {
			_ = m.Ack() // delivered again it changes nothing
		}
	}
	failpoint.Here(failpoint.RecorderAcked)
	r.inHand.drop(msgs)
}

// read opens a message; what in it is not of this cluster goes to the dead letters.
func (r *Recorder) read(ctx context.Context, events []*event, kept map[int]bool, i int, m jetstream.Msg) []*event {
	id := "status"
	if meta, err := m.Metadata(); err == nil {
		id = fmt.Sprintf("status-%d-%d", meta.Timestamp.UnixNano(), meta.Sequence.Stream) // sequences begin anew with a stream that is made anew
	}
	b := new(wirev1.StatusBatch)
	if err := proto.Unmarshal(m.Data(), b); err != nil {
		kept[i] = !r.bury(ctx, fmt.Errorf("status message cannot be read: %w", err), id, m.Subject(), m.Data())
		return events
	}
	for n, s := range b.Statuses {
		id := fmt.Sprintf("%s-%d", id, n)
		t, err := r.sealer.Open(s.Ticket)
		if err != nil {
			one, merr := proto.Marshal(&wirev1.StatusBatch{Executor: b.Executor, Statuses: []*wirev1.Status{s}})
			kept[i] = !r.bury(ctx, errors.Join(err, merr), id, m.Subject(), one) || kept[i]
			continue
		}
		if _, known := wirev1.StatusKind_name[int32(s.Kind)]; !known || s.Kind == wirev1.StatusKind_STATUS_KIND_UNSPECIFIED {
			continue // of a newer version: what it reports it cannot need from us
		}
		events = append(events, &event{ticket: t, status: s, message: i, id: id, sender: b.Executor})
	}
	return events
}

// settle applies events, halving what fails until the one that cannot be applied stands alone. Of what could not be moved to the dead letters either the message is
// kept: it is delivered again. False: ctx ended before.
func (r *Recorder) settle(ctx context.Context, events []*event, kept map[int]bool) bool {
	if len(events) == 0 {
		return true
	}
	wait := retryFirst
	for {
		err := r.record(ctx, events)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		r.cfg.Metrics.retries.Inc()
		if !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrUnknownOutcome) && !errors.Is(err, context.DeadlineExceeded) {
			if len(events) > 1 {
				half := len(events) / 2
				return r.settle(ctx, events[:half], kept) && r.settle(ctx, events[half:], kept)
			}
			e := events[0]
			data, merr := proto.Marshal(&wirev1.StatusBatch{Executor: e.sender, Statuses: []*wirev1.Status{e.status}})
			kept[e.message] = !r.bury(ctx, errors.Join(err, merr), e.id, "status."+e.sender, data) || kept[e.message]
			return true
		}
		r.log.Warn("statuses wait for SQL", "statuses", len(events), "error", err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
		wait = min(2*wait, retryMost)
	}
}

func (r *Recorder) record(ctx context.Context, events []*event) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	reports := make([]store.Report, len(events))
	for i, e := range events {
		reports[i] = e.report()
	}
	failpoint.Here(failpoint.RecorderRecording)
	results, err := r.cfg.Store.Record(ctx, reports, func(i int, t *store.Timer, j *job.Job, now time.Time) store.Change {
		return decide(events[i], t, j, now)
	})
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	failpoint.Here(failpoint.RecorderCommitted)
	r.cfg.Metrics.batches.Observe(float64(len(events)))
	r.tell(events, results)
	failpoint.Here(failpoint.RecorderTold)
	return nil
}

// tell lets planners and watchers know what changed, and answers the starts of runs that nobody wants any more.
func (r *Recorder) tell(events []*event, results []store.ReportResult) {
	recorded := &wirev1.Recorded{Rows: make([]*wirev1.RecordedRow, 0, len(events))}
	wakes := map[int32]*wirev1.Wake{}
	soon := time.Now().Add(wakeAhead)
	for i, e := range events {
		res := &results[i]
		r.cfg.Metrics.statuses.WithLabelValues(kindName(e.status.Kind)).Inc()
		for _, t := range res.Put {
			if t.Step == job.StepDue && t.DueAt.Before(soon) {
				w := wakes[t.Shard]
				if w == nil {
					w = &wirev1.Wake{}
					wakes[t.Shard] = w
				}
				w.Rows = append(w.Rows, &wirev1.WakeRow{RunId: t.RunID[:], JobId: t.JobID[:], Shard: uint32(t.Shard), DueAt: t.DueAt.UnixMicro()}) //nolint:gosec // made by us
			}
		}
		if e.status.Kind == wirev1.StatusKind_STATUS_KIND_DISPATCHED {
			continue
		}
		started := e.status.Kind == wirev1.StatusKind_STATUS_KIND_STARTED
		if !res.Applied || putBack(res) {
			r.cfg.Metrics.refused.Inc()
			if started {
				r.refuse(e, res.Timer)
			}
			continue
		}
		step := job.StepRunning
		if !started {
			step = job.StepNone // gone from under this dispatch
		}
		recorded.Rows = append(recorded.Rows, &wirev1.RecordedRow{
			RunId: e.ticket.RunId, Shard: e.ticket.Shard, Dispatch: e.ticket.Dispatch, Step: int32(step),
		})
	}
	if len(recorded.Rows) > 0 {
		r.notify.Recorded(recorded)
	}
	for shard, w := range wakes {
		r.notify.Wake(shard, w)
	}
}

// putBack tells whether the state machine refused a status: its row is as it was, and still in flight if it was.
func putBack(res *store.ReportResult) bool {
	return res.Timer != nil && len(res.Put) == 1 && res.Put[0].TimerKey == res.Timer.TimerKey && res.Put[0].Step == res.Timer.Step
}

// refuse tells an executor that what it started is not wanted: cancelled where a cancel waits for its word, else without asking for one.
func (r *Recorder) refuse(e *event, t *store.Timer) {
	switch {
	case t == nil:
		r.notify.Control(e.sender, [16]byte(e.ticket.RunId), e.ticket.Dispatch, "refused")
	case t.Step == job.StepCancelling:
		r.notify.Control(e.sender, [16]byte(e.ticket.RunId), e.ticket.Dispatch, "cancelled")
	}
}

// bury moves what cannot be applied to the dead letters, with the reason, and tells whether it lies there. Under its id it lies there once.
func (r *Recorder) bury(ctx context.Context, why error, id, subject string, data []byte) bool {
	h := nats.Header{}
	h.Set(jetstream.MsgIDHeader, id)
	h.Set("Waterclock-Reason", strings.ReplaceAll(why.Error(), "\n", "; "))
	h.Set("Waterclock-Subject", subject)
	h.Set("Waterclock-Time", strconv.FormatInt(time.Now().UnixMicro(), 10))
	failpoint.Here(failpoint.RecorderBurying)
	if _, err := r.window.PublishWait(ctx, streams.DeadSubject("status", ""), h, data); err != nil {
		r.log.Warn("a status cannot be applied, nor moved to the dead letters yet", "subject", subject, "reason", why, "error", err)
		return false
	}
	r.cfg.Metrics.dead.Inc()
	r.log.Warn("status moved to the dead letters", "subject", subject, "error", why)
	failpoint.Here(failpoint.RecorderBuried)
	return true
}

func kindName(k wirev1.StatusKind) string {
	return strings.ToLower(strings.TrimPrefix(k.String(), "STATUS_KIND_"))
}
