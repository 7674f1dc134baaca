package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/job/schedule"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/proto/waterclock/v1/waterclockv1connect"
)

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// fakeAPI answers as it is told to; what it is not told is unimplemented.
type fakeAPI struct {
	waterclockv1connect.UnimplementedJobServiceHandler
	waterclockv1connect.UnimplementedRunServiceHandler
	trigger func(*connect.Request[waterclockv1.TriggerJobRequest]) (*waterclockv1.TriggerJobResponse, error)
	batch   func(*waterclockv1.SubmitJobsRequest) *waterclockv1.SubmitJobsResponse
	watch   func(*connect.ServerStream[waterclockv1.WatchRunResponse]) error
	list    func() (*waterclockv1.ListJobsResponse, error)
}

func (f *fakeAPI) TriggerJob(_ context.Context, r *connect.Request[waterclockv1.TriggerJobRequest]) (*connect.Response[waterclockv1.TriggerJobResponse], error) {
	res, err := f.trigger(r)
	return connect.NewResponse(res), err
}

func (f *fakeAPI) SubmitJobs(_ context.Context, r *connect.Request[waterclockv1.SubmitJobsRequest]) (*connect.Response[waterclockv1.SubmitJobsResponse], error) {
	return connect.NewResponse(f.batch(r.Msg)), nil
}

func (f *fakeAPI) ListJobs(context.Context, *connect.Request[waterclockv1.ListJobsRequest]) (*connect.Response[waterclockv1.ListJobsResponse], error) {
	res, err := f.list()
	return connect.NewResponse(res), err
}

func (f *fakeAPI) WatchRun(_ context.Context, _ *connect.Request[waterclockv1.WatchRunRequest], s *connect.ServerStream[waterclockv1.WatchRunResponse]) error {
	return f.watch(s)
}

func serve(t *testing.T, f *fakeAPI) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(waterclockv1connect.NewJobServiceHandler(f))
	mux.Handle(waterclockv1connect.NewRunServiceHandler(f))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// user is a client of a namespace, by these APIs in their order.
func user(t *testing.T, namespace string, apis ...string) *client {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	d, err := newDoor(namespace, "wck_key_of_"+namespace, apis, 0, tr)
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	m := &maker{rng: seeded(1), file: "lines", child: []string{"chaos", "child"}, end: time.Now().Add(time.Minute)}
	return newUser("client-"+namespace, seeded(2), m, d, slog.New(slog.DiscardHandler), func() int { return int(n.Add(1)) })
}

func TestTriggerIsRepeatedAtTheNextAPIUnderOneID(t *testing.T) {
	t.Parallel()
	var ids, keys []string
	tries := 0
	down := serve(t, &fakeAPI{trigger: func(r *connect.Request[waterclockv1.TriggerJobRequest]) (*waterclockv1.TriggerJobResponse, error) {
		ids = append(ids, r.Msg.GetRequestId())
		tries++
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("stopping"))
	}})
	up := serve(t, &fakeAPI{trigger: func(r *connect.Request[waterclockv1.TriggerJobRequest]) (*waterclockv1.TriggerJobResponse, error) {
		ids, keys = append(ids, r.Msg.GetRequestId()), append(keys, r.Header().Get("Authorization"))
		return &waterclockv1.TriggerJobResponse{Run: &waterclockv1.Run{RunId: "r"}}, nil
	}})
	c := user(t, "a", down, "http://127.0.0.1:1", up)
	k := &known{}
	c.trigger(t.Context(), k)
	if tries != 1 || len(ids) != 2 || ids[0] != ids[1] || ids[0] == "" {
		t.Errorf("%d calls to the one that is down, request ids %q", tries, ids)
	}
	if diff := cmp.Diff([]string{"Bearer wck_key_of_a"}, keys); diff != "" {
		t.Error(diff)
	}
	if len(k.Changes) != 1 || k.Changes[0].Kind != checker.Trigger || k.Changes[0].RunID != "r" || len(k.Unsure) != 0 {
		t.Errorf("remembered %+v, unsure %+v", k.Changes, k.Unsure)
	}
}

