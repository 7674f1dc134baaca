// Package convert turns what users send into the domain and the domain into what users see.
//
// It is pure: it reads no clock, no store and no network. It checks what the rules in the .proto files say and what they cannot say, and names
// every bad field with what was given and what is allowed (package fielderr). The api handlers and the NATS submit call it; it decides nothing
// about runs (package control does) and stores nothing.
package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/fielderr"
	"github.com/waterclock-io/waterclock/job/schedule"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

// Definition is a checked JobSpec, with its times resolved.
type Definition struct {
	Name     string
	Kind     string
	Queue    string
	Priority job.Priority
	Spec     job.Spec
	Payload  []byte
	// Warnings are what the user should know of a definition that is accepted all the same.
	Warnings []string
}

// Context is what the meaning of a JobSpec depends on beside its own fields.
type Context struct {
	// Now is database time: what "now" and delay count from.
	Now time.Time
	// Prior is the schedule that an update replaces; nil for a new job. An every without anchor and with an unchanged period keeps its anchor, so that
	// submitting the same definition again and again does not push the next fire away for ever.
	Prior *schedule.Schedule
}

// Define checks a spec and resolves it. Errors are fielderr.FieldErrors with paths as in SubmitJobRequest and UpdateJobRequest ("spec.schedule.cron.zone").
// The rules of the .proto are taken to hold already (see Validator).
func Define(s *waterclockv1.JobSpec, c Context) (*Definition, error) {
	var errs fielderr.FieldErrors
	d := &Definition{
		Name:     s.GetName(),
		Kind:     s.GetKind(),
		Queue:    orDefault(s.GetQueue(), job.DefaultQueue),
		Priority: orDefault(job.Priority(s.GetPriority()), job.Normal),
		Spec: job.Spec{
			CatchUp: catchUps[s.GetCatchUp()],
			Overlap: overlaps[s.GetOverlap()],
			Labels:  s.GetLabels(),
		},
	}
	if len(d.Spec.Labels) == 0 {
		d.Spec.Labels = nil
	}
	if d.Queue == job.SharedNamespace {
		errs = append(errs, &fielderr.FieldError{Field: "spec.queue", Given: d.Queue, Reason: "is reserved", Allowed: "letters, digits, _ and -, at most 64, and not _ alone"})
	}
	r := reader{errs: &errs}
	d.Spec.AttemptTimeout = r.duration("spec.attempt_timeout", s.GetAttemptTimeout())
	d.Spec.TotalDeadline = r.duration("spec.total_deadline", s.GetTotalDeadline())
	d.Spec.StartDeadline = r.duration("spec.start_deadline", s.GetStartDeadline())
	d.Spec.Retry = job.RetryPolicy{
		MaxAttempts:    s.GetRetry().GetMaxAttempts(),
		InitialBackoff: r.duration("spec.retry.initial_backoff", s.GetRetry().GetInitialBackoff()),
		MaxBackoff:     r.duration("spec.retry.max_backoff", s.GetRetry().GetMaxBackoff()),
		Multiplier:     s.GetRetry().GetMultiplier(),
	}
	d.Payload = payload(s, &errs)
	d.resolveSchedule(s.GetSchedule(), c, &r)
	if err := errs.Err(); err != nil {
		return nil, err
	}
	return d, nil
}

// Put writes the definition into a job. sharedQueue tells whether a queue is shared by all namespaces.
func (d *Definition) Put(j *job.Job, sharedQueue bool) {
	j.Name, j.Kind, j.Queue, j.Priority, j.Spec, j.Payload = d.Name, d.Kind, d.Queue, d.Priority, d.Spec, d.Payload
	j.QueueNamespace = j.Namespace
	if sharedQueue {
		j.QueueNamespace = job.SharedNamespace
	}
}

func payload(s *waterclockv1.JobSpec, errs *fielderr.FieldErrors) []byte {
	field, body := "spec.payload", s.GetPayload()
	if v := s.GetJson(); v != nil {
		field = "spec.json"
		var err error
		if body, err = jsonText(v); err != nil {
			*errs = append(*errs, &fielderr.FieldError{Field: field, Given: err.Error(), Reason: "is not JSON", Allowed: "a JSON value without NaN and infinities"})
			return nil
		}
	}
	if len(body) > job.MaxPayload {
		*errs = append(*errs, &fielderr.FieldError{
			Field: field, Given: strconv.Itoa(len(body)) + " bytes", Reason: "is too long",
			Allowed: fmt.Sprintf("at most %d bytes; put larger inputs into a blob store and their address into the payload", job.MaxPayload),
		})
		return nil
	}
	if len(body) == 0 {
		return nil
	}
	return body
}

var errNoValue = errors.New("a value without a kind")

// jsonText writes a Value the same way each time: protojson varies its white space on purpose.
func jsonText(v *structpb.Value) ([]byte, error) {
	if v.GetKind() == nil {
		return nil, errNoValue
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v.AsInterface()); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

var catchUps = map[waterclockv1.CatchUp]job.CatchUp{
	waterclockv1.CatchUp_CATCH_UP_LATEST: job.CatchUpLatest,
	waterclockv1.CatchUp_CATCH_UP_ALL:    job.CatchUpAll,
	waterclockv1.CatchUp_CATCH_UP_NONE:   job.CatchUpNone,
}

var overlaps = map[waterclockv1.Overlap]job.Overlap{
	waterclockv1.Overlap_OVERLAP_FORBID: job.OverlapForbid,
	waterclockv1.Overlap_OVERLAP_ALLOW:  job.OverlapAllow,
}

// keyOf finds the proto value of a domain value; the zero value where there is none.
func keyOf[K comparable, V comparable](m map[K]V, v V) K {
	for k, have := range m {
		if have == v {
			return k
		}
	}
	var zero K
	return zero
}

// Warned adds warnings to those of a job that is shown.
func Warned(j *waterclockv1.Job, warnings []string) *waterclockv1.Job {
	j.Warnings = slices.Concat(j.Warnings, warnings)
	return j
}
