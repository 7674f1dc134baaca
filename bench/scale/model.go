package scale

import (
	"fmt"
	"math"
)

// kvPerRow is how many KV writes a row of a table is on CockroachDB: the row itself, and each index that a one-time job without a name is in. Its timer is in
// no second index, its run in one only if it failed.
var kvPerRow = map[string]float64{"jobs": 2, "payloads": 1, "timers": 1, "runs": 1}

// Moment is a load that lasts: how many of each step happen a second.
type Moment struct {
	Name                         string
	Submits, Runs, Purges, Reads float64
}

// Moments of a plan. What is submitted is removed as quickly, when its retention is over.
func (p Plan) Moments() []Moment {
	avg := p.Average()
	return []Moment{
		{"average", avg, avg, avg, p.StatusReads},
		{"peak", p.Peak, p.Peak, avg, p.StatusReads},
		{fmt.Sprintf("peak and %s due in a minute", count(p.Burst)), p.Peak, p.BurstRate(), avg, p.StatusReads},
	}
}

// Database is what a moment asks of SQL, per second where it is a rate.
type Database struct {
	RowWrites, KVWrites, Bytes float64
	// Cautious is vCPU at the writes per vCPU that others measured, for writes alone; Costed by CockroachDB's cost model, for writes and reads.
	Cautious, Costed float64
	Nodes            float64 // for the greater of the two, at the use that is meant
}

// Database works out a moment.
func (f *Facts) Database(m Moment, a assumed) Database {
	var d Database
	for _, s := range []struct {
		step string
		rate float64
	}{{StepSubmit, m.Submits}, {StepMark, m.Runs}, {StepRecord, m.Runs}, {StepPurge, m.Purges}} {
		step := f.Step(s.step)
		for table, rows := range step.Writes {
			d.RowWrites += rows * s.rate
			d.KVWrites += rows * kvPerRow[table] * s.rate
		}
		d.Bytes += step.WAL * s.rate
	}
	d.Cautious = d.RowWrites / a[writesPerCPU]
	reads := m.Reads*a[readsPerStatus] + m.Runs // each due row is joined with its job
	d.Costed = (d.KVWrites*a[kvWriteCost] + d.Bytes/1e6*a[kvWriteByte] + reads*a[kvReadCost]) / 1000
	// Reads are in both.
	d.Cautious += reads * a[kvReadCost] / 1000
	d.Nodes = max(3, math.Ceil(max(d.Cautious, d.Costed)/a[utilisation]/a[nodeCPU]))
	return d
}

// Volume is what a retention keeps.
type Volume struct {
	Days, Rows   float64 // rows of history
	Bytes        float64 // of one copy: history, and the jobs and payloads that are kept with it
	Disk         float64 // of all copies, with what is kept free
	Ranges       float64
	DiskPerNode  float64
	TableOfBytes map[string]float64
}

// Volume works out a retention of so many days, on so many nodes.
func (f *Facts) Volume(p Plan, days, nodes float64, a assumed) Volume {
	rows := days * p.JobsPerDay
	v := Volume{Days: days, Rows: rows, TableOfBytes: map[string]float64{}}
	for _, name := range []string{"runs", "jobs", "payloads"} {
		v.TableOfBytes[name] = rows * f.Table(name).Bytes()
		v.Bytes += v.TableOfBytes[name]
	}
	// A timer is three versions and gone; a day of them lies ahead.
	v.TableOfBytes["timers"] = f.Table("timers").Bytes() * (p.JobsPerDay + 3*p.Average()*a[garbage])
	v.Bytes += v.TableOfBytes["timers"]
	v.Disk = v.Bytes * a[replication] / (1 - a[freeDisk])
	v.Ranges = math.Ceil(v.Bytes / (a[rangeSize] * (1 << 20) * a[rangeFill]))
	v.DiskPerNode = v.Disk / nodes
	return v
}

// Road is what a moment asks of NATS, per second where it is a rate.
type Road struct {
	Stored float64 // messages
	Acks   float64 // of consumers, which go through Raft as well
	Bytes  float64 // of all copies
	Kept   float64 // bytes of one copy in STATUS
	Budget float64 // seconds of runs that RUNS holds at 1 GiB
}

// Road works out a moment.
func (f *Facts) Road(m Moment, a assumed) Road {
	msg := f.Messages
	r := Road{Stored: m.Runs * (1 + msg.StatusMessages)}
	r.Acks = r.Stored
	one := m.Runs * (msg.RunBytes + msg.StatusBytes)
	r.Bytes = one * a[replication]
	r.Kept = m.Runs * msg.StatusBytes * msg.StatusKept
	r.Budget = (1 << 30) / (m.Runs * msg.RunBytes)
	return r
}

// Price is what a day costs, in parts, by the peak and a retention.
type Price struct {
	Database, Disk, NATS, Roles, Traffic float64 // dollars a day
	PerMillion                           float64
}

// Price of a plan, with so many vCPU for the roles.
func (f *Facts) Price(p Plan, d Database, v Volume, roles float64, a assumed) Price {
	const day, month = 24, 30.
	x := Price{
		Database: d.Nodes * a[nodeCPU] * a[priceCPU] * day,
		Disk:     v.Disk / 1e9 * a[priceDisk] / month,
		NATS:     a[natsNodes] * a[natsCPU] * a[priceCPU] * day,
		Roles:    roles * a[priceCPU] * day,
	}
	avg := f.Database(p.Moments()[0], a)
	road := f.Road(p.Moments()[0], a)
	// Two of three copies leave the zone.
	crossing := (avg.Bytes*(a[replication]-1) + road.Bytes*(a[replication]-1)/a[replication]) * 86_400
	x.Traffic = crossing / 1e9 * a[priceTraffic]
	x.PerMillion = (x.Database + x.Disk + x.NATS + x.Roles + x.Traffic) / (p.JobsPerDay / 1e6)
	return x
}