func TestWhatNobodyAnsweredIsUnsureAndARefusalIsNot(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	answers := func(code connect.Code) *client {
		return user(t, "a", serve(t, &fakeAPI{trigger: func(*connect.Request[waterclockv1.TriggerJobRequest]) (*waterclockv1.TriggerJobResponse, error) {
			cancel()
			return nil, connect.NewError(code, errors.New("no"))
		}}))
	}
	k := &known{}
	answers(connect.CodeUnavailable).trigger(ctx, k)
	if len(k.Changes) != 0 || len(k.Unsure) != 1 {
		t.Errorf("not answered: remembered %+v, unsure %+v", k.Changes, k.Unsure)
	}
	k = &known{}
	answers(connect.CodeFailedPrecondition).trigger(t.Context(), k)
	if len(k.Changes) != 0 || len(k.Unsure) != 0 {
		t.Errorf("refused: remembered %+v, unsure %+v", k.Changes, k.Unsure)
	}
}

func TestEachOfABatchIsAcknowledgedByItself(t *testing.T) {
	t.Parallel()
	calls := 0
	c := user(t, "a", serve(t, &fakeAPI{batch: func(r *waterclockv1.SubmitJobsRequest) *waterclockv1.SubmitJobsResponse {
		calls++
		out := &waterclockv1.SubmitJobsResponse{}
		for i, one := range r.GetRequests() {
			res := &waterclockv1.SubmitResult{Result: &waterclockv1.SubmitResult_Job{Job: &waterclockv1.SubmittedJob{JobId: one.GetIdempotencyKey(), RunId: "r"}}}
			if i == 1 && calls == 1 {
				res = &waterclockv1.SubmitResult{Result: &waterclockv1.SubmitResult_Error{Error: &waterclockv1.SubmitError{Code: "unavailable"}}}
			}
			out.Results = append(out.Results, res)
		}
		return out
	}}))
	c.batch(t.Context(), time.Now(), 3)
	var ids []string
	for _, j := range c.told() {
		ids = append(ids, j.ID)
		if j.Namespace != "a" || j.Answered.IsZero() {
			t.Errorf("%+v", j)
		}
	}
	if diff := cmp.Diff([]string{"client-a-1", "client-a-3", "client-a-2"}, ids); diff != "" || calls != 2 {
		t.Errorf("%d calls: %s", calls, diff)
	}
}

func TestForeignCallsKeepWhatWasSaid(t *testing.T) {
	t.Parallel()
	tries := 0
	c := user(t, "a", serve(t, &fakeAPI{
		trigger: func(*connect.Request[waterclockv1.TriggerJobRequest]) (*waterclockv1.TriggerJobResponse, error) {
			return nil, connect.NewError(connect.CodeUnimplemented, errors.New("not here"))
		},
		watch: func(s *connect.ServerStream[waterclockv1.WatchRunResponse]) error {
			return s.Send(&waterclockv1.WatchRunResponse{})
		},
		list: func() (*waterclockv1.ListJobsResponse, error) {
			if tries++; tries == 1 {
				return nil, connect.NewError(connect.CodeUnavailable, errors.New("not now"))
			}
			return &waterclockv1.ListJobsResponse{Jobs: []*waterclockv1.Job{{JobId: "x"}}}, nil
		},
	}))
	other := user(t, "b", "http://127.0.0.1:1")
	other.mine = []*known{{Job: checker.Job{ID: "theirs", Namespace: "b"}}}
	introduce([]*client{c, other})
	for len(c.foreign) < 200 {
		c.trespass(t.Context())
	}
	said := map[string]string{}
	for _, f := range c.foreign {
		said[f.Call] = f.Code
		if f.Namespace != "a" || (f.JobID == "") != (f.Call == "ListJobs" || f.Call == "ListRuns" && f.JobID == "") {
			t.Errorf("%+v", f)
		}
		if f.Call == "ListJobs" && !slices.Equal(f.Listed, []string{"x"}) {
			t.Errorf("listed %v", f.Listed)
		}
	}
	want := map[string]string{"ListJobs": "ok", "WatchRun": "ok", "ReadRunLog": "unimplemented"}
	for _, f := range foreignCalls {
		if want[f.name] == "" {
			want[f.name] = "unimplemented"
		}
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Error(diff)
	}
	same := user(t, "a", "http://127.0.0.1:1")
	introduce([]*client{c, same})
	if same.peers != nil {
		t.Error("clients of one namespace are strangers to each other")
	}
}

