package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	connectcors "connectrpc.com/cors"

	"github.com/waterclock-io/waterclock/api/auth"
)

type callerKey struct{}

// callerOf returns who calls. Only requests that went through authenticated reach a handler.
func callerOf(ctx context.Context) auth.Caller {
	c, _ := ctx.Value(callerKey{}).(auth.Caller) // no caller: the empty namespace, which owns nothing
	return c
}

// authenticated lets known callers through. It stands before the RPC handlers, so that the body of a stranger is not even read.
func (s *service) authenticated(keys *auth.Authenticator, next http.Handler) http.Handler {
	writer := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := keys.Authenticate(r)
		if err != nil {
			if s.errs.Unexpected(err) {
				s.Log.Error("cannot check a credential", "error", err)
			}
			if werr := writer.Write(w, r, s.errs.Connect(err)); werr != nil {
				s.Log.Debug("refusal not sent", "error", werr)
			}
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
	})
}

const (
	// bodyTimeout is how long a client may take to send its request.
	bodyTimeout = 30 * time.Second
	// maxBody bounds a request as it comes over the wire; messages in it are bounded by MaxRequest after decompression.
	maxBody = MaxRequest + 64<<10
)

// limitBodies holds clients to a size and a time for their requests.
func limitBodies(timeout time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		// Reflection is a stream of requests that may stay open; each of its messages is small.
		if r.Body != nil && r.Body != http.NoBody && !strings.HasPrefix(r.URL.Path, "/grpc.reflection.") {
			if err := control.SetReadDeadline(time.Now().Add(timeout)); err == nil {
				r.Body = &timedBody{ReadCloser: r.Body, control: control}
			}
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		}
		next.ServeHTTP(w, r)
	})
}

// timedBody lifts the deadline once the request has been read: else it would end streams and kept connections.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF { //nolint:errorlint // io.Reader's contract: EOF itself
		_ = b.control.SetReadDeadline(time.Time{}) // it could be set before
	}
	return n, err //nolint:wrapcheck // io.Reader's contract
}

// crossOrigin refuses web pages of other origins than those that are allowed, and answers the preflights of those.
func crossOrigin(origins []string, next http.Handler) (http.Handler, error) {
	guard := http.NewCrossOriginProtection()
	for _, o := range origins {
		if err := guard.AddTrustedOrigin(o); err != nil {
			return nil, fmt.Errorf("allowed origin %q: %w", o, err)
		}
	}
	next = guard.Handler(next)
	if len(origins) == 0 {
		return next, nil
	}
	methods := strings.Join(connectcors.AllowedMethods(), ", ")
	headers := strings.Join(append(connectcors.AllowedHeaders(), "Authorization"), ", ")
	exposed := strings.Join(connectcors.ExposedHeaders(), ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Add("Vary", "Origin")
		origin := r.Header.Get("Origin")
		if !slices.Contains(origins, origin) {
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", exposed)
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", methods)
			h.Set("Access-Control-Allow-Headers", headers)
			h.Set("Access-Control-Max-Age", strconv.Itoa(int((2 * time.Hour).Seconds())))
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	}), nil
}
