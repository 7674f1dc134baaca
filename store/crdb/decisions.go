package crdb

import (
	"bytes"
	"slices"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/store"
)

// decisions gathers what a batch of reports decided, so that each kind of row is written by one statement.
type decisions struct {
	jobs  map[uuid.UUID]*changedJob
	runs  []store.RunRow
	skips []store.SkipRow
	put   []store.Timer
	putBy []int // the report that asked for each
	made  map[store.TimerKey]bool
}

type changedJob struct {
	job     *job.Job
	payload bool
}

// add takes in the change that a report caused. Reports that follow get the job as it has left it in known.
func (d *decisions) add(report int, c store.Change, known map[uuid.UUID]*job.Job) {
	if c.Job != nil {
		if d.jobs == nil {
			d.jobs = map[uuid.UUID]*changedJob{}
		}
		before := d.jobs[c.Job.ID]
		d.jobs[c.Job.ID] = &changedJob{job: c.Job, payload: c.PayloadChanged || (before != nil && before.payload)}
		known[c.Job.ID] = storedJob(c.Job)
	}
	d.runs = append(d.runs, c.Runs...)
	d.skips = append(d.skips, c.Skips...)
	for i := range c.Put {
		d.put = append(d.put, c.Put[i])
		d.putBy = append(d.putBy, report)
	}
}

// statements write all of it.
func (d *decisions) statements() ([]statement, error) {
	changed := make([]*job.Job, 0, len(d.jobs))
	for _, c := range d.jobs {
		changed = append(changed, c.job)
	}
	slices.SortFunc(changed, func(a, b *job.Job) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	list, err := writeJobs(changed, func(j *job.Job) bool { return d.jobs[j.ID].payload })
	if err != nil {
		return nil, err
	}
	if len(d.put) > 0 {
		list = append(list, statement{text: insertTimers, args: timersArgs(d.put), each: func(r *row) error {
			k, err := scanKey(r)
			d.made[k] = true
			return err
		}})
	}
	list = append(list, writeRuns(d.runs)...)
	return append(list, writeSkips(d.skips)...), nil
}

// answer tells each report which of its timers were not there before.
func (d *decisions) answer(results []store.ReportResult) {
	for n, i := range d.putBy {
		t := stored(d.put[n])
		if d.made[t.TimerKey] {
			results[i].Put = append(results[i].Put, t)
			delete(d.made, t.TimerKey)
		}
	}
}
