package natssubmit

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/waterclock-io/waterclock/api/convert"
	"github.com/waterclock-io/waterclock/job/fielderr"
)

// FuzzRequest: whatever comes is either a message that the rules can look at, or an error that names a field.
func FuzzRequest(f *testing.F) {
	f.Add("submit.acme", "", []byte(`{"spec":{"kind":"exec"}}`))
	f.Add("submit.acme", "application/json; charset=utf-8", []byte(` {"spec":{}}`))
	f.Add("enqueue.acme", "application/protobuf", []byte("\x0a\x06\x0a\x04exec"))
	f.Add("enqueue.*", "", []byte("\xff"))
	f.Add("", "a/b;;", []byte(nil))
	f.Add("submit.a", "", []byte(`{"spec":{"json":[[[[[[[[[[1]]]]]]]]]]}}`))
	v, err := convert.NewValidator()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, subject, kind string, body []byte) {
		h := nats.Header{}
		if kind != "" {
			h.Set(contentType, kind)
		}
		r, _, err := request(subject, h, body)
		var one *fielderr.FieldError
		if err != nil {
			if !errors.As(err, &one) || one.Field == "" || one.Allowed == "" {
				t.Fatalf("%v names no field", err)
			}
			return
		}
		var many fielderr.FieldErrors
		if err := v.Check(r.Message); err != nil && !errors.As(err, &many) {
			t.Fatal(err)
		}
		_ = convert.BodyHash(r.Message.GetSpec())
	})
}
