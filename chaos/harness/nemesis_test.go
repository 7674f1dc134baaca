package harness

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/chaos/fault"
)

func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// played is a fault that lands each time.
func played(kind, group string) fault.Fault {
	return fault.Fault{Kind: kind, Group: group, Bring: func(context.Context, *rand.Rand) error { return nil }}
}

func TestEachRoundHasEveryKindOnce(t *testing.T) {
	t.Parallel()
	faults := []fault.Fault{played("a", "process"), played("a", "process"), played("b", "process"), played("c", "sql"), played("d", "link"), played("e", "clock")}
	rounds := func(seed uint64) (out []string) {
		n := newNemesis(faults, 2, t.Logf, func(part uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, part)) })
		for _, l := range n.lanes {
			for range 5 {
				seen := map[string]bool{}
				for range l.kinds {
					f := l.draw()
					if seen[f.Kind] {
						t.Errorf("%s came twice in a round", f.Kind)
					}
					seen[f.Kind] = true
					out = append(out, f.Kind)
				}
				if len(seen) != len(l.kinds) {
					t.Errorf("a round had %d kinds of %d", len(seen), len(l.kinds))
				}
			}
		}
		return out
	}
	first := rounds(1)
	if len(first) != 5*5 {
		t.Errorf("%d faults in five rounds of five kinds", len(first))
	}
	if diff := cmp.Diff(first, rounds(1)); diff != "" {
		t.Errorf("one seed makes two plans:\n%s", diff)
	}
	if cmp.Diff(first, rounds(2)) == "" {
		t.Error("two seeds make one plan")
	}
}

func TestAFaultThatHitsNothingIsTriedAgainAndTold(t *testing.T) {
	t.Parallel()
	tries := 0
	lands := fault.Fault{Kind: "lands at last", Bring: func(context.Context, *rand.Rand) error {
		if tries++; tries < landTries {
			return fault.ErrNotLanded
		}
		return nil
	}}
	never := fault.Fault{Kind: "never lands", Bring: func(context.Context, *rand.Rand) error { return fault.ErrNotLanded }}
	n := newNemesis(nil, 1, t.Logf, nil)
	until := time.Now().Add(time.Hour)
	for _, f := range []fault.Fault{lands, never} {
		if err := n.bring(t.Context(), source(1), f, until); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"never lands"}, n.never()); diff != "" {
		t.Error(diff)
	}
	if n.landed["lands at last"] != 1 || n.brought["lands at last"] != landTries || len(n.windows) != 2*landTries {
		t.Errorf("landed %v of %v", n.landed, n.brought)
	}
	broken := fault.Fault{Kind: "breaks", Bring: func(context.Context, *rand.Rand) error { return errors.New("no such process") }}
	if err := n.bring(t.Context(), source(1), broken, until); err == nil || !strings.Contains(err.Error(), "breaks: no such process") {
		t.Errorf("a fault that could not be brought: %v", err)
	}
	late := fault.Fault{Kind: "late", Group: fault.Failpoint, Bring: never.Bring}
	if err := n.bring(t.Context(), source(1), late, time.Now()); err != nil || n.brought["late"] != 1 {
		t.Errorf("brought %d times when the run was over, want once: %v", n.brought["late"], err)
	}
}

func TestFaultsAreChosenByGroup(t *testing.T) {
	t.Parallel()
	all := []fault.Fault{played("a", "process"), played("b", "sql")}
	got, err := choose(all, []string{"sql"})
	if err != nil || len(got) != 1 || got[0].Kind != "b" {
		t.Errorf("chosen: %v, %v", got, err)
	}
	if got, err = choose(all, []string{"a"}); err != nil || len(got) != 1 || got[0].Kind != "a" {
		t.Errorf("chosen by kind: %v, %v", got, err)
	}
	if _, err := choose(all, []string{"weather"}); err == nil || !strings.Contains(err.Error(), `given "weather", allowed: the groups process, sql, and the kinds a, b`) {
		t.Errorf("an unknown group: %v", err)
	}
}

// Two lanes go on beside each other, and after each few faults both are quiet for longer than what is left of a fault is excused.
func TestACalmIsOfAllLanes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var brought []checker.Window
		lasts := func(kind, group string, long time.Duration) fault.Fault {
			return fault.Fault{Kind: kind, Group: group, Bring: func(ctx context.Context, _ *rand.Rand) error {
				from := time.Now()
				err := fault.Wait(ctx, long)
				mu.Lock()
				defer mu.Unlock()
				brought = append(brought, checker.Window{From: from, Till: time.Now()})
				return err
			}}
		}
		n := newNemesis([]fault.Fault{lasts("a", fault.Process, 3*time.Second), lasts("b", fault.SQL, 7*time.Second)}, 2, t.Logf, seededPart)
		if err := n.work(t.Context(), time.Now().Add(10*time.Minute)); err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(brought, func(a, b checker.Window) int { return a.From.Compare(b.From) })
		calms, beside := 0, 0
		over := brought[0].From
		for _, w := range brought {
			if w.From.Sub(over) >= checker.Recovery+checker.Bound {
				calms++
			}
			if w.From.Before(over) {
				beside++
			}
			if w.Till.After(over) {
				over = w.Till
			}
		}
		if want := len(brought)/(2*calmEvery) - 1; calms < want || beside == 0 {
			t.Errorf("%d calms in %d faults, want %d; %d began beside another", calms, len(brought), want, beside)
		}
	})
}

func seededPart(part uint64) *rand.Rand { return rand.New(rand.NewPCG(1, part)) }
