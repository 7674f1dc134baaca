package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/chaos/fault"
)

const (
	// between is the longest time between two faults of a lane; after each few of them comes a calm, in which no lane brings any: what waits has its turn, and
	// once it has had the time to recover it is looked at whether anything waits too long.
	between   = 2 * time.Second
	calmEvery = 8
	calm      = checker.Recovery + 5*time.Second
	// landTries is how often a fault is brought that hits nothing, before another kind has its turn. A failpoint, which may not be reached, is brought again only
	// while triesLeave times as long as it has taken is left of the run, so that in a short one it does not take it all.
	landTries  = 3
	triesLeave = 4
)

// nemesis brings faults upon a world: in lanes that go on beside each other, each drawing from kinds of its own, so that no two faults hit the same thing.
type nemesis struct {
	lanes []*lane
	note  func(format string, args ...any)
	// most is how many may land before the run ends; 0: no bound.
	most int

	// busy has room for one fault of each lane; a calm takes all of it.
	busy chan struct{}

	mu      sync.Mutex
	count   int // of faults since the beginning, each with all its tries
	brought map[string]int
	landed  map[string]int
	windows []window
}

// lane draws kinds in rounds: none comes again before each has come once.
type lane struct {
	rng   *rand.Rand
	kinds [][]fault.Fault
	left  []int
}

func newNemesis(faults []fault.Fault, lanes int, note func(string, ...any), source func(part uint64) *rand.Rand) *nemesis {
	n := &nemesis{note: note, brought: map[string]int{}, landed: map[string]int{}}
	byKind := map[string][]fault.Fault{}
	for _, f := range faults {
		byKind[f.Kind] = append(byKind[f.Kind], f)
	}
	of := make([][][]fault.Fault, 2)
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		i := 0
		if lanes > 1 && surroundings[byKind[kind][0].Group] {
			i = 1
		}
		of[i] = append(of[i], byKind[kind])
	}
	for i, kinds := range of {
		if len(kinds) > 0 {
			n.lanes = append(n.lanes, &lane{rng: source(uint64(1000 + i)), kinds: kinds}) //nolint:gosec // small
		}
	}
	n.busy = make(chan struct{}, len(n.lanes))
	return n
}

// surroundings are the groups of faults that hit what is around the processes of Waterclock: they have a lane of their own.
var surroundings = map[string]bool{fault.Link: true, fault.NATS: true, fault.Stream: true, fault.SQL: true}

func (l *lane) draw() fault.Fault {
	if len(l.left) == 0 {
		l.left = l.rng.Perm(len(l.kinds))
	}
	kind := l.kinds[l.left[0]]
	l.left = l.left[1:]
	return fault.Pick(l.rng, kind)
}

