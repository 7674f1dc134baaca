package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waterclock-io/waterclock/internal/check"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

func cron(spec, zone string) *waterclockv1.Schedule {
	return &waterclockv1.Schedule{Kind: &waterclockv1.Schedule_Cron{Cron: &waterclockv1.Cron{Spec: spec, Zone: zone}}}
}

func every(d time.Duration) *waterclockv1.Schedule {
	return &waterclockv1.Schedule{Kind: &waterclockv1.Schedule_Every{Every: &waterclockv1.Every{Period: durationpb.New(d)}}}
}

func once(at time.Time) *waterclockv1.Schedule {
	return &waterclockv1.Schedule{Kind: &waterclockv1.Schedule_Once{Once: &waterclockv1.Once{At: timestamppb.New(at)}}}
}

func after(d time.Duration) *waterclockv1.Schedule {
	return &waterclockv1.Schedule{Kind: &waterclockv1.Schedule_Once{Once: &waterclockv1.Once{Delay: durationpb.New(d)}}}
}

func TestEveryProtocol(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, o := range map[string][]connect.ClientOption{
		"connect": nil, "connect json": {connect.WithProtoJSON()}, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()},
		"gzip": {connect.WithSendGzip()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, err := w.jobs("acme", o...).SubmitJob(t.Context(), connect.NewRequest(&waterclockv1.SubmitJobRequest{
				Spec: &waterclockv1.JobSpec{Kind: "exec", Schedule: every(time.Hour)},
			}))
			check.OK(t, err)
			got, err := w.jobs("acme", o...).GetJob(t.Context(), connect.NewRequest(&waterclockv1.GetJobRequest{JobId: res.Msg.GetJob().GetJobId()}))
			check.OK(t, err)
			if got.Msg.GetJob().GetNextDueTime().AsTime() != w.clock.Now().Add(time.Hour) {
				t.Errorf("next due %v, want an hour from now", got.Msg.GetJob().GetNextDueTime().AsTime())
			}
			if got.Msg.GetRun().GetRunId() == "" || got.Msg.GetRun().GetRunId() != res.Msg.GetRun().GetRunId() {
				t.Errorf("run %q, submitted %q", got.Msg.GetRun().GetRunId(), res.Msg.GetRun().GetRunId())
			}
		})
	}
	t.Run("plain post", func(t *testing.T) {
		t.Parallel()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/waterclock.v1.JobService/SubmitJob",
			strings.NewReader(`{"spec":{"kind":"exec","json":{"b":1,"a":"<x>"},"schedule":{"once":{"delay":"10s"}}}}`))
		check.OK(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+w.keys["acme"])
		res, err := http.DefaultClient.Do(req)
		check.OK(t, err)
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		check.OK(t, err)
		var out struct {
			Job struct{ JobID, State string }
			Run struct{ State string }
		}
		check.OK(t, json.Unmarshal(b, &out))
		if res.StatusCode != 200 || out.Run.State != "RUN_STATE_SCHEDULED" {
			t.Fatalf("%d %s", res.StatusCode, b)
		}
		got, err := w.jobs("acme").GetJob(t.Context(), connect.NewRequest(&waterclockv1.GetJobRequest{JobId: out.Job.JobID}))
		check.OK(t, err)
		if text := string(got.Msg.GetJob().GetSpec().GetPayload()); text != `{"a":"<x>","b":1}` {
			t.Errorf("payload %s", text)
		}
	})
}

func TestBadInputsNameFieldGivenAndAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := w.jobs("acme")
	spec := func(f func(*waterclockv1.JobSpec)) *waterclockv1.JobSpec {
		s := &waterclockv1.JobSpec{Kind: "exec"}
		f(s)
		return s
	}
	sched := func(s *waterclockv1.Schedule) *waterclockv1.JobSpec {
		return spec(func(j *waterclockv1.JobSpec) { j.Schedule = s })
	}
	for name, c := range map[string]struct {
		spec                  *waterclockv1.JobSpec
		field, given, allowed string
	}{
		"unknown zone": {sched(cron("0 9 * * *", "Mars/Olympus")), "spec.schedule.cron.zone", "Mars/Olympus", "IANA"},
		"never fires":  {sched(cron("0 0 30 2 *", "UTC")), "spec.schedule.cron.spec", "0 0 30 2 *", ""},
		"malformed":    {sched(cron("61 * * * *", "")), "spec.schedule.cron.spec", "61", ""},
		"TZ in spec":   {sched(cron("TZ=Europe/Berlin 0 9 * * *", "")), "spec.schedule.cron.spec", "TZ=", ""},
		"period":       {sched(every(500 * time.Millisecond)), "spec.schedule.every.period", "500ms", "1s"},
		"payload":      {spec(func(j *waterclockv1.JobSpec) { j.Input = &waterclockv1.JobSpec_Payload{Payload: make([]byte, 262145)} }), "spec.payload", "262145 bytes", "262144"},
		"json payload": {spec(func(j *waterclockv1.JobSpec) {
			j.Input = &waterclockv1.JobSpec_Json{Json: structpb.NewStringValue(strings.Repeat("x", 262144))}
		}), "spec.json", "262146 bytes", "262144 bytes"},
		"queue":             {spec(func(j *waterclockv1.JobSpec) { j.Queue = "a.*.>" }), "spec.queue", "a.*.>", "letters, digits"},
		"shared queue name": {spec(func(j *waterclockv1.JobSpec) { j.Queue = "_" }), "spec.queue", "_", "letters, digits"},
		"kind":              {spec(func(j *waterclockv1.JobSpec) { j.Kind = "" }), "spec.kind", "", "letters, digits"},
		"label key":         {spec(func(j *waterclockv1.JobSpec) { j.Labels = map[string]string{"a b": "c"} }), `spec.labels["a b"]`, "a b", "letters, digits"},
		"label value":       {spec(func(j *waterclockv1.JobSpec) { j.Labels = map[string]string{"a": "ü>"} }), `spec.labels["a"]`, "ü>", "letters, digits"},
		"name":              {spec(func(j *waterclockv1.JobSpec) { j.Name = "a\nb" }), "spec.name", "a\nb", "control"},
		"negative timeout":  {spec(func(j *waterclockv1.JobSpec) { j.AttemptTimeout = durationpb.New(-time.Second) }), "spec.attempt_timeout", "-1s", "0.001s"},
		"absurd timeout":    {spec(func(j *waterclockv1.JobSpec) { j.TotalDeadline = durationpb.New(1000 * 24 * time.Hour) }), "spec.total_deadline", "24000h0m0s", "2592000s"},
		"absurd backoff": {spec(func(j *waterclockv1.JobSpec) {
			j.Retry = &waterclockv1.RetryPolicy{InitialBackoff: &durationpb.Duration{Seconds: 1 << 60}}
		}), "spec.retry.initial_backoff", "1152921504606846976", "86400s"},
		"before 1970":  {sched(once(time.Date(1969, 12, 31, 0, 0, 0, 0, time.UTC))), "spec.schedule.once.at", "1969-12-31T00:00:00Z", "1970"},
		"after 9999":   {sched(&waterclockv1.Schedule{Kind: cron("* * * * *", "").Kind, End: &timestamppb.Timestamp{Seconds: 253402300800}}), "spec.schedule.end", "253402300800", "9999"},
		"at and delay": {sched(&waterclockv1.Schedule{Kind: &waterclockv1.Schedule_Once{Once: &waterclockv1.Once{At: timestamppb.Now(), Delay: durationpb.New(1)}}}), "spec.schedule.once", "", "not both"},
		"no spec":      {nil, "spec", "nothing", "a value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := client.SubmitJob(t.Context(), connect.NewRequest(&waterclockv1.SubmitJobRequest{Spec: c.spec}))
			if code(err) != connect.CodeInvalidArgument {
				t.Fatalf("got %v", err)
			}
			v := violation(err)
			if v == nil {
				t.Fatalf("no FieldViolation in %v", err)
			}
			if v.GetField() != c.field || !strings.Contains(v.GetGiven(), c.given) || !strings.Contains(v.GetAllowed(), c.allowed) || v.GetAllowed() == "" {
				t.Errorf("got field %q given %q allowed %q, want %q %q %q", v.GetField(), v.GetGiven(), v.GetAllowed(), c.field, c.given, c.allowed)
			}
			if strings.Contains(err.Error(), "\n") || len(err.Error()) > 1000 {
				t.Errorf("the message is not one readable line: %q", err)
			}
			if !hasBadRequest(err) {
				t.Error("no google.rpc.BadRequest")
			}
		})
	}
}

func hasBadRequest(err error) bool {
	var found bool
	if c, ok := err.(*connect.Error); ok { //nolint:errorlint // as the client returns it
		for _, d := range c.Details() {
			if v, err := d.Value(); err == nil {
				if br, ok := v.(*errdetails.BadRequest); ok && len(br.GetFieldViolations()) > 0 {
					found = strings.Contains(br.GetFieldViolations()[0].GetDescription(), "allowed")
				}
			}
		}
	}
	return found
}

func TestStartInThePastRunsNowWithWarning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	res := w.add(&waterclockv1.JobSpec{Kind: "exec", Schedule: once(w.clock.Now().Add(-time.Hour))})
	if got := res.GetJob().GetWarnings(); len(got) != 1 || !strings.Contains(got[0], "in the past") {
		t.Errorf("warnings %q", got)
	}
	if got := res.GetRun().GetDueTime().AsTime(); !got.Equal(w.clock.Now()) {
		t.Errorf("due %v, want now", got)
	}
	if len(w.ear.woken) != 1 {
		t.Errorf("woken %d, want 1", len(w.ear.woken))
	}
}

