package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/waterclock-io/waterclock/api"
	"github.com/waterclock-io/waterclock/internal/apitest"
	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/job"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/proto/waterclock/v1/waterclockv1connect"
	"github.com/waterclock-io/waterclock/store"
)

func TestHealthAndReflection(t *testing.T) {
	t.Parallel()
	ready := errors.New("not yet")
	w := newWorld(t, func(d *api.Deps) { d.Ready = func(context.Context) error { return ready } })
	health := func(service string) (healthv1.HealthCheckResponse_ServingStatus, error) {
		c := connect.NewClient[healthv1.HealthCheckRequest, healthv1.HealthCheckResponse](w.http, w.url+"/grpc.health.v1.Health/Check", connect.WithGRPC())
		res, err := c.CallUnary(t.Context(), connect.NewRequest(&healthv1.HealthCheckRequest{Service: service}))
		if err != nil {
			return 0, err
		}
		return res.Msg.GetStatus(), nil
	}
	if s, err := health(""); err != nil || s != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("before it is ready: %v %v", s, err)
	}
	ready = nil
	if s, err := health("waterclock.v1.JobService"); err != nil || s != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("ready: %v %v", s, err)
	}
	if _, err := health("nobody"); code(err) != connect.CodeNotFound {
		t.Errorf("unknown service: %v", err)
	}
	watch := connect.NewClient[healthv1.HealthCheckRequest, healthv1.HealthCheckResponse](w.http, w.url+"/grpc.health.v1.Health/Watch", connect.WithGRPC())
	s, err := watch.CallServerStream(t.Context(), connect.NewRequest(&healthv1.HealthCheckRequest{}))
	check.OK(t, err)
	if !s.Receive() || s.Msg().GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("watch: %v", s.Err())
	}
	reflection := grpcreflect.NewClient(w.http, w.url, connect.WithGRPC()).NewStream(t.Context())
	names, err := reflection.ListServices()
	check.OK(t, err)
	if len(names) != 3 {
		t.Errorf("services %v", names)
	}
	_, _ = reflection.Close() // the end of a test
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list := func(o ...connect.ClientOption) error {
		_, err := waterclockv1connect.NewJobServiceClient(w.http, w.url, o...).ListJobs(t.Context(), connect.NewRequest(&waterclockv1.ListJobsRequest{}))
		return err
	}
	check.OK(t, list())
	for name, o := range map[string]connect.ClientOption{"connect": connect.WithProtoJSON(), "grpc": connect.WithGRPC(), "grpc-web": connect.WithGRPCWeb()} {
		if err := list(o, apitest.WithKey("wck_a_b")); code(err) != connect.CodeUnauthenticated {
			t.Errorf("%s with a wrong key: %v", name, err)
		}
	}
}

func TestWebPagesOfOtherOriginsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(d *api.Deps) { d.AllowedOrigins = []string{"https://good.example"} })
	do := func(method, origin string) (int, http.Header) {
		req, err := http.NewRequestWithContext(t.Context(), method, w.url+"/waterclock.v1.JobService/ListJobs", http.NoBody)
		check.OK(t, err)
		req.Header.Set("Origin", origin)
		req.Header.Set("Content-Type", "application/json")
		if method == http.MethodOptions {
			req.Header.Set("Access-Control-Request-Method", "POST")
		}
		res, err := http.DefaultClient.Do(req)
		check.OK(t, err)
		check.OK(t, res.Body.Close())
		return res.StatusCode, res.Header
	}
	if status, header := do(http.MethodPost, "https://evil.example"); status != http.StatusForbidden || header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("evil: %d", status)
	}
	status, header := do(http.MethodOptions, "https://good.example")
	if status != http.StatusNoContent || header.Get("Access-Control-Allow-Origin") != "https://good.example" {
		t.Errorf("good: %d %v", status, header)
	}
}

func TestSlowBodiesEndAndStreamsDoNot(t *testing.T) {
	t.Parallel()
	const bodyTimeout = time.Second
	w := newWorldWith(t, bodyTimeout)
	id := w.add(&waterclockv1.JobSpec{Kind: "exec"}).GetJob().GetJobId()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var streams []*connect.ServerStreamForClient[waterclockv1.WatchRunResponse]
	for name, o := range map[string][]connect.ClientOption{"connect": nil, "grpc-web": {connect.WithGRPCWeb()}} {
		for version, h := range map[string]*http.Client{"http 1": {Transport: &http.Transport{}}, "http 2": w.http} {
			o := append(o, apitest.WithKey(w.keys["acme"]))
			s, err := waterclockv1connect.NewRunServiceClient(h, w.url, o...).WatchRun(ctx, connect.NewRequest(&waterclockv1.WatchRunRequest{JobId: id}))
			check.OK(t, err)
			if !s.Receive() {
				t.Errorf("%s %s: %v", name, version, s.Err())
			}
			streams = append(streams, s)
		}
	}
	// A client that sends half of its request is cut off; that also is the time that the streams have to outlive.
	r, pw := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/waterclock.v1.JobService/ListJobs", r)
	check.OK(t, err)
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	go func() { _, _ = pw.Write([]byte("{")) }()
	res, err := (&http.Client{Transport: &http.Transport{}}).Do(req)
	if err == nil {
		if res.StatusCode == http.StatusOK {
			t.Error("half a request was answered")
		}
		check.OK(t, res.Body.Close())
	}
	if took := time.Since(began); took < bodyTimeout/2 {
		t.Errorf("cut off after %v", took)
	}
	check.OK(t, pw.Close())
	row := w.hand(id)
	w.report(row, store.ReportEnd, job.StepSucceeded, "")
	for i, s := range streams {
		last := waterclockv1.RunState_RUN_STATE_UNSPECIFIED
		for s.Receive() {
			last = s.Msg().GetRun().GetState()
		}
		if s.Err() != nil || last != waterclockv1.RunState_RUN_STATE_SUCCEEDED {
			t.Errorf("stream %d: %v %v", i, s.Err(), last)
		}
	}
}
