package scale

import "github.com/waterclock-io/waterclock/bench/report"

// CPU is what Waterclock's own processes use, in seconds per 1,000 jobs.
type CPU struct {
	Submit, Run float64 // the way in; planner, recorder, executor and NATS together
	// Whole: of the benchmark, all of it; else of the store's calls alone, which is less than the whole.
	Whole bool
}

// The workloads of the benchmark that are asked for: submits over Connect, and due jobs drained.
const (
	submitWork, submitContender = "W1", "waterclock-postgres-rpc"
	runWork, runContender       = "W2", "waterclock-postgres"
)

// cpuOf takes the figures of the benchmark, less the database's, where there are any. They contain the client, too.
func cpuOf(f *Facts, r *report.Report) CPU {
	if r != nil {
		submit, ok1 := own(r, submitWork, submitContender)
		run, ok2 := own(r, runWork, runContender)
		if ok1 && ok2 {
			return CPU{Submit: submit, Run: run, Whole: true}
		}
	}
	return CPU{Submit: f.Step(StepSubmit).ClientCPU, Run: f.Step(StepRead).ClientCPU + f.Step(StepMark).ClientCPU + f.Step(StepRecord).ClientCPU}
}

func own(r *report.Report, workload, contender string) (float64, bool) {
	all, ok1 := r.Of(workload, contender, "cpu")
	database, ok2 := r.Of(workload, contender, "database_cpu")
	return all.Median - database.Median, ok1 && ok2
}

// Cores that a moment keeps busy.
func (c CPU) Cores(m Moment) float64 { return (c.Submit*m.Submits + c.Run*m.Runs) / 1000 }
