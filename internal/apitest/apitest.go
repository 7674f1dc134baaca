// Package apitest is what tests need to call the API as its users do. Tests of the API and of a cluster call it; programs do not: they send keys by the transport
// of their HTTP client.
package apitest

import (
	"context"

	"connectrpc.com/connect"
)

// WithKey sends an API key with each call of a client, streams included.
func WithKey(key string) connect.ClientOption { return connect.WithInterceptors(bearer(key)) }

type bearer string

func (b bearer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		req.Header().Set("Authorization", "Bearer "+string(b))
		return next(ctx, req)
	}
}

func (b bearer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		conn.RequestHeader().Set("Authorization", "Bearer "+string(b))
		return conn
	}
}

func (b bearer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
