package crdb

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// scenario is a life of jobs, as the roles ask for it.
type scenario struct {
	name string
	// batched ones are measured with one job and with 500, and size is the number of jobs of others, 1 where zero: figures are per job.
	batched bool
	size    int
	// prepare is not measured.
	prepare func(w *world)
	steps   []step
}

// step is what one role does, with the calls of the store by which it does it.
type step struct {
	name, calls string
	do          func(w *world)
}

const (
	batchSize = 500 // of planner and recorder
	backlog   = 5000
)

var scenarios = []scenario{
	{name: "One-time job, succeeds at once", batched: true, steps: []step{
		{"submit", "Submit", func(w *world) { w.submit(once, false) }},
		{"read ahead", "ReadDue", (*world).readDue},
		{"mark", "MarkDispatched", (*world).mark},
		{"record the end", "Record", func(w *world) { w.record(w.succeeds, store.ReportEnd) }},
	}},
	{name: "One-time job, with a payload, runs longer than half a second", batched: true, steps: []step{
		{"submit", "Submit", func(w *world) { w.submit(once, true) }},
		{"read ahead", "ReadDue", (*world).readDue},
		{"mark", "MarkDispatched", (*world).mark},
		{"record the start", "Record", func(w *world) { w.record(nil, store.ReportStart) }},
		{"record the end", "Record", func(w *world) { w.record(w.succeeds, store.ReportEnd) }},
	}},
	{name: "Occurrence of a series", batched: true, prepare: func(w *world) { w.submit(series, false) }, steps: []step{
		{"read ahead", "ReadDue", (*world).readDue},
		{"mark", "MarkDispatched", (*world).mark},
		{"record the hand-over", "Record", func(w *world) { w.record(w.follows, store.ReportFollow) }},
		{"record the end", "Record", func(w *world) { w.record(w.succeeds, store.ReportEnd) }},
	}},
	{name: "Occurrence of a series, hand-over and end in one batch", batched: true, prepare: func(w *world) {
		w.submit(series, false)
		w.readDue()
		w.mark()
	}, steps: []step{
		{"record both", "Record", func(w *world) { w.record(w.follows, store.ReportFollow, store.ReportEnd) }},
	}},
	{name: "One-time job, fails once and is tried again", batched: true, prepare: func(w *world) {
		w.submit(once, false)
		w.readDue()
		w.mark()
	}, steps: []step{
		{"record the failure", "Record", func(w *world) { w.needJob = true; w.record(w.fails, store.ReportEnd); w.needJob = false }},
		{"read the retry", "ReadDue", (*world).readDue},
		{"mark", "MarkDispatched", (*world).mark},
		{"record the end", "Record", func(w *world) { w.record(w.succeeds, store.ReportEnd) }},
	}},
	{name: "Backlog of 5,000 one-time jobs, in batches of 500", size: backlog, steps: []step{
		{"submit", "Submit ×10", func(w *world) { w.submit(once, false) }},
		{"mark", "MarkDispatched ×10", (*world).mark},
		{"record the ends", "Record ×10", func(w *world) { w.record(w.succeeds, store.ReportEnd) }},
	}},
	{name: "Cancel of a one-time job that is due", prepare: func(w *world) { w.submit(once, false) }, steps: []step{
		{"look first", "Job, ListRuns", (*world).look},
		{"cancel", "ChangeJob", func(w *world) { w.change(w.cancels) }},
	}},
	{name: "Cancel of a one-time job that runs", prepare: (*world).startOne, steps: []step{
		{"look first", "Job, ListRuns", (*world).look},
		{"ask to stop", "ChangeJob", func(w *world) { w.change(w.stops) }},
		{"record the end", "Record", func(w *world) { w.needJob = true; w.record(w.succeeds, store.ReportEnd) }},
	}},
	{name: "Update of a one-time job: another time and payload", prepare: func(w *world) { w.submit(once, true) }, steps: []step{
		{"look first", "Job ×2, RunAttempts, ListRuns", func(w *world) {
			w.got(w.s.Job(w.t.Context(), namespace, w.jobs[0].ID)) // for the mask
			w.got(w.s.RunAttempts(w.t.Context(), w.jobs[0].ID, w.timers[0].RunID))
			w.look()
		}},
		{"update", "ChangeJob", func(w *world) { w.change(w.updates) }},
		{"wake, where due within 5 s", "Job", func(w *world) { w.got(w.s.Job(w.t.Context(), namespace, w.jobs[0].ID)) }},
	}},
	{name: "Update of a series: another priority", prepare: func(w *world) { w.submit(series, false) }, steps: []step{
		{"look first", "Job ×2, RunAttempts, ListRuns", func(w *world) {
			w.got(w.s.Job(w.t.Context(), namespace, w.jobs[0].ID))
			w.got(w.s.RunAttempts(w.t.Context(), w.jobs[0].ID, w.timers[0].RunID))
			w.look()
		}},
		{"update", "ChangeJob", func(w *world) { w.change(w.reorders) }},
	}},
	{name: "Reads of a run that goes on", prepare: (*world).startOne, steps: []step{
		{"GetRun", "JobsByID, Timers", (*world).getRun},
		{"GetJob", "Job, Timers", (*world).getJob},
	}},
	{name: "Reads of a run that has ended", prepare: func(w *world) {
		w.startOne()
		w.record(w.succeeds, store.ReportEnd)
	}, steps: []step{
		{"GetRun", "JobsByID, Timers, LastRuns", func(w *world) {
			w.getRun()
			w.got(w.s.LastRuns(w.t.Context(), []uuid.UUID{w.jobs[0].ID}))
		}},
		{"GetJob", "Job, Timers, LastRuns", func(w *world) {
			w.getJob()
			w.got(w.s.LastRuns(w.t.Context(), []uuid.UUID{w.jobs[0].ID}))
		}},
	}},
	{name: "Page of 50 one-time jobs of 500", prepare: func(w *world) {
		w.n = batchSize
		w.submit(once, false)
		w.got(w.s.hot.Exec(w.t.Context(), "ANALYZE jobs")) // the one statement whose plan follows statistics
	}, steps: []step{
		{"ListJobs", "ListJobs, Timers", func(w *world) { w.list("") }},
		{"ListJobs of the active", "ListJobs, Timers", func(w *world) { w.list(job.Active) }},
	}},
	{name: "Planner of 64 shards without work", prepare: func(w *world) { w.renew(); w.claim() }, steps: []step{
		{"each second", "Renew, ReadDue", func(w *world) { w.renew(); w.readDue() }},
		{"every 10 s", "Shards, Claim, SaveStreamSeq", (*world).claim},
		{"every 15 s", "Checkpoint", (*world).checkpoint},
		{"every 20 s", "ReadInFlight", (*world).readInFlight},
	}},
	{name: "Planner of 64 shards with 5,000 jobs to come, none handed out", prepare: func(w *world) { w.n = backlog; w.submit(once, false) }, steps: []step{
		{"every 20 s", "ReadInFlight", (*world).readInFlight},
	}},
}

