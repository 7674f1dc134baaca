package api_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/waterclock-io/waterclock/api"
	"github.com/waterclock-io/waterclock/internal/apitest"
	"github.com/waterclock-io/waterclock/internal/check"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

// anyCall calls a method by its descriptor with messages of the generated types.
func (w *world) anyCall(ctx context.Context, ns string, m protoreflect.MethodDescriptor, req proto.Message) error {
	switch r := req.(type) {
	case *waterclockv1.GetJobRequest:
		return call(ctx, w, ns, m, r, &waterclockv1.GetJobResponse{})
	case *waterclockv1.UpdateJobRequest:
		return call(ctx, w, ns, m, r, &waterclockv1.UpdateJobResponse{})
	case *waterclockv1.DeleteJobRequest:
		return call(ctx, w, ns, m, r, &waterclockv1.DeleteJobResponse{})
	case *waterclockv1.PauseJobRequest:
		return call(ctx, w, ns, m, r, &waterclockv1.PauseJobResponse{})
	case *waterclockv1.ResumeJobRequest:
		return call(ctx, w, ns, m, r, &waterclockv1.ResumeJobResponse{})
	case *waterclockv1.TriggerJobRequest:
		return call(ctx, w, ns, m, r, &waterclockv1.TriggerJobResponse{})
	case *waterclockv1.GetRunRequest:
		return call(ctx, w, ns, m, r, &waterclockv1.GetRunResponse{})
	case *waterclockv1.ListRunsRequest:
		return call(ctx, w, ns, m, r, &waterclockv1.ListRunsResponse{})
	case *waterclockv1.CancelRunRequest:
		return call(ctx, w, ns, m, r, &waterclockv1.CancelRunResponse{})
	case *waterclockv1.WatchRunRequest:
		return stream(ctx, w, ns, m, r, &waterclockv1.WatchRunResponse{})
	case *waterclockv1.ReadRunLogRequest:
		return stream(ctx, w, ns, m, r, &waterclockv1.ReadRunLogResponse{})
	default:
		w.t.Fatalf("this test does not know how to call %s: teach it", m.FullName())
		return nil
	}
}

func call[Q, R any](ctx context.Context, w *world, ns string, m protoreflect.MethodDescriptor, req *Q, _ *R) error {
	_, err := connect.NewClient[Q, R](w.http, w.url+api.Procedure(m), apitest.WithKey(w.keys[ns])).CallUnary(ctx, connect.NewRequest(req))
	return err
}

func stream[Q, R any](ctx context.Context, w *world, ns string, m protoreflect.MethodDescriptor, req *Q, _ *R) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	s, err := connect.NewClient[Q, R](w.http, w.url+api.Procedure(m), apitest.WithKey(w.keys[ns])).CallServerStream(ctx, connect.NewRequest(req))
	if err != nil {
		return err
	}
	defer s.Close() // the end of a test
	for s.Receive() {
		return nil
	}
	return s.Err()
}

// TestForeignIDsAreNotFound walks every RPC of every service that takes ids, with those of another namespace in every id field.
func TestForeignIDsAreNotFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := w.add(&waterclockv1.JobSpec{Kind: "exec", Schedule: every(time.Hour)})
	before, err := w.jobs("acme").GetJob(t.Context(), connect.NewRequest(&waterclockv1.GetJobRequest{JobId: made.GetJob().GetJobId()}))
	check.OK(t, err)
	ids := map[string]string{"job_id": made.GetJob().GetJobId(), "run_id": made.GetRun().GetRunId()}
	walked := 0
	for _, sd := range api.Services() {
		for i := range sd.Methods().Len() {
			m := sd.Methods().Get(i)
			policy, ok := api.Policies[api.Procedure(m)]
			if !ok {
				t.Errorf("%s has no policy", m.FullName())
				continue
			}
			mt, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
			check.OK(t, err)
			req, named := mt.New(), 0
			for n := range m.Input().Fields().Len() {
				f := m.Input().Fields().Get(n)
				if id, ok := ids[string(f.Name())]; ok {
					req.Set(f, protoreflect.ValueOfString(id))
					named++
				} else if strings.HasSuffix(string(f.Name()), "_id") && f.Name() != "request_id" {
					t.Errorf("%s has an id that this test does not know", f.FullName())
				}
			}
			if named == 0 {
				if policy == api.PolicyByID {
					t.Errorf("%s names no id, and its policy says that it does", m.FullName())
				}
				continue
			}
			if u, ok := req.Interface().(*waterclockv1.UpdateJobRequest); ok {
				u.Version, u.Spec = 1, &waterclockv1.JobSpec{Kind: "http"}
			}
			walked++
			if err := w.anyCall(t.Context(), "rival", m, req.Interface()); code(err) != connect.CodeNotFound {
				t.Errorf("%s with foreign ids: %v", m.FullName(), err)
			}
		}
	}
	if walked < 11 {
		t.Errorf("only %d RPCs were tried", walked)
	}
	after, err := w.jobs("acme").GetJob(t.Context(), connect.NewRequest(&waterclockv1.GetJobRequest{JobId: made.GetJob().GetJobId()}))
	check.OK(t, err)
	if !proto.Equal(before.Msg, after.Msg) {
		t.Errorf("something changed:\n%v\n%v", before.Msg, after.Msg)
	}
	list, err := w.jobs("rival").ListJobs(t.Context(), connect.NewRequest(&waterclockv1.ListJobsRequest{}))
	check.OK(t, err)
	if len(list.Msg.GetJobs()) != 0 {
		t.Error("the list of one namespace shows jobs of another")
	}
}
