package natssubmit

import (
	"errors"
	"fmt"
	"mime"
	"strconv"

	"connectrpc.com/connect"
	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/api/convert"
	"github.com/waterclock-io/waterclock/api/rpcerr"
	"github.com/waterclock-io/waterclock/api/submit"
	"github.com/waterclock-io/waterclock/job/fielderr"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
)

const (
	contentType  = "Content-Type"
	jsonType     = "application/json"
	protobufType = "application/protobuf"
	// As clients of the micro services of NATS know them.
	errorHeader     = "Nats-Service-Error"
	errorCodeHeader = "Nats-Service-Error-Code"
	msgIDHeader     = "Nats-Msg-Id"
)

// request reads a message. A Nats-Msg-Id header is the idempotency key where the body has none.
func request(subject string, header nats.Header, body []byte) (r submit.Request, asJSON bool, err error) {
	asJSON = isJSON(header, body)
	if r.Namespace, err = namespaceOf(subject); err != nil {
		return r, asJSON, err
	}
	if r.Message, err = decode(body, asJSON); err != nil {
		return r, asJSON, err
	}
	if id := header.Get(msgIDHeader); id != "" && r.Message.GetIdempotencyKey() == "" {
		r.Message.IdempotencyKey = id
	}
	return r, asJSON, nil
}

// isJSON goes by the header, else by the first byte: "{" begins no protobuf SubmitJobRequest.
func isJSON(header nats.Header, body []byte) bool {
	if ct := header.Get(contentType); ct != "" {
		t, _, err := mime.ParseMediaType(ct)
		return err == nil && t == jsonType
	}
	return len(body) > 0 && body[0] == '{'
}

func decode(body []byte, asJSON bool) (*waterclockv1.SubmitJobRequest, error) {
	if len(body) > maxBody {
		return nil, &fielderr.FieldError{Field: "body", Given: strconv.Itoa(len(body)) + " bytes", Reason: "is too long", Allowed: fmt.Sprintf("at most %d bytes", maxBody)}
	}
	m, err := &waterclockv1.SubmitJobRequest{}, error(nil)
	kind := "protobuf"
	if asJSON {
		kind = "JSON"
		err = protojson.UnmarshalOptions{RecursionLimit: maxDepth}.Unmarshal(body, m)
	} else {
		err = proto.UnmarshalOptions{RecursionLimit: maxDepth}.Unmarshal(body, m)
	}
	if err != nil {
		return nil, &fielderr.FieldError{
			Field: "body", Given: strconv.Itoa(len(body)) + " bytes", Reason: "is not " + kind + " (" + err.Error() + ")",
			Allowed: "a waterclock.v1.SubmitJobRequest as protobuf, or as JSON that begins with { or has the header Content-Type: application/json",
		}
	}
	return m, nil
}

// maxDepth bounds the nesting of a JSON payload.
const maxDepth = 200

// reply makes the answer to a request, in the encoding of the request.
func reply(errs *rpcerr.Table, res *submit.Result, failed error, asJSON bool) (*nats.Msg, error) {
	out := nats.NewMsg("")
	var body proto.Message
	if failed != nil {
		e := errs.Submit(failed)
		body = e
		out.Header.Set(errorHeader, headerText(e.GetMessage()))
		out.Header.Set(errorCodeHeader, e.GetCode())
	} else {
		answer := &waterclockv1.SubmitJobResponse{Existed: res.Existed}
		var timers []store.Timer
		if res.Timer != nil {
			timers = append(timers, *res.Timer)
			answer.Run = convert.View{Now: res.Timer.DueAt}.Live(res.Timer)
		}
		answer.Job = convert.Warned(convert.Job(res.Job, timers), res.Warnings)
		if res.Existed {
			answer.Job.State = waterclockv1.JobState_JOB_STATE_UNSPECIFIED // not looked up
		}
		if s := answer.Job.GetSpec(); s != nil {
			s.Input = nil // the requester has it, and the reply has a size limit
		}
		body = answer
	}
	var err error
	if asJSON {
		out.Header.Set(contentType, jsonType)
		out.Data, err = protojson.MarshalOptions{UseProtoNames: true}.Marshal(body)
	} else {
		out.Header.Set(contentType, protobufType)
		out.Data, err = proto.Marshal(body)
	}
	if err != nil {
		return nil, fmt.Errorf("encode reply: %w", err)
	}
	return out, nil
}

// headerText keeps a text within one header line.
func headerText(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c < ' ' {
			b[i] = ' '
		}
	}
	if len(b) > 1024 {
		b = b[:1024]
	}
	return string(b)
}

// permanent tells whether repeating a submit cannot help.
func permanent(errs *rpcerr.Table, err error) bool {
	if errors.Is(err, store.ErrUnknownOutcome) || errors.Is(err, store.ErrUnavailable) {
		return false
	}
	switch errs.Connect(err).Code() {
	case connect.CodeInvalidArgument, connect.CodeAlreadyExists:
		return true
	default:
		return false
	}
}
