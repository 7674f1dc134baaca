package streams

import (
	"encoding/json"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
)

// encodeWake puts a committed row into the form in which it travels to its planner.
func encodeWake(r *store.DueRow) (*wirev1.WakeRow, error) {
	spec, err := json.Marshal(&r.Spec)
	if err != nil {
		return nil, err
	}
	return &wirev1.WakeRow{
		JobId: r.JobID[:], RunId: r.RunID[:], Shard: uint32(r.Shard), DueAt: r.DueAt.UnixMicro(), ScheduledAt: r.ScheduledAt.UnixMicro(), //nolint:gosec // shards are few
		Version: r.Version, Dispatch: r.Dispatch, Attempt: r.Attempt, Namespace: r.Namespace, QueueNamespace: r.QueueNamespace, Queue: r.Queue,
		Priority: int32(r.Priority), Kind: r.Kind, Recurring: r.Recurring, Origin: string(r.Origin), Spec: spec, Payload: r.Payload, Name: r.Name,
		JobCreatedAt: r.JobCreatedAt.UnixMicro(),
	}, nil
}

// DecodeWake is the inverse of what Waker sends. False: the row came without its job, or cannot be read; it is to be read from SQL.
func DecodeWake(w *wirev1.WakeRow) (*store.DueRow, bool) {
	if len(w.Spec) == 0 || len(w.RunId) != 16 || len(w.JobId) != 16 {
		return nil, false
	}
	r := &store.DueRow{Name: w.Name, Payload: w.Payload, JobCreatedAt: time.UnixMicro(w.JobCreatedAt).UTC(), Timer: store.Timer{
		TimerKey: store.TimerKey{Shard: int32(w.Shard), DueAt: time.UnixMicro(w.DueAt).UTC(), RunID: uuid.UUID(w.RunId)}, //nolint:gosec // made by us
		JobID:    uuid.UUID(w.JobId), Namespace: w.Namespace, QueueNamespace: w.QueueNamespace, Queue: w.Queue, Priority: job.Priority(w.Priority),
		Kind: w.Kind, Step: job.StepDue, Origin: job.Origin(w.Origin), ScheduledAt: time.UnixMicro(w.ScheduledAt).UTC(), Attempt: w.Attempt,
		Version: w.Version, Dispatch: w.Dispatch, Recurring: w.Recurring,
	}}
	if json.Unmarshal(w.Spec, &r.Spec) != nil {
		return nil, false
	}
	if r.Recurring && r.Origin == job.FromSchedule {
		// It follows from the schedule, so it does not travel.
		if occ, ok := r.Spec.Schedule.Next(r.ScheduledAt.Add(-time.Microsecond)); ok && occ.At.Equal(r.ScheduledAt) {
			r.Civil = occ.Civil
		}
	}
	return r, true
}

// Waker tells planners of rows that were just committed.
type Waker struct {
	notify *Notifier
	log    *slog.Logger
}

// NewWaker returns a Waker that speaks through a Notifier.
func NewWaker(n *Notifier, log *slog.Logger) *Waker { return &Waker{n, log} }

// wakeBytes keeps a wake message below the server's limit of 1 MiB.
const wakeBytes = 700_000

// Wake tells the owners of the rows' shards. It does not block; what is lost is found by the next read.
func (w *Waker) Wake(rows []*store.DueRow) {
	byShard := map[int32]*wirev1.Wake{}
	size := map[int32]int{}
	for i := range rows {
		shard := rows[i].Shard
		one, err := encodeWake(rows[i])
		if err != nil {
			w.log.Warn("cannot encode a wake", "run", rows[i].RunID, "error", err)
			continue
		}
		n := len(one.Payload) + len(one.Spec) + 256
		if size[shard]+n > wakeBytes && byShard[shard] != nil {
			w.notify.Wake(shard, byShard[shard])
			byShard[shard], size[shard] = nil, 0
		}
		if byShard[shard] == nil {
			byShard[shard] = &wirev1.Wake{}
		}
		byShard[shard].Rows = append(byShard[shard].Rows, one)
		size[shard] += n
	}
	for shard, m := range byShard {
		if m != nil {
			w.notify.Wake(shard, m)
		}
	}
}
