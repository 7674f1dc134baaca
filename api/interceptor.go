package api

import (
	"context"
	"errors"
	"log/slog"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
)

// interceptor stands around every RPC: time-out, rules of the .proto, and what the caller sees of errors.
type interceptor struct {
	s *service
}

// WrapUnary implements connect.Interceptor.
func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		err := i.s.check(req.Any())
		if err == nil {
			var res connect.AnyResponse
			if res, err = next(ctx, req); err == nil {
				return res, nil
			}
		}
		return nil, i.s.answer(ctx, req.Spec().Procedure, err)
	}
}

// WrapStreamingClient implements connect.Interceptor; handlers have no use for it.
func (i *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		select {
		case i.s.streams <- struct{}{}:
			defer func() { <-i.s.streams }()
		default:
			return i.s.answer(ctx, conn.Spec().Procedure, errTooManyStreams)
		}
		if err := next(ctx, &checkedConn{conn, i.s}); err != nil {
			return i.s.answer(ctx, conn.Spec().Procedure, err)
		}
		return nil
	}
}

// checkedConn checks what it receives.
type checkedConn struct {
	connect.StreamingHandlerConn
	s *service
}

func (c *checkedConn) Receive(m any) error {
	if err := c.StreamingHandlerConn.Receive(m); err != nil {
		return err //nolint:wrapcheck // io.EOF must stay what it is
	}
	return c.s.check(m)
}

// check applies the rules of the .proto. Specs are checked where they are whole: by submit, request by request, and by the update once its mask is applied.
func (s *service) check(m any) error {
	switch m := m.(type) {
	case *waterclockv1.SubmitJobRequest, *waterclockv1.SubmitJobsRequest:
		return nil
	case *waterclockv1.UpdateJobRequest:
		return s.Validator.Check(&waterclockv1.UpdateJobRequest{JobId: m.GetJobId(), Version: m.GetVersion(), Spec: &waterclockv1.JobSpec{Kind: "-"}})
	case proto.Message:
		return s.Validator.Check(m)
	default:
		return nil
	}
}

// answer gives what the caller sees of an error, and tells the operator what the caller is not told.
func (s *service) answer(ctx context.Context, procedure string, err error) error {
	level := slog.LevelDebug
	switch {
	case s.errs.Unexpected(err):
		level = slog.LevelError
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrUnknownOutcome):
		level = slog.LevelWarn
	}
	if level > slog.LevelDebug {
		s.Log.Log(ctx, level, "call failed", "procedure", procedure, "namespace", callerOf(ctx).Namespace, "error", err)
	}
	return s.errs.Connect(err)
}
