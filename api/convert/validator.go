package convert

import (
	"errors"
	"fmt"
	"strings"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/waterclock-io/waterclock/job/fielderr"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

// Validator checks messages by the rules that stand in their .proto.
type Validator struct {
	rules protovalidate.Validator
}

// NewValidator compiles the rules of all requests, so that no request pays for it.
func NewValidator() (*Validator, error) {
	var messages []proto.Message
	for _, file := range []protoreflect.FileDescriptor{waterclockv1.File_waterclock_v1_job_service_proto, waterclockv1.File_waterclock_v1_run_service_proto} {
		for i := range file.Messages().Len() {
			messages = append(messages, dynamicZero(file.Messages().Get(i)))
		}
	}
	v, err := protovalidate.New(protovalidate.WithMessages(messages...))
	if err != nil {
		return nil, fmt.Errorf("compile the rules of the requests: %w", err)
	}
	return &Validator{v}, nil
}

// Check returns fielderr.FieldErrors where a rule does not hold.
func (v *Validator) Check(m proto.Message) error {
	err := v.rules.Validate(m)
	var found *protovalidate.ValidationError
	if err == nil {
		return nil
	}
	if !errors.As(err, &found) {
		return fmt.Errorf("check %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	errs := make(fielderr.FieldErrors, 0, len(found.Violations))
	for _, f := range found.Violations {
		errs = append(errs, &fielderr.FieldError{
			Field:   protovalidate.FieldPathString(f.Proto.GetField()),
			Given:   given(f),
			Allowed: allowed(f),
		})
	}
	return errs.Err()
}

// given shows a value that broke a rule, unless it is one that nobody can read.
func given(f *protovalidate.Violation) string {
	v := f.FieldValue
	if f.Proto.GetForKey() {
		return lastKey(f)
	}
	if !v.IsValid() {
		return "nothing"
	}
	switch x := v.Interface().(type) {
	case protoreflect.Message:
		return messageText(x)
	case protoreflect.List:
		return fmt.Sprintf("%d items", x.Len())
	case protoreflect.Map:
		return fmt.Sprintf("%d entries", x.Len())
	case []byte:
		return fmt.Sprintf("%d bytes", len(x))
	default:
		return fmt.Sprint(x)
	}
}

// lastKey returns the map key that a violation is about: it stands in the path, not in the value.
func lastKey(f *protovalidate.Violation) string {
	elements := f.Proto.GetField().GetElements()
	if len(elements) == 0 {
		return ""
	}
	return elements[len(elements)-1].GetStringKey()
}

const tokenAllowed = "letters, digits, _ and -, at most 64"

// patterns says in words what the patterns of the .proto files say.
var patterns = map[string]string{
	"^[A-Za-z0-9_-]{1,64}$":   tokenAllowed,
	"^[A-Za-z0-9_-]{0,64}$":   tokenAllowed,
	"^[A-Za-z0-9._/-]{1,64}$": "letters, digits, and . _ - /, from 1 to 64",
	"^[A-Za-z0-9._/-]{0,64}$": "letters, digits, and . _ - /, at most 64",
	`^[^\x00-\x1f\x7f]*$`:     "text without control characters",
}

func allowed(f *protovalidate.Violation) string {
	if f.RuleValue.IsValid() {
		if s, ok := f.RuleValue.Interface().(string); ok {
			if words, ok := patterns[s]; ok {
				return words
			}
		}
	}
	text := f.Proto.GetMessage()
	switch {
	case f.Proto.GetRuleId() == "required":
		return "a value"
	case strings.HasPrefix(text, "value "):
		text = strings.TrimPrefix(text, "value ")
	}
	return text
}
