package harness

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/job/schedule"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
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
	for _, f := range []fault.Fault{lands, never} {
		if err := n.bring(t.Context(), source(1), f); err != nil {
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
	if err := n.bring(t.Context(), source(1), broken); err == nil || !strings.Contains(err.Error(), "breaks: no such process") {
		t.Errorf("a fault that could not be brought: %v", err)
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

func TestJobsMadeAreValidAndEndWithTheLoad(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for seed := range uint64(500) {
		m := &maker{rng: source(seed), end: now.Add(time.Minute), child: []string{"chaos", "child"}}
		for _, begin := range []time.Time{now, m.end.Add(-time.Millisecond), m.end.Add(5 * time.Second)} {
			spec, j := m.series(1, begin)
			if err := j.Schedule.Validate(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if latest := m.end.Add(7 * time.Second); j.Schedule.End.After(latest) {
				t.Errorf("seed %d: the series ends at %s, the load at %s", seed, j.Schedule.End, m.end)
			}
			if !spec.GetSchedule().GetEnd().AsTime().Equal(j.Schedule.End) || !spec.GetSchedule().GetEvery().GetAnchor().AsTime().Equal(j.Schedule.Anchor) {
				t.Errorf("seed %d: what is sent (%v) is not what is remembered (%v)", seed, spec.GetSchedule(), j.Schedule)
			}
		}
		if _, j := m.one(1, now); j.Schedule.Validate() != nil || j.Schedule.Kind != schedule.Once {
			t.Errorf("seed %d: %v", seed, j.Schedule)
		}
	}
}

func TestChildWritesItsLinesAndFailsAsTold(t *testing.T) {
	t.Setenv("WATERCLOCK_RUN_ID", "r")
	t.Setenv("WATERCLOCK_ATTEMPT", "2")
	t.Setenv("WATERCLOCK_DISPATCH", "5")
	file := filepath.Join(t.TempDir(), "lines")
	if err := Child([]string{"--file", file, "--number", "7", "--fails", "1"}); err != nil {
		t.Errorf("the second attempt fails: %v", err)
	}
	if Child([]string{"--file", file, "--number", "7", "--fails", "2"}) == nil {
		t.Error("the second attempt was to fail, and did not")
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := checker.ParseLines(string(b))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []checker.LineKind
	for _, l := range lines {
		kinds = append(kinds, l.Kind)
		if l.RunID != "r" || l.Attempt != 2 || l.Dispatch != 5 || l.Number != 7 || l.Group == 0 || l.At.IsZero() {
			t.Errorf("line %+v", l)
		}
	}
	if diff := cmp.Diff([]checker.LineKind{checker.Start, checker.End, checker.Start, checker.End}, kinds); diff != "" {
		t.Error(diff)
	}
	t.Setenv("WATERCLOCK_DISPATCH", "")
	if err := Child([]string{"--file", file}); err == nil || !strings.Contains(err.Error(), "WATERCLOCK_DISPATCH") {
		t.Errorf("without a dispatch: %v", err)
	}
}

func TestRunFailsWhereTheProcessDoesNotStart(t *testing.T) {
	t.Parallel()
	_, err := Run(t.Context(), Options{Binary: "/bin/false", Store: "sqlite", Seed: 1, For: time.Second, Dir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "ended while it started") {
		t.Errorf("a process that ends at once: %v", err)
	}
}

func TestOutlivingCommandsAreSeen(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "lines")
	cmd := exec.Command("sh", "-c", "read line", "sh", file)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if n, err := outliving(file); n != 1 || err != nil {
		t.Errorf("%d processes are seen, want 1: %v", n, err)
	}
	_ = in.Close()
	_ = cmd.Wait()
	if n, err := outliving(file); n != 0 || err != nil {
		t.Errorf("%d processes are seen, want none: %v", n, err)
	}
}

func TestSkipsAreReadWithWhatTheyStandFor(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	run := func(message string) *waterclockv1.Run {
		return &waterclockv1.Run{
			RunId: "r", Origin: waterclockv1.RunOrigin_RUN_ORIGIN_SCHEDULE, State: waterclockv1.RunState_RUN_STATE_SKIPPED, ScheduledTime: timestamppb.New(at),
			Outcome: &waterclockv1.Outcome{Reason: "missed", Message: message},
		}
	}
	want := checker.Run{ID: "r", Origin: "schedule", State: "skipped", Reason: "missed", Scheduled: at, Through: at, Count: 1}
	got, err := readRun(run(""))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	want.Through, want.Count = at.Add(2500*time.Millisecond), 3
	got, err = readRun(run("3 occurrences, the last at 2026-11-21T12:00:02.5Z"))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if _, err := readRun(run("3 occurrences, the last at noon")); err == nil {
		t.Error("a text that is no time was read")
	}
}

func TestWorkGoesOnIsMeasuredAcrossOutages(t *testing.T) {
	t.Parallel()
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	outages := []window{{from: at(23), till: at(30)}, {from: at(10), till: at(12)}, {from: at(20), till: at(22)}, {from: at(50), till: at(55)}}
	starts := []time.Time{at(1), at(13), at(15), at(34), at(49), at(60)}
	want := []time.Duration{time.Second, 5 * time.Second, 5 * time.Second}
	if diff := cmp.Diff(want, wentOn(outages, starts)); diff != "" {
		t.Error(diff)
	}
}

func TestReportFailsOnWhatMustNotBe(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := &Report{Seed: 5, Brought: map[string]int{"kill -9": 2}, Landed: map[string]int{"kill -9": 2}, WentOn: []time.Duration{time.Second}}
	if r.Failed() {
		t.Error("a clean report failed")
	}
	r.Violations = []checker.Violation{{Invariant: 3, JobID: "j", RunID: "r", Detail: "twice"}}
	if err := r.Print(&out); err != nil || !r.Failed() {
		t.Error("a violation passed", err)
	}
	for _, want := range []string{"2 of 2: kill -9", "invariant 3", "job j run r: twice", "worst 1s"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &out)
		}
	}
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte("time=x level=WARN msg=\"slow \\\"disk\\\"\" a=1\npanic: oh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = &Report{Odd: map[string]int{}}
	r.scanLog(log)
	if !r.Failed() || r.Odd[`log: WARN "slow \"disk\""`] != 1 {
		t.Errorf("%+v", r)
	}
}
