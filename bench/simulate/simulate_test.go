package simulate

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/waterclock-io/waterclock/planner/membership"
)

func members(n int) []Member {
	var out []Member
	for _, id := range ids(rand.New(rand.NewPCG(7, 7)), n) { //nolint:gosec // repeatable on purpose
		out = append(out, Member{ID: id})
	}
	return out
}

func config(n int, loads ...Load) Config {
	c := Default(1, DefaultCosts)
	c.Members, c.Loads, c.Until = members(n), loads, time.Minute
	return c
}

// many tries something at many seeds, each a test of its own: its name says the seed.
func many(t *testing.T, times int, try func(t *testing.T, rng *rand.Rand)) {
	for seed := range times {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			try(t, rand.New(rand.NewPCG(uint64(seed), 4))) //nolint:gosec // repeatable on purpose
		})
	}
}

func run(t *testing.T, c Config) *Result {
	t.Helper()
	r, err := Run(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSameSeedSameResult(t *testing.T) {
	t.Parallel()
	c := config(3, Load{Runs: 20_000, From: 3 * time.Second, To: 20 * time.Second})
	c.Members = kill(c.Members, 1, 8*time.Second)
	first := run(t, c)
	if diff := cmp.Diff(first, run(t, c), cmpopts.IgnoreUnexported(Event{})); diff != "" {
		t.Error("the same configuration gave (-first +second):\n" + diff)
	}
	c.Seed++
	if cmp.Equal(first, run(t, c), cmpopts.IgnoreUnexported(Event{})) {
		t.Error("another seed gave the same")
	}
}

// Whatever comes, leaves and dies: as long as one lives to the end, each run is handed out once and not early.
func TestEveryRunOnce(t *testing.T) {
	t.Parallel()
	many(t, 80, func(t *testing.T, rng *rand.Rand) {
		second := func(from, to float64) time.Duration {
			return time.Duration((from + rng.Float64()*(to-from)) * float64(time.Second))
		}
		c := config(1 + rng.IntN(6))
		c.Seed = rng.Uint64()
		c.Shards = []int32{1, 7, 64}[rng.IntN(3)]
		c.Costs.Parallel = 1 + rng.IntN(4)
		for i := range c.Members {
			c.Members[i].Joins = second(0, 15)
			if i > 0 && rng.IntN(2) == 0 {
				c.Members[i].Ends = c.Members[i].Joins + second(.001, 15)
				c.Members[i].Killed = rng.IntN(2) == 0
			}
		}
		want := 0
		for range 1 + rng.IntN(3) {
			l := Load{Runs: 1 + rng.IntN(3000), From: second(0, 20), Jobs: []int{0, 1, 5}[rng.IntN(3)]}
			l.To = l.From + second(0, 10)
			c.Loads = append(c.Loads, l)
			want += l.Runs
		}
		r := run(t, c)
		if got := r.Calm.Runs + r.Moving.Runs; got != want || r.Unplanned != 0 || r.Early != 0 || r.Twice != 0 {
			t.Fatalf("%d of %d runs handed out, %d left, %d early, %d twice", got, want, r.Unplanned, r.Early, r.Twice)
		}
		shards := 0
		for _, s := range r.Shares {
			shards += s.Shards
		}
		if shards != int(c.Shards) {
			t.Fatalf("%d of %d shards are owned at the end: %+v", shards, c.Shards, r.Shares)
		}
	})
}

func TestSomethingIsLeftWithoutPlanners(t *testing.T) {
	t.Parallel()
	c := config(1, Load{Runs: 1000, From: 5 * time.Second, To: 15 * time.Second})
	c.Members = kill(c.Members, 0, 10*time.Second)
	if r := run(t, c); r.Unplanned < 400 || r.Unplanned > 600 {
		t.Errorf("%d of 1,000 runs were left when the only planner died half way", r.Unplanned)
	}
}

func TestAfterADeath(t *testing.T) {
	t.Parallel()
	many(t, 30, func(t *testing.T, rng *rand.Rand) {
		n := 2 + rng.IntN(11)
		c := config(n, Load{Runs: 20_000, From: 5 * time.Second, To: 25 * time.Second})
		c.Seed = rng.Uint64()
		at := 10*time.Second + time.Duration(rng.IntN(2000))*time.Millisecond
		c.Members = kill(c.Members, rng.IntN(n), at)
		r := run(t, c)
		e := r.Events[len(r.Events)-1]
		if e.What != killed {
			t.Fatalf("the last event is %+v", e)
		}
		if e.Moved != e.Must {
			t.Fatalf("%d shards moved, %d had to", e.Moved, e.Must)
		}
		if limit := membership.TTL + 2*membership.RenewEvery; e.Must > 0 && (e.Owned < membership.TTL-membership.RenewEvery || e.Owned > limit) {
			t.Fatalf("all was owned again after %s, want up to %s", e.Owned, limit)
		}
		// The heir works off what fell due meanwhile beside its own.
		if r.Calm.Max > 150*time.Millisecond {
			t.Fatalf("a run of a shard that stayed was %s late", r.Calm.Max)
		}
		if e.Must > 0 && (r.Moving.Max < time.Second || r.Moving.Max > 8*time.Second) {
			t.Fatalf("the latest run of the shards that moved was %s late", r.Moving.Max)
		}
	})
}

func TestAfterAStopAndAJoin(t *testing.T) {
	t.Parallel()
	for _, what := range []string{left, joined} {
		c := config(4, Load{Runs: 20_000, From: 5 * time.Second, To: 25 * time.Second})
		if what == left {
			c.Members[0].Ends = 10 * time.Second
		} else {
			c.Members[0].Joins = 10 * time.Second
		}
		r := run(t, c)
		e := r.Events[len(r.Events)-1]
		if e.What != what || e.Moved != e.Must || e.Must == 0 {
			t.Errorf("%s: %+v", what, e)
		}
		limit := membership.RenewEvery + 200*time.Millisecond
		if e.Owned < 0 || e.Owned > limit || e.Settled < 0 || e.Settled > limit {
			t.Errorf("%s: owned after %s and settled after %s, want up to %s", what, e.Owned, e.Settled, limit)
		}
		if r.Lost != 0 {
			t.Errorf("%s: %d hand-overs were lost", what, r.Lost)
		}
		// Who claims a shard reads what is due within mark_ahead at once, and the rest with its next read.
		if r.Moving.Max > limit+readEvery {
			t.Errorf("%s: a run was %s late, want up to %s", what, r.Moving.Max, limit+readEvery)
		}
	}
}

// Two that believe to own one shard both try, and one wins: without the guard the runs would be handed out twice.
func TestTwoOwners(t *testing.T) {
	t.Parallel()
	stale := 0
	for seed := range uint64(20) {
		c := config(2, Load{Runs: 100_000, From: 9 * time.Second, To: 13 * time.Second})
		c.Seed = seed
		c.Members[1].Joins = 10 * time.Second
		r := run(t, c)
		stale += r.Stale
		if r.Twice != 0 || r.Unplanned != 0 {
			t.Errorf("seed %d: %d twice, %d left", seed, r.Twice, r.Unplanned)
		}
	}
	if stale == 0 {
		t.Error("in 20 joins no two planners ever tried the same row: the guard was not tried")
	}
}

func TestSkew(t *testing.T) {
	t.Parallel()
	burst := Load{Runs: 50_000, From: 10 * time.Second, To: 10 * time.Second}
	spread := run(t, config(4, burst))
	burst.Jobs = 2000
	tenant := run(t, config(4, burst))
	burst.Jobs = 1
	one := run(t, config(4, burst))
	if tenant.Done > spread.Done*5/4 {
		t.Errorf("the runs of 2,000 jobs took until %s, those of 50,000 until %s", tenant.Done, spread.Done)
	}
	if took, all := one.Done-10*time.Second, spread.Done-10*time.Second; took < 2*all {
		t.Errorf("the runs of one job, all in one shard, took %s, spread over all %s", took, all)
	}
}

// What falls due at one instant is read ahead page by page, and then handed out as quickly as one publishes.
func TestInstant(t *testing.T) {
	t.Parallel()
	const runs = 30_000
	r := run(t, config(1, Load{Runs: runs, From: 10 * time.Second, To: 10 * time.Second}))
	if least, took := runs*DefaultCosts.Publish, r.Done-10*time.Second; took < least || took > least+200*time.Millisecond {
		t.Errorf("%d runs at one instant took %s, want %s or a little more", runs, took, least)
	}
}

func TestBalances(t *testing.T) {
	t.Parallel()
	got := Balances(1, 50, []int{1, 8}, []int32{8, 64, 512})
	if one := got[0]; one.Mean > 1+1e-9 || one.Worst != 1 || one.Idle != 0 {
		t.Errorf("one planner: %+v", one)
	}
	if few, some, many := got[3], got[4], got[5]; !(few.Mean > some.Mean && some.Mean > many.Mean && many.Mean > 1) || few.Idle == 0 || many.Idle != 0 {
		t.Errorf("8 planners over 8, 64 and 512 shards: %+v %+v %+v", few, some, many)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(c *Config){
		"shards":  func(c *Config) { c.Shards = 0 },
		"members": func(c *Config) { c.Members = nil },
		"until":   func(c *Config) { c.Until = 0 },
		"horizon": func(c *Config) { c.Horizon = time.Millisecond },
		"ends":    func(c *Config) { c.Members[0].Joins, c.Members[0].Ends = 2, 1 },
		"same":    func(c *Config) { c.Members[1] = c.Members[0] },
	} {
		c := config(2)
		broken(&c)
		if _, err := Run(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The simulation repeats constants that the planner keeps to itself.
func TestConstants(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"markLead": "50 * time.Millisecond", "markCost": "20 * time.Microsecond", "rollCallTime": "500 * time.Millisecond", "maxMarks": "2", "readEvery": "time.Second", "readPage": "4000", "readPages": "20", "checkShards": "10",
		"finishWithin": "time.Second", "watchEvery": "100 * time.Millisecond", "recountEvery": "20 * time.Second",
		"DefaultHorizon": "2500 * time.Millisecond", "DefaultBatch": "500",
	}
	files, err := filepath.Glob("../../planner/*.go")
	if err != nil {
		t.Fatal(err)
	}
	constant := regexp.MustCompile(`(?m)^(?:const|\t)\s*(\w+)\s*= ([^/\n]*[^/\s])`)
	theirs, ours := map[string]string{}, map[string]string{}
	for file, into := range map[string]map[string]string{"simulate.go": ours} {
		collect(t, constant, file, into, want)
	}
	for _, file := range files {
		collect(t, constant, file, theirs, want)
	}
	if diff := cmp.Diff(want, theirs); diff != "" {
		t.Error("the planner's constants (-want +got):\n" + diff)
	}
	if diff := cmp.Diff(want, ours); diff != "" {
		t.Error("the simulation's constants (-want +got):\n" + diff)
	}
}

func collect(t *testing.T, constant *regexp.Regexp, file string, into, want map[string]string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range constant.FindAllStringSubmatch(string(text), -1) {
		if _, ok := want[m[1]]; ok {
			into[m[1]] = m[2]
		}
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	base := Default(1, DefaultCosts)
	c := config(2, Load{Runs: 1000, From: settled, To: settled + time.Second})
	c.Members = kill(c.Members, 0, settled)
	var b strings.Builder
	if err := Write(&b, base, []Scenario{{"one dies", c}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| one dies | 2 | 1,000 |", "is killed", "No run was early", fmt.Sprintf("| %d |", balancePlanners[len(balancePlanners)-1])} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	c.Until = settled + 500*time.Millisecond
	if err := Write(&b, base, []Scenario{{"too short", c}}); err != nil || !strings.Contains(b.String(), `**In "too short" `) {
		t.Errorf("runs that were left are not told: %v\n%s", err, b.String())
	}
}
