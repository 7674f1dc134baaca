package convert_test

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waterclock-io/waterclock/api/convert"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
)

var now = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

func full() *waterclockv1.JobSpec {
	return &waterclockv1.JobSpec{
		Kind: "exec", Input: &waterclockv1.JobSpec_Payload{Payload: []byte("p")}, Name: "n", Queue: "q", Priority: waterclockv1.Priority_PRIORITY_LOW,
		Schedule: &waterclockv1.Schedule{
			Kind:  &waterclockv1.Schedule_Cron{Cron: &waterclockv1.Cron{Spec: "0 9 * * *", Zone: "Europe/Berlin"}},
			Start: timestamppb.New(now), End: timestamppb.New(now.AddDate(1, 0, 0)), Jitter: durationpb.New(time.Minute),
		},
		Retry: &waterclockv1.RetryPolicy{
			MaxAttempts: 5, InitialBackoff: durationpb.New(time.Second), MaxBackoff: durationpb.New(time.Minute), Multiplier: 1.5,
		},
		AttemptTimeout: durationpb.New(time.Minute), TotalDeadline: durationpb.New(time.Hour), StartDeadline: durationpb.New(2 * time.Hour),
		CatchUp: waterclockv1.CatchUp_CATCH_UP_ALL, Overlap: waterclockv1.Overlap_OVERLAP_ALLOW, Labels: map[string]string{"a": "1", "b": "2"},
	}
}

func TestSpecComesBackAsItWent(t *testing.T) {
	t.Parallel()
	want := full()
	d, err := convert.Define(want, convert.Context{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	j := &job.Job{Namespace: "acme"}
	d.Put(j, false)
	if j.QueueNamespace != "acme" {
		t.Errorf("queue namespace %q", j.QueueNamespace)
	}
	if diff := cmp.Diff(want, convert.Spec(j), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestBodyHash(t *testing.T) {
	t.Parallel()
	h := func(s *waterclockv1.JobSpec) string { return hex.EncodeToString(convert.BodyHash(s)) }
	// Stored hashes are compared with those of later binaries: this value must never change.
	if got, want := h(full()), "21688284b330"; got[:12] != want {
		t.Errorf("the hash of a fixed spec is %s, want %s…", got, want)
	}
	seen := map[string]string{h(full()): "full", h(&waterclockv1.JobSpec{}): "empty"}
	for name, f := range map[string]func(*waterclockv1.JobSpec){
		"kind": func(s *waterclockv1.JobSpec) { s.Kind = "exe" },
		"payload": func(s *waterclockv1.JobSpec) {
			s.Input = &waterclockv1.JobSpec_Json{Json: structpb.NewStringValue("p")}
		},
		"no input": func(s *waterclockv1.JobSpec) { s.Input = nil },
		"label":    func(s *waterclockv1.JobSpec) { s.Labels["b"] = "3" },
		"moved":    func(s *waterclockv1.JobSpec) { s.Labels = map[string]string{"a": "1", "b2": ""} },
		"retry":    func(s *waterclockv1.JobSpec) { s.Retry.Multiplier = 2 },
		"start":    func(s *waterclockv1.JobSpec) { s.Schedule.Start.Nanos++ },
		"delay": func(s *waterclockv1.JobSpec) {
			s.Schedule = &waterclockv1.Schedule{Kind: &waterclockv1.Schedule_Once{Once: &waterclockv1.Once{Delay: durationpb.New(1)}}}
		},
		"now": func(s *waterclockv1.JobSpec) { s.Schedule = nil },
	} {
		s := full()
		f(s)
		got := h(s)
		if other, ok := seen[got]; ok {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[got] = name
		if got != h(proto.CloneOf(s)) {
			t.Errorf("%s: a copy has another hash", name)
		}
	}
}

func TestTimesAreResolved(t *testing.T) {
	t.Parallel()
	define := func(s *waterclockv1.Schedule, prior *schedule.Schedule) schedule.Schedule {
		d, err := convert.Define(&waterclockv1.JobSpec{Kind: "k", Schedule: s}, convert.Context{Now: now, Prior: prior})
		if err != nil {
			t.Fatal(err)
		}
		return d.Spec.Schedule
	}
	hourly := &waterclockv1.Schedule{Kind: &waterclockv1.Schedule_Every{Every: &waterclockv1.Every{Period: durationpb.New(time.Hour)}}}
	if got := define(nil, nil); got.Kind != schedule.Once || !got.At.Equal(now) {
		t.Errorf("left out: %+v", got)
	}
	if got := define(hourly, nil); !got.Anchor.Equal(now.Add(time.Hour)) {
		t.Errorf("every: first fire at %v", got.Anchor)
	}
	if got := define(hourly, &schedule.Schedule{Kind: schedule.Every, Period: time.Hour, Anchor: now.Add(time.Minute)}); !got.Anchor.Equal(now.Add(time.Minute)) {
		t.Errorf("the same every again: %v", got.Anchor)
	}
	cron := &waterclockv1.Schedule{Kind: &waterclockv1.Schedule_Cron{Cron: &waterclockv1.Cron{Spec: "@daily"}}}
	if got := define(cron, nil); got.Zone != "UTC" {
		t.Errorf("zone %q", got.Zone)
	}
}

func TestMask(t *testing.T) {
	t.Parallel()
	changed := &waterclockv1.JobSpec{Input: &waterclockv1.JobSpec_Json{Json: structpb.NewBoolValue(true)}, Kind: "http"}
	got, err := convert.Masked(full(), changed, &fieldmaskpb.FieldMask{Paths: []string{"payload", "json", "labels"}})
	if err != nil || got.GetKind() != "exec" || !got.GetJson().GetBoolValue() || len(got.GetLabels()) != 0 {
		t.Errorf("%v %v", got, err)
	}
}

func TestEveryStepHasAState(t *testing.T) {
	t.Parallel()
	for s := job.StepWaiting; s <= job.StepSkipped; s++ {
		for attempt := range int32(2) {
			r := convert.View{}.Live(&store.Timer{Step: s, Attempt: attempt + 1})
			if r.GetState() == waterclockv1.RunState_RUN_STATE_UNSPECIFIED {
				t.Errorf("step %s has no state", s)
			}
			if convert.HasEnded(r.GetState()) != s.Terminal() {
				t.Errorf("step %s: HasEnded differs from Terminal", s)
			}
		}
	}
}

// A skip says how many occurrences it stands for, and which is the last.
func TestSkipsSayWhatTheyStandFor(t *testing.T) {
	t.Parallel()
	through := now.Add(time.Hour)
	many := convert.Skipped(&job.Job{}, &store.SkipRow{NominalAt: now, ThroughAt: through, Count: 61, Reason: "missed", At: through})
	if many.SkippedCount != 61 || !many.SkippedThrough.AsTime().Equal(through) || !many.ScheduledTime.AsTime().Equal(now) {
		t.Errorf("a range: %v", many)
	}
	one := convert.Ended(&store.RunRow{ScheduledAt: now, Step: job.StepSkipped, Final: true})
	if one.SkippedCount != 1 || !one.SkippedThrough.AsTime().Equal(now) {
		t.Errorf("one: %v", one)
	}
	if ran := convert.Ended(&store.RunRow{ScheduledAt: now, Step: job.StepSucceeded, Final: true}); ran.SkippedCount != 0 || ran.SkippedThrough != nil {
		t.Errorf("a run: %v", ran)
	}
}