// work brings faults until the time is over, or enough have landed.
func (n *nemesis) work(ctx context.Context, until time.Time) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	errs := make([]error, len(n.lanes))
	var wg sync.WaitGroup
	for i, l := range n.lanes {
		wg.Go(func() {
			if errs[i] = n.lane(ctx, l, until); errs[i] != nil {
				stop(errs[i])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (n *nemesis) lane(ctx context.Context, l *lane, until time.Time) error {
	pause := fault.Between(l.rng, 0, between)
	for {
		if err := fault.Wait(ctx, min(pause, time.Until(until))); err != nil {
			return err
		}
		n.busy <- struct{}{} // a calm may have to end first
		if !time.Now().Before(until) || n.enough() {
			<-n.busy
			return nil
		}
		err := n.bring(ctx, l.rng, l.draw(), until)
		<-n.busy
		if err == nil && n.calmIsDue() {
			err = n.calm(ctx, until)
		}
		if err != nil {
			return err
		}
		pause = fault.Between(l.rng, 0, between)
	}
}

// calmIsDue counts the faults of all lanes, and is true after each few.
func (n *nemesis) calmIsDue() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count++
	return n.count%(calmEvery*len(n.lanes)) == 0
}

// calm waits for the faults of all lanes to end, and lets none begin for a while.
func (n *nemesis) calm(ctx context.Context, until time.Time) error {
	for range n.lanes {
		n.busy <- struct{}{} // a fault ends, also where the run does
		defer func() { <-n.busy }()
	}
	n.note("calm")
	return fault.Wait(ctx, min(calm, time.Until(until)))
}

func (n *nemesis) enough() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	total := 0
	for _, c := range n.landed {
		total += c
	}
	return n.most > 0 && total >= n.most
}

func (n *nemesis) bring(ctx context.Context, rng *rand.Rand, f fault.Fault, until time.Time) error {
	began := time.Now()
	for try := 1; ; try++ {
		n.note("fault: %s", f.Kind)
		from := time.Now()
		err := f.Bring(ctx, rng)
		till := time.Now()
		n.note("fault over after %s: %s", till.Sub(from).Round(time.Millisecond), f.Kind)
		n.mu.Lock()
		n.brought[f.Kind]++
		n.windows = append(n.windows, window{checker.Window{From: from, Till: till}, f.Loses})
		if err == nil {
			n.landed[f.Kind]++
		}
		n.mu.Unlock()
		if err == nil {
			return nil
		}
		if !errors.Is(err, fault.ErrNotLanded) {
			return fmt.Errorf("%s: %w", f.Kind, err)
		}
		if try == landTries || f.Group == fault.Failpoint && time.Until(until) < triesLeave*time.Since(began) {
			return nil
		}
	}
}

// never are the kinds that were brought and never landed.
func (n *nemesis) never() []string {
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(n.brought)) {
		if n.landed[kind] == 0 {
			out = append(out, kind)
		}
	}
	return out
}

// choose leaves the faults that were asked for by group or kind: all, where none is named.
func choose(faults []fault.Fault, groups []string) ([]fault.Fault, error) {
	if len(groups) == 0 {
		return faults, nil
	}
	there, kinds := map[string]bool{}, map[string]bool{}
	var out []fault.Fault
	for _, f := range faults {
		there[f.Group], kinds[f.Kind] = true, true
		if slices.Contains(groups, f.Group) || slices.Contains(groups, f.Kind) {
			out = append(out, f)
		}
	}
	for _, g := range groups {
		if !there[g] && !kinds[g] {
			return nil, fmt.Errorf("faults: given %q, allowed: the groups %s, and the kinds %s", g,
				strings.Join(slices.Sorted(maps.Keys(there)), ", "), strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
		}
	}
	return out, nil
}

// load is what a fault may be aimed at.
type load interface {
	// burst makes many runs fall due at once.
	burst(ctx context.Context)
	// cancels asks for the cancel of each run of the last burst, and does not wait for the answers.
	cancels(ctx context.Context)
	// stir does what makes processes pass a failpoint, beside everything else; it does not wait.
	stir(kind string)
}

// aimed adds to each kill the kinds that come right after a burst of deliveries, and in the midst of cancels, in every step between their commit and their answer;
// and it sees to it that failpoints are passed.
func aimed(faults []fault.Fault, on load) []fault.Fault {
	out := slices.Clone(faults)
	for i, f := range faults {
		if f.Group == fault.Failpoint {
			out[i].Bring = func(ctx context.Context, rng *rand.Rand) error {
				on.stir(f.Kind)
				return f.Bring(ctx, rng)
			}
		}
		if f.Group != fault.Process || !strings.HasPrefix(f.Kind, "kill -9") {
			continue
		}
		after := func(kind string, within time.Duration, cancels bool) {
			out = append(out, fault.Fault{Kind: f.Kind + kind, Group: f.Group, Bring: func(ctx context.Context, rng *rand.Rand) error {
				on.burst(ctx)
				if cancels {
					on.cancels(ctx)
				}
				if err := fault.Wait(ctx, fault.Between(rng, 0, within)); err != nil {
					return err
				}
				return f.Bring(ctx, rng)
			}})
		}
		after(" right after a burst", 150*time.Millisecond, false)
		after(" in the midst of cancels", 30*time.Millisecond, true)
	}
	return out
}