func TestJobsOfEverySortAreMade(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 30, 0, time.UTC)
	var murders atomic.Int64
	murders.Store(2)
	seen := map[string]int{}
	for seed := range uint64(400) {
		m := &maker{
			rng: seeded(seed), end: now.Add(time.Minute), child: []string{"chaos", "child"}, web: "http://127.0.0.1:9", murders: &murders,
			queues: lanesOf("a", []string{"default", "b/other", "a/own"}),
		}
		spec, j := m.one(1, now)
		seen[spec.GetKind()]++
		seen["queue "+spec.GetQueue()+" "+j.Queue]++
		if j.Doomed {
			seen["doomed"]++
		}
		if spec.GetAttemptTimeout() != nil {
			seen["slow"]++
		}
		spec, j = m.series(1, now)
		seen[spec.GetCatchUp().String()]++
		if got := spec.GetSchedule().GetJitter().AsDuration(); got != j.Schedule.Jitter {
			t.Errorf("jitter %s is sent, %s remembered", got, j.Schedule.Jitter)
		}
		if spec, j, fires := m.minutely(1, now); !fires || j.Schedule.Validate() != nil || spec.GetSchedule().GetCron().GetSpec() != j.Schedule.Spec {
			t.Errorf("%v %+v %v", fires, j.Schedule, spec)
		}
		if occ, _ := j.Schedule.Between(now, m.end.Add(time.Hour), 1000); j.Schedule.Kind != schedule.Every || len(occ) == 0 {
			t.Errorf("%+v never fires", j.Schedule)
		}
		m.end = now.Add(20 * time.Second)
		if _, _, fires := m.minutely(1, now); fires {
			t.Error("a rule is made that cannot fire")
		}
	}
	if seen["doomed"] != 2 {
		t.Errorf("%d jobs are doomed, want 2", seen["doomed"])
	}
	for _, want := range []string{"exec", "http", "slow", "queue  default", "queue own a/own", "CATCH_UP_ALL", "CATCH_UP_NONE", "CATCH_UP_UNSPECIFIED"} {
		if seen[want] == 0 {
			t.Errorf("no job is made of the sort %q: %v", want, seen)
		}
	}
	if seen["queue other b/other"] > 0 {
		t.Error("a job is put into a queue of another namespace")
	}
}

