package crdb

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// runCols are the columns of history as addRun fills them.
var runCols = []column{
	{"job_id", uuidKind, ""}, {"run_id", uuidKind, ""}, {"namespace", textKind, ""}, {"queue", textKind, ""}, {"priority", int4Kind, ""},
	{"kind", textKind, ""}, {"origin", textKind, ""}, {"scheduled_at", int8Kind, ""}, {"civil", textKind, ""}, {"due_at", int8Kind, ""},
	{"attempt", int4Kind, ""}, {"dispatch", int8Kind, ""}, {"executor", textKind, ""}, {"started_at", int8Kind, ""}, {"ended_at", int8Kind, ""},
	{"step", int4Kind, ""}, {"final", boolKind, ""}, {"reason", textKind, ""}, {"message", textKind, ""}, {"code", int4Kind, ""},
	{"result", byteaKind, ""}, {"result_ref", textKind, ""}, {"log_ref", textKind, ""},
}

var (
	runColumns = selected("r", runCols)
	insertRuns = insert("runs", 1, runCols, "ON CONFLICT DO NOTHING")
)

func addRun(b *batch, h *store.RunRow) {
	b.uuid(h.JobID)
	b.uuid(h.RunID)
	b.text(h.Namespace)
	b.text(h.Queue)
	b.int4(int32(h.Priority))
	b.text(h.Kind)
	b.text(string(h.Origin))
	b.time(h.ScheduledAt)
	b.text(h.Civil)
	b.time(h.DueAt)
	b.int4(h.Attempt)
	b.int8(h.Dispatch)
	b.text(h.Executor)
	b.time(h.StartedAt)
	b.time(h.EndedAt)
	b.int4(int32(h.Step))
	b.bool(h.Final)
	b.text(h.Reason)
	b.text(h.Message)
	b.int4(h.Code)
	b.bytes(h.Result)
	b.text(h.ResultRef)
	b.text(h.LogRef)
}

func scanRun(r *row) (store.RunRow, error) {
	return store.RunRow{
		JobID: r.uuid(), RunID: r.uuid(), Namespace: r.name(), Queue: r.name(), Priority: job.Priority(r.int32()), Kind: r.name(),
		Origin: job.Origin(r.name()), ScheduledAt: r.time(), Civil: r.string(), DueAt: r.time(), Attempt: r.int32(), Dispatch: r.int64(),
		Executor: r.name(), StartedAt: r.time(), EndedAt: r.time(), Step: job.Step(r.int32()), Final: r.bool(), Reason: r.name(),
		Message: r.string(), Code: r.int32(), Result: r.bytes(), ResultRef: r.string(), LogRef: r.string(),
	}, nil
}

// runKeyOrder is the order of the primary key of history.
func runKeyOrder(a, b *store.RunRow) int {
	return cmp.Or(bytes.Compare(a.JobID[:], b.JobID[:]), b.ScheduledAt.Compare(a.ScheduledAt), bytes.Compare(b.RunID[:], a.RunID[:]), cmp.Compare(a.Attempt, b.Attempt))
}

// writeRuns are the statements that add to history; rows that are there already stay as they are.
func writeRuns(runs []store.RunRow) []statement {
	if len(runs) == 0 {
		return nil
	}
	sorted := make([]*store.RunRow, len(runs))
	for i := range runs {
		sorted[i] = &runs[i]
	}
	slices.SortStableFunc(sorted, runKeyOrder)
	b := newBatch(runCols, len(runs))
	for _, h := range sorted {
		addRun(b, h)
	}
	return []statement{{text: insertRuns, args: b.args()}}
}

var skipCols = []column{
	{"job_id", uuidKind, ""}, {"nominal_at", int8Kind, ""}, {"through_at", int8Kind, ""}, {"count", int8Kind, ""}, {"reason", textKind, ""}, {"at", int8Kind, ""},
}

var (
	skipColumns = selected("k", skipCols)
	insertSkips = insert("skips", 1, skipCols, "ON CONFLICT DO NOTHING")
)

func scanSkip(r *row) (store.SkipRow, error) {
	return store.SkipRow{JobID: r.uuid(), NominalAt: r.time(), ThroughAt: r.time(), Count: r.int64(), Reason: r.name(), At: r.time()}, nil
}

// writeSkips are the statements that add skips; those that are there already stay as they are.
func writeSkips(skips []store.SkipRow) []statement {
	if len(skips) == 0 {
		return nil
	}
	sorted := slices.Clone(skips)
	slices.SortStableFunc(sorted, func(a, b store.SkipRow) int {
		return cmp.Or(bytes.Compare(a.JobID[:], b.JobID[:]), b.NominalAt.Compare(a.NominalAt))
	})
	b := newBatch(skipCols, len(sorted))
	for i := range sorted {
		k := &sorted[i]
		b.uuid(k.JobID)
		b.time(k.NominalAt)
		b.time(k.ThroughAt)
		b.int8(k.Count)
		b.text(k.Reason)
		b.time(k.At)
	}
	return []statement{{text: insertSkips, args: b.args()}}
}
