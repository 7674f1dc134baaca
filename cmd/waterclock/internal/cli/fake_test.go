package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/job/fielderr"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/proto/waterclock/v1/waterclockv1connect"
)

// fake is a server that writes down what it is asked and answers what the test has laid out for it.
type fake struct {
	mu       sync.Mutex
	requests []request
	answers  map[string][]answer
}

type request struct {
	rpc, key string
	message  proto.Message
}

// answer holds the messages of an answer as JSON, one per line, and how it ends.
type answer struct {
	messages string
	err      error
}

func newFake(t testing.TB) (*fake, string) {
	f := &fake{answers: map[string][]answer{}}
	mux := http.NewServeMux()
	mux.Handle(waterclockv1connect.NewJobServiceHandler(jobHandler{f: f}))
	mux.Handle(waterclockv1connect.NewRunServiceHandler(runHandler{f: f}))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return f, server.URL
}

// lay makes an answer that of every later call of an RPC. For "+RPC" it is that of the calls after the one that was laid out before.
func (f *fake) lay(rpc string, a answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if after, found := strings.CutPrefix(rpc, "+"); found {
		f.answers[after] = append(f.answers[after], a)
		return
	}
	f.answers[rpc] = []answer{a}
}

func (f *fake) take(rpc string, header http.Header, m proto.Message) answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, request{rpc: rpc, key: header.Get("Authorization"), message: proto.Clone(m)})
	laid := f.answers[rpc]
	if len(laid) == 0 {
		return answer{messages: "{}"}
	}
	if len(laid) > 1 {
		f.answers[rpc] = laid[1:]
	}
	return laid[0]
}

// asked returns what was asked since the last call.
func (f *fake) asked() []request {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.requests
	f.requests = nil
	return out
}

func unary[Req, Res any, M interface {
	*Req
	proto.Message
}, R interface {
	*Res
	proto.Message
}](f *fake, rpc string, req *connect.Request[Req]) (*connect.Response[Res], error) {
	a := f.take(rpc, req.Header(), M(req.Msg))
	if a.err != nil {
		return nil, a.err
	}
	res := new(Res)
	if err := protojson.Unmarshal([]byte(a.messages), R(res)); err != nil {
		return nil, fmt.Errorf("answer of %s: %w", rpc, err)
	}
	return connect.NewResponse(res), nil
}

func stream[Req, Res any, M interface {
	*Req
	proto.Message
}, R interface {
	*Res
	proto.Message
}](f *fake, rpc string, req *connect.Request[Req], out *connect.ServerStream[Res]) error {
	a := f.take(rpc, req.Header(), M(req.Msg))
	for line := range strings.Lines(a.messages) {
		res := new(Res)
		if err := protojson.Unmarshal([]byte(line), R(res)); err != nil {
			return fmt.Errorf("answer of %s: %w", rpc, err)
		}
		if err := out.Send(res); err != nil {
			return err
		}
	}
	return a.err
}

type jobHandler struct {
	waterclockv1connect.UnimplementedJobServiceHandler
	f *fake
}

func (h jobHandler) SubmitJob(_ context.Context, r *connect.Request[waterclockv1.SubmitJobRequest]) (*connect.Response[waterclockv1.SubmitJobResponse], error) {
	return unary[waterclockv1.SubmitJobRequest, waterclockv1.SubmitJobResponse](h.f, "SubmitJob", r)
}

func (h jobHandler) GetJob(_ context.Context, r *connect.Request[waterclockv1.GetJobRequest]) (*connect.Response[waterclockv1.GetJobResponse], error) {
	return unary[waterclockv1.GetJobRequest, waterclockv1.GetJobResponse](h.f, "GetJob", r)
}

func (h jobHandler) ListJobs(_ context.Context, r *connect.Request[waterclockv1.ListJobsRequest]) (*connect.Response[waterclockv1.ListJobsResponse], error) {
	return unary[waterclockv1.ListJobsRequest, waterclockv1.ListJobsResponse](h.f, "ListJobs", r)
}

func (h jobHandler) UpdateJob(_ context.Context, r *connect.Request[waterclockv1.UpdateJobRequest]) (*connect.Response[waterclockv1.UpdateJobResponse], error) {
	return unary[waterclockv1.UpdateJobRequest, waterclockv1.UpdateJobResponse](h.f, "UpdateJob", r)
}

