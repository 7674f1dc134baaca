package harness

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waterclock-io/waterclock/chaos/checker"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

func TestRunFailsWhereTheProcessDoesNotStart(t *testing.T) {
	t.Parallel()
	_, err := Run(t.Context(), Options{Binary: "/bin/false", Store: "sqlite", Seed: 1, For: time.Second, Dir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "ended while it started") {
		t.Errorf("a process that ends at once: %v", err)
	}
}

func TestSkipsAreReadWithWhatTheyStandFor(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	through := at.Add(2500 * time.Millisecond)
	run := &waterclockv1.Run{
		RunId: "r", Origin: waterclockv1.RunOrigin_RUN_ORIGIN_SCHEDULE, State: waterclockv1.RunState_RUN_STATE_SKIPPED, ScheduledTime: timestamppb.New(at),
		Outcome: &waterclockv1.Outcome{Reason: "missed"}, SkippedCount: 3, SkippedThrough: timestamppb.New(through),
	}
	want := checker.Run{ID: "r", Origin: "schedule", State: "skipped", Reason: "missed", Scheduled: at, Through: through, Count: 3}
	if diff := cmp.Diff(want, readRun(run)); diff != "" {
		t.Error(diff)
	}
	run.State, want.State, want.Through, want.Count = waterclockv1.RunState_RUN_STATE_SUCCEEDED, "succeeded", at, 1
	if diff := cmp.Diff(want, readRun(run)); diff != "" {
		t.Error(diff)
	}
}

func TestWorkGoesOnIsMeasuredAcrossOutages(t *testing.T) {
	t.Parallel()
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	var outages []window
	for _, o := range [][2]int{{23, 30}, {10, 12}, {20, 22}, {50, 55}} {
		outages = append(outages, window{Window: checker.Window{From: at(o[0]), Till: at(o[1])}})
	}
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
