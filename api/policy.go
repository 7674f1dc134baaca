package api

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"

	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/proto/waterclock/v1/waterclockv1connect"
)

// Policy says how an RPC is kept within the namespace of its caller.
type Policy int8

// The policies.
const (
	// PolicyMakes: it makes things in the caller's namespace and names none that exist.
	PolicyMakes Policy = iota + 1
	// PolicyLists: it lists things of the caller's namespace; page tokens are bound to it.
	PolicyLists
	// PolicyByID: it names a job, and perhaps a run of it; one of another namespace is not found.
	PolicyByID
)

// Policies has a line for every RPC. One without a line is not served: NewHandler fails.
var Policies = map[string]Policy{
	waterclockv1connect.JobServiceSubmitJobProcedure:  PolicyMakes,
	waterclockv1connect.JobServiceSubmitJobsProcedure: PolicyMakes,
	waterclockv1connect.JobServiceGetJobProcedure:     PolicyByID,
	waterclockv1connect.JobServiceListJobsProcedure:   PolicyLists,
	waterclockv1connect.JobServiceUpdateJobProcedure:  PolicyByID,
	waterclockv1connect.JobServiceDeleteJobProcedure:  PolicyByID,
	waterclockv1connect.JobServicePauseJobProcedure:   PolicyByID,
	waterclockv1connect.JobServiceResumeJobProcedure:  PolicyByID,
	waterclockv1connect.JobServiceTriggerJobProcedure: PolicyByID,

	waterclockv1connect.RunServiceGetRunProcedure:     PolicyByID,
	waterclockv1connect.RunServiceListRunsProcedure:   PolicyLists,
	waterclockv1connect.RunServiceCancelRunProcedure:  PolicyByID,
	waterclockv1connect.RunServiceWatchRunProcedure:   PolicyByID,
	waterclockv1connect.RunServiceReadRunLogProcedure: PolicyByID,
}

// Services are the descriptors of what is served under policies.
func Services() []protoreflect.ServiceDescriptor {
	return []protoreflect.ServiceDescriptor{
		waterclockv1.File_waterclock_v1_job_service_proto.Services().ByName("JobService"),
		waterclockv1.File_waterclock_v1_run_service_proto.Services().ByName("RunService"),
	}
}

// Procedure is the name of a method as policies and routes have it.
func Procedure(m protoreflect.MethodDescriptor) string {
	return fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
}

// policed fails where an RPC has no policy.
func policed() error {
	for _, sd := range Services() {
		for i := range sd.Methods().Len() {
			if p := Procedure(sd.Methods().Get(i)); Policies[p] == 0 {
				return fmt.Errorf("no policy for %s: add it to Policies", p)
			}
		}
	}
	return nil
}
