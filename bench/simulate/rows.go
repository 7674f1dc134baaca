package simulate

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sort"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
)

// key orders the timers of a shard.
type key struct {
	due    time.Duration // as scheduled, or when it came back
	number int           // in place of the run's id
}

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.due, o.due), cmp.Compare(k.number, o.number))
}

// row is a timer.
type row struct {
	key
	shard     *shard
	scheduled time.Duration
	dispatch  int
	marked    bool
	markedAt  time.Duration
	sent      bool // published at this dispatch
	lag       time.Duration
	by        *planner // that marked it last
}

// shard is the row of a shard with its timers in order of time.
type shard struct {
	id     int32
	owner  string
	epoch  int64
	rows   []*row
	head   int           // all before this are sent
	unsent map[*row]bool // marked, and in no stream
}

// load makes all timers before the clock starts: they were submitted long ago. A job's shard is the product's own hash of its id.
func (s *sim) load() {
	for id := range s.cfg.Shards {
		s.shards = append(s.shards, &shard{id: id, unsent: map[*row]bool{}})
	}
	for _, l := range s.cfg.Loads {
		ids := make([]int32, l.Runs)
		if l.Jobs > 0 {
			ids = make([]int32, l.Jobs)
		}
		for i := range ids {
			ids[i] = job.ShardOf(s.id(), s.cfg.Shards)
		}
		for i := range l.Runs {
			due := l.From
			if l.Runs > 1 {
				due += time.Duration(float64(l.To-l.From) * float64(i) / float64(l.Runs-1))
			}
			sh := s.shards[ids[i%len(ids)]]
			r := &row{key: key{due, len(s.rows)}, shard: sh, scheduled: due}
			sh.rows = append(sh.rows, r)
			s.rows = append(s.rows, r)
		}
	}
	for _, sh := range s.shards {
		slices.SortFunc(sh.rows, func(a, b *row) int { return a.compare(b.key) })
	}
}

// id is a random UUID of version 4, as the store makes them.
func (s *sim) id() uuid.UUID {
	var id uuid.UUID
	binary.LittleEndian.PutUint64(id[:8], s.rng.Uint64())
	binary.LittleEndian.PutUint64(id[8:], s.rng.Uint64())
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}

// seen is a row as a read found it.
type seen struct {
	*row
	at       key
	dispatch int
}

// readDue returns up to limit rows after a place that are due before a time, in order.
func (sh *shard) readDue(after key, until time.Duration, limit int) (found []seen) {
	for sh.head < len(sh.rows) && sh.rows[sh.head].sent {
		sh.head++
	}
	rest := sh.rows[sh.head:]
	begin := sort.Search(len(rest), func(i int) bool { return rest[i].compare(after) > 0 })
	for _, r := range rest[begin:] {
		if r.due >= until || len(found) == limit {
			break
		}
		if !r.marked {
			found = append(found, seen{r, r.key, r.dispatch})
		}
	}
	return found
}

// comeBack makes a row due again whose hand-over was lost: the same run, under another key.
func (sh *shard) comeBack(r *row, now time.Duration) {
	at := slices.Index(sh.rows, r)
	sh.rows = slices.Delete(sh.rows, at, at+1)
	if at < sh.head {
		sh.head--
	}
	r.due, r.marked = now, false
	delete(sh.unsent, r)
	to := sort.Search(len(sh.rows), func(i int) bool { return sh.rows[i].compare(r.key) > 0 })
	sh.rows = slices.Insert(sh.rows, to, r)
	sh.head = min(sh.head, to)
}
