package scale

// Plan is the load that is planned for. Rates are per second.
type Plan struct {
	JobsPerDay  float64 // one-time jobs, each of which runs once and succeeds
	Peak        float64 // submits at the peak, and as many runs
	Burst       float64 // more runs that fall due in one minute, on top of the peak
	StatusReads float64
	History     float64 // rows
}

// DefaultPlan is what the product is designed for.
var DefaultPlan = Plan{JobsPerDay: 100e6, Peak: 2000, Burst: 100_000, StatusReads: 10_000, History: 180e6}

// Average is how many jobs a second a day has.
func (p Plan) Average() float64 { return p.JobsPerDay / 86_400 }

// BurstRate is how many runs fall due a second in the minute of the burst.
func (p Plan) BurstRate() float64 { return p.Peak + p.Burst/60 }

// Assumption is a number that was not measured here.
type Assumption struct {
	Name   string
	Value  float64
	Unit   string
	Source string
}

// Names of the assumptions.
const (
	writesPerCPU   = "row writes per vCPU, as measured by others"
	kvWriteCost    = "CPU of one KV write, CockroachDB's own cost model"
	kvWriteByte    = "CPU per MB written, the same"
	kvReadCost     = "CPU of one KV read, the same"
	replication    = "copies"
	rangeSize      = "largest range"
	rangeFill      = "how full ranges are on average"
	utilisation    = "CPU of a database node that is meant to be used"
	nodeCPU        = "vCPU of a database node"
	freeDisk       = "disk kept free"
	garbage        = "time that deleted rows stay (gc.ttlseconds)"
	readsPerStatus = "KV reads of one status read"
	natsNodes      = "NATS servers"
	natsCPU        = "vCPU of a NATS server"
	roleCPU        = "vCPU of a process of a role"
	roleUse        = "CPU of such a process that is meant to be used"
	planners       = "planners"
	priceCPU       = "price of a vCPU with 4 GiB for an hour"
	priceDisk      = "price of a GB of SSD for a month"
	priceTraffic   = "price of a GB between zones, both directions"
)

// Assumptions returns all of them. Prices are list prices without any discount.
func Assumptions() []Assumption {
	const docs = "https://www.cockroachlabs.com/docs/"
	return []Assumption{
		{writesPerCPU, 200_000. / (30 * 16), "/s", "200,000 single-row writes/s on 30 c5d.4xlarge (480 vCPU), CockroachDB 20.1, one row a transaction: https://dzone.com/articles/scaling-cockroachdb-to-200k-writes-per-second"},
		{kvWriteCost, 1, "ms", "1 unit is about 1 CPU millisecond, KV layer only: https://github.com/cockroachdb/cockroach/blob/0054aa64145a149961765f9056dcc2d5522d0be6/pkg/kv/kvserver/tenantrate/settings.go"},
		{kvWriteByte, 400, "ms", "the same file"},
		{kvReadCost, .7, "ms", "the same file"},
		{replication, 3, "", "default of CockroachDB; nats.replicas 3: " + docs + "v24.3/recommended-production-settings"},
		{rangeSize, 512, "MiB", "https://www.cockroachlabs.com/glossary/distributed-db/range-shard/"},
		{rangeFill, .7, "", "guessed: a range that splits leaves two halves"},
		{utilisation, .5, "", "guessed: one node of several may be lost, and compaction wants its part"},
		{nodeCPU, 16, "", "as the machines of the first line; 4 GiB each"},
		{freeDisk, .3, "", "https://www.netdata.cloud/guides/cockroachdb/cockroachdb-disk-space-running-out/"},
		{garbage, 4 * 3600, "s", "default of present versions; older ones kept 25 h"},
		{readsPerStatus, 4, "", "GetJob: job, payload, timer, last run (api/jobs.go)"},
		{natsNodes, 3, "", "the least for R3"},
		{natsCPU, 4, "", "guessed"},
		{roleCPU, 2, "", "guessed"},
		{roleUse, .5, "", "guessed"},
		{planners, 4, "", "the simulation below"},
		{priceCPU, .0816 / 2, "$", "m7g.large on demand, us-east-1, June 2026: https://www.factualminds.com/blog/amazon-ec2-on-demand-pricing-instance-families-2026/"},
		{priceDisk, .08, "$", "AWS gp3 in us-east-1, from memory, not looked up"},
		{priceTraffic, .02, "$", "AWS between zones, 0.01 each way, from memory, not looked up"},
	}
}

// assumed are the values by name.
type assumed map[string]float64

func valuesOf(all []Assumption) assumed {
	out := assumed{}
	for _, a := range all {
		out[a.Name] = a.Value
	}
	return out
}