func (h jobHandler) DeleteJob(_ context.Context, r *connect.Request[waterclockv1.DeleteJobRequest]) (*connect.Response[waterclockv1.DeleteJobResponse], error) {
	return unary[waterclockv1.DeleteJobRequest, waterclockv1.DeleteJobResponse](h.f, "DeleteJob", r)
}

func (h jobHandler) PauseJob(_ context.Context, r *connect.Request[waterclockv1.PauseJobRequest]) (*connect.Response[waterclockv1.PauseJobResponse], error) {
	return unary[waterclockv1.PauseJobRequest, waterclockv1.PauseJobResponse](h.f, "PauseJob", r)
}

func (h jobHandler) ResumeJob(_ context.Context, r *connect.Request[waterclockv1.ResumeJobRequest]) (*connect.Response[waterclockv1.ResumeJobResponse], error) {
	return unary[waterclockv1.ResumeJobRequest, waterclockv1.ResumeJobResponse](h.f, "ResumeJob", r)
}

func (h jobHandler) TriggerJob(_ context.Context, r *connect.Request[waterclockv1.TriggerJobRequest]) (*connect.Response[waterclockv1.TriggerJobResponse], error) {
	return unary[waterclockv1.TriggerJobRequest, waterclockv1.TriggerJobResponse](h.f, "TriggerJob", r)
}

type runHandler struct {
	waterclockv1connect.UnimplementedRunServiceHandler
	f *fake
}

func (h runHandler) GetRun(_ context.Context, r *connect.Request[waterclockv1.GetRunRequest]) (*connect.Response[waterclockv1.GetRunResponse], error) {
	return unary[waterclockv1.GetRunRequest, waterclockv1.GetRunResponse](h.f, "GetRun", r)
}

func (h runHandler) ListRuns(_ context.Context, r *connect.Request[waterclockv1.ListRunsRequest]) (*connect.Response[waterclockv1.ListRunsResponse], error) {
	return unary[waterclockv1.ListRunsRequest, waterclockv1.ListRunsResponse](h.f, "ListRuns", r)
}

func (h runHandler) CancelRun(_ context.Context, r *connect.Request[waterclockv1.CancelRunRequest]) (*connect.Response[waterclockv1.CancelRunResponse], error) {
	return unary[waterclockv1.CancelRunRequest, waterclockv1.CancelRunResponse](h.f, "CancelRun", r)
}

func (h runHandler) WatchRun(_ context.Context, r *connect.Request[waterclockv1.WatchRunRequest], out *connect.ServerStream[waterclockv1.WatchRunResponse]) error {
	return stream[waterclockv1.WatchRunRequest, waterclockv1.WatchRunResponse](h.f, "WatchRun", r, out)
}

func (h runHandler) ReadRunLog(_ context.Context, r *connect.Request[waterclockv1.ReadRunLogRequest], out *connect.ServerStream[waterclockv1.ReadRunLogResponse]) error {
	return stream[waterclockv1.ReadRunLogRequest, waterclockv1.ReadRunLogResponse](h.f, "ReadRunLog", r, out)
}

// failure makes an error with the details that a server gives: violations are FIELD|GIVEN|ALLOWED|REASON, or FIELD|TEXT.
func failure(code, message string, violations ...string) error {
	var c connect.Code
	if err := c.UnmarshalText([]byte(code)); err != nil {
		return err
	}
	e := connect.NewError(c, errors.New(message))
	general := &errdetails.BadRequest{}
	for _, v := range violations {
		parts := append(strings.SplitN(v, "|", 4), "", "", "")
		if parts[2] == "" {
			general.FieldViolations = append(general.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: parts[0], Description: parts[1]})
			continue
		}
		if parts[3] != "" {
			f := fielderr.FieldError{Field: parts[0], Given: parts[1], Allowed: parts[2], Reason: parts[3]}
			general.FieldViolations = append(general.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: parts[0], Description: f.Error()})
		}
		if d, err := connect.NewErrorDetail(&waterclockv1.FieldViolation{Field: parts[0], Given: parts[1], Allowed: parts[2]}); err == nil {
			e.AddDetail(d)
		}
	}
	if d, err := connect.NewErrorDetail(general); err == nil && len(general.GetFieldViolations()) > 0 {
		e.AddDetail(d)
	}
	return e
}