func TestWebhookWritesLinesAndRefusesTheOlder(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "lines")
	w, err := newWebhook(file)
	if err != nil {
		t.Fatal(err)
	}
	call := func(ctx context.Context, attempt, dispatch int, do work) (int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, webURL(w.url, 7, do), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Waterclock-Run-Id", "r")
		req.Header.Set("Waterclock-Attempt", fmt.Sprint(attempt))
		req.Header.Set("Waterclock-Dispatch", fmt.Sprint(dispatch))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, res.Body)
		return res.StatusCode, errors.Join(err, res.Body.Close())
	}
	for _, tt := range []struct{ attempt, dispatch, fails, want int }{{1, 2, 1, 500}, {2, 3, 1, 200}, {1, 2, 0, 409}} {
		if got, err := call(t.Context(), tt.attempt, tt.dispatch, work{fails: tt.fails}); got != tt.want || err != nil {
			t.Errorf("dispatch %d: got %d, %v, want %d", tt.dispatch, got, err, tt.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for !strings.Contains(text(file), "start r 3 4") {
			if t.Context().Err() != nil {
				break
			}
		}
		cancel() // the executor hangs up
	}()
	if _, err := call(ctx, 3, 4, work{long: time.Minute}); err == nil {
		t.Error("a call that was hung up was answered")
	}
	if err := w.close(); err != nil || w.olderRefused() != 1 {
		t.Errorf("%d refused: %v", w.olderRefused(), err)
	}
	lines, err := checker.ParseLines(text(file))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range lines {
		if l.Kind != checker.Alive {
			got = append(got, fmt.Sprint(l.Kind, l.Attempt, l.Dispatch, l.Number, l.Group >= webGroup))
		}
	}
	want := []string{"start 1 2 7 true", "end 1 2 7 true", "start 2 3 7 true", "end 2 3 7 true", "start 3 4 7 true"}
	if diff := cmp.Diff(want, got, cmp.Transformer("words", func(s string) string { return strings.ReplaceAll(s, " ", "") })); diff != "" {
		t.Error(diff)
	}
}

func text(file string) string {
	b, _ := os.ReadFile(file) // not there yet
	return string(b)
}

func TestExecutorIsFoundAboveItsGuards(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	put := func(pid, parent int, args ...string) {
		dir := filepath.Join(proc, fmt.Sprint(pid))
		if err := errors.Join(os.Mkdir(dir, 0o700),
			os.WriteFile(filepath.Join(dir, "cmdline"), []byte(strings.Join(args, "\x00")+"\x00"), 0o600),
			os.WriteFile(filepath.Join(dir, "status"), fmt.Appendf(nil, "Name:\tx\nPPid:\t%d\n", parent), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	put(10, 1, "/bin/waterclock", "executor", "--log.level", "info")
	put(11, 10, "waterclock-guard")
	put(20, 1, "/bin/waterclock", "dev")
	put(21, 20, "waterclock-guard")
	put(31, 1, "waterclock-guard")
	if pid, err := executorAbove(proc, 11); pid != 10 || err != nil {
		t.Errorf("got %d, %v", pid, err)
	}
	for _, from := range []int{21, 31, 99} {
		if pid, err := executorAbove(proc, from); err == nil {
			t.Errorf("from %d process %d would be killed", from, pid)
		}
	}
}

func TestPoisonIsFoundAndStraysAreTold(t *testing.T) {
	t.Parallel()
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	p := &poisoner{done: []poured{
		{checker.Poison{What: "a", Want: "dead.status"}, "MARKA", at(1)}, {checker.Poison{What: "b", Want: "dead.status"}, "MARKB", at(5)},
	}}
	letters := []dead{{"dead.status", "why", "xMARKBx"}, {"dead.run", "odd", "good"}, {"dead.status", "known", garbageText}}
	found, strays := p.ended(letters, []checker.Window{{From: at(1), Till: at(2)}})
	if diff := cmp.Diff([]checker.Poison{{What: "b", Want: "dead.status", Ended: []string{"dead.status"}, Reason: "why"}}, found); diff != "" {
		t.Error(diff)
	}
	if len(strays) != 1 || strays[0].subject != "dead.run" {
		t.Errorf("%+v", strays)
	}
	if found, _ = p.ended(nil, nil); len(found) != 2 {
		t.Errorf("what is nowhere is not told: %+v", found)
	}
}

func TestIDsOfBothDatabasesAreRead(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	for _, from := range []any{id[:], id.String(), []byte(id.String())} {
		var got rowID
		if err := got.Scan(from); err != nil || string(got) != id.String() {
			t.Errorf("%v: %q, %v", from, got, err)
		}
	}
	var got rowID
	if err := got.Scan([]byte{1, 2}); err == nil {
		t.Errorf("two bytes are read as %q", got)
	}
}
