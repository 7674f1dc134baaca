package harness

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/waterclock-io/waterclock/chaos/checker"
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