// result is a scenario as it was measured: each step at each size.
type result struct {
	Name  string
	Steps []stepResult
}

type stepResult struct {
	Name, Calls string
	At          []measured // for each size
}

// measureScenarios does all scenarios and what is left of the catalogue, and returns the texts that were sent too, by name.
func measureScenarios(t *testing.T, dsn string, level Isolation) ([]result, map[string]string) {
	t.Helper()
	s, p := openTapped(t, dsn, level)
	m := newMeter(t, dsn, s)
	var results []result
	for _, sc := range scenarios {
		r := result{Name: sc.name, Steps: make([]stepResult, len(sc.steps))}
		sizes := []int{max(sc.size, 1)}
		if sc.batched {
			sizes = []int{1, batchSize}
		}
		for _, n := range sizes {
			truncateAll(t, m.conn)
			w := &world{t: t, s: s, n: n}
			if sc.prepare != nil {
				sc.prepare(w)
			}
			for i, st := range sc.steps {
				got := m.measure(t, p, n, func() { st.do(w) })
				r.Steps[i].Name, r.Steps[i].Calls = st.name, st.calls
				r.Steps[i].At = append(r.Steps[i].At, got)
				for table, c := range got.touched {
					if c.scans > 0 && strings.Contains(grown, "'"+table+"'") {
						t.Errorf("%s, %s: %d sequential scans of %s", sc.name, st.name, c.scans, table)
					}
				}
			}
		}
		results = append(results, r)
	}
	truncateAll(t, m.conn)
	sendTheRest(t, s, m.conn)
	for _, text := range p.stray {
		t.Errorf("sent, and in no line of the catalogue: %s", text)
	}
	for _, e := range catalogue {
		if _, sent := p.texts[e.name]; !sent {
			t.Errorf("%s is in the catalogue and was never sent", e.name)
		}
	}
	return results, p.texts
}