func TestUnknownKindIsAcceptedAndShownAsWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	res := w.add(&waterclockv1.JobSpec{Kind: "nobody", Schedule: after(time.Minute)})
	if s := res.GetRun().GetState(); s != waterclockv1.RunState_RUN_STATE_SCHEDULED {
		t.Errorf("before its time: %v", s)
	}
	w.clock.Add(2 * time.Minute)
	got, err := w.runs("acme").GetRun(t.Context(), connect.NewRequest(&waterclockv1.GetRunRequest{JobId: res.GetJob().GetJobId()}))
	check.OK(t, err)
	r := got.Msg.GetRun()
	if r.GetState() != waterclockv1.RunState_RUN_STATE_WAITING || r.GetWaitReason() != `no executor offers kind "nobody" on queue "default"` {
		t.Errorf("%v %q", r.GetState(), r.GetWaitReason())
	}
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := w.jobs("acme")
	ids := make([]string, 1000)
	existed := make([]bool, len(ids))
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			res, err := client.SubmitJob(t.Context(), connect.NewRequest(&waterclockv1.SubmitJobRequest{
				Spec: &waterclockv1.JobSpec{Kind: "exec", Schedule: after(time.Hour)}, IdempotencyKey: "same",
			}))
			if err != nil {
				t.Error(err)
				return
			}
			ids[i], existed[i] = res.Msg.GetJob().GetJobId(), res.Msg.GetExisted()
		})
	}
	wg.Wait()
	made := 0
	for i := range ids {
		if ids[i] != ids[0] {
			t.Fatalf("two jobs: %s %s", ids[0], ids[i])
		}
		if !existed[i] {
			made++
		}
	}
	if made != 1 {
		t.Errorf("%d calls say that they made the job", made)
	}
	_, err := client.SubmitJob(t.Context(), connect.NewRequest(&waterclockv1.SubmitJobRequest{
		Spec: &waterclockv1.JobSpec{Kind: "http", Schedule: after(time.Hour)}, IdempotencyKey: "same",
	}))
	if code(err) != connect.CodeAlreadyExists {
		t.Errorf("another body: %v", err)
	}
	res, err := w.jobs("rival").SubmitJob(t.Context(), connect.NewRequest(&waterclockv1.SubmitJobRequest{
		Spec: &waterclockv1.JobSpec{Kind: "http"}, IdempotencyKey: "same",
	}))
	check.OK(t, err)
	if res.Msg.GetJob().GetJobId() == ids[0] {
		t.Error("the key of one namespace found the job of another")
	}
}

func TestSubmitJobsAnswersEach(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	res, err := w.jobs("acme").SubmitJobs(t.Context(), connect.NewRequest(&waterclockv1.SubmitJobsRequest{Requests: []*waterclockv1.SubmitJobRequest{
		{Spec: &waterclockv1.JobSpec{Kind: "exec", Name: "one"}},
		{Spec: &waterclockv1.JobSpec{Kind: "no good"}},
		{Spec: &waterclockv1.JobSpec{Kind: "exec", Name: "one"}},
		{Spec: &waterclockv1.JobSpec{Kind: "exec", Schedule: cron("0 9 * * 1", "Europe/Berlin")}},
	}}))
	check.OK(t, err)
	var got []string
	for _, r := range res.Msg.GetResults() {
		if e := r.GetError(); e != nil {
			got = append(got, e.GetCode())
			continue
		}
		if r.GetJob().GetRunId() == "" {
			t.Error("no run id")
		}
		got = append(got, "ok")
	}
	if d := cmp.Diff([]string{"ok", "invalid_argument", "already_exists", "ok"}, got); d != "" {
		t.Error(d)
	}
	_, err = w.jobs("acme").SubmitJobs(t.Context(), connect.NewRequest(&waterclockv1.SubmitJobsRequest{}))
	if v := violation(err); v.GetField() != "requests" {
		t.Errorf("empty batch: %v", err)
	}
}

func TestLargeAndBombedBodiesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	big := &waterclockv1.SubmitJobRequest{Spec: &waterclockv1.JobSpec{Kind: "exec", Input: &waterclockv1.JobSpec_Payload{Payload: bytes.Repeat([]byte{0}, 5<<20)}}}
	for name, o := range map[string][]connect.ClientOption{"plain": nil, "bomb": {connect.WithSendGzip()}, "grpc bomb": {connect.WithGRPC(), connect.WithSendGzip()}} {
		_, err := w.jobs("acme", o...).SubmitJob(t.Context(), connect.NewRequest(big))
		if code(err) != connect.CodeResourceExhausted && code(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}
