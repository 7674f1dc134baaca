// Package scale is a model: from what one job costs to what 100 million a day would need on a CockroachDB cluster with NATS R3.
//
// What one job costs is measured (facts.json, written by cmd/scale -measure with package measure), what a cluster can do and what it costs is assumed from
// public sources, each named beside its number. Nothing here was ever run on CockroachDB. cmd/scale renders it for docs/scale.md.
package scale

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"time"
)

// Facts are what was measured of one-time jobs that succeed at their first attempt.
type Facts struct {
	Measured time.Time `json:"measured"`
	Machine  string    `json:"machine"`
	Postgres string    `json:"postgres"`
	Jobs     int       `json:"jobs"`
	Payload  int       `json:"payload"` // bytes of each job
	Steps    []Step    `json:"steps"`
	Tables   []Table   `json:"tables"`
	Costs    Costs     `json:"costs"`
	Messages Messages  `json:"messages"`
}

// Step is one of the transactions of a job's life.
type Step struct {
	Name string `json:"name"` // StepSubmit and so on
	// Batch is how many jobs a transaction took.
	Batch int `json:"batch"`
	// Writes are rows inserted, updated and deleted per job, by table.
	Writes map[string]float64 `json:"writes"`
	// WAL is bytes of PostgreSQL's log per job; it includes the indexes.
	WAL float64 `json:"wal_bytes"`
	// DatabaseCPU and ClientCPU are seconds per 1,000 jobs: of PostgreSQL, and of the process that calls the store.
	DatabaseCPU float64 `json:"database_cpu_s"`
	ClientCPU   float64 `json:"client_cpu_s"`
}

// The steps.
const (
	StepSubmit = "submit"
	StepRead   = "read"
	StepMark   = "mark"
	StepRecord = "record"
	StepPurge  = "purge"
)

// Table is the size of one table, in bytes per row.
type Table struct {
	Name    string  `json:"name"`
	Heap    float64 `json:"heap_bytes"`
	Indexes float64 `json:"index_bytes"`
}

// Bytes of a row with its indexes.
func (t Table) Bytes() float64 { return t.Heap + t.Indexes }

// Costs are how long statements took, in microseconds: the median, as a part for the statement and one for each row.
type Costs struct {
	Read    float64 `json:"read_us"`
	ReadRow float64 `json:"read_row_us"`
	Mark    float64 `json:"mark_us"`
	MarkRow float64 `json:"mark_row_us"`
	Renew   float64 `json:"renew_us"`
	Claim   float64 `json:"claim_us"`
	Publish float64 `json:"publish_us"`
}

// Messages are what streams stored, as JetStream counts its bytes, of one copy.
type Messages struct {
	Runs           int     `json:"runs"`
	RunBytes       float64 `json:"run_bytes"`        // a message in RUNS
	StatusBytes    float64 `json:"status_bytes"`     // in STATUS, per run
	StatusMessages float64 `json:"status_messages"`  // in STATUS, per run
	StatusKept     float64 `json:"status_kept_secs"` // how long a report stays there after it was applied
}

//go:embed facts.json
var measured []byte

// Measured returns the facts that are stored with the model.
func Measured() (*Facts, error) {
	var f Facts
	if err := json.Unmarshal(measured, &f); err != nil {
		return nil, fmt.Errorf("facts.json: %w", err)
	}
	return &f, nil
}

// Step returns the step of a name; its zero value where it was not measured.
func (f *Facts) Step(name string) Step {
	for _, s := range f.Steps {
		if s.Name == name {
			return s
		}
	}
	return Step{}
}

// Table returns the table of a name; its zero value where it was not measured.
func (f *Facts) Table(name string) Table {
	for _, t := range f.Tables {
		if t.Name == name {
			return t
		}
	}
	return Table{}
}
