// Package api is the way in over HTTP: the handlers of JobService and RunService for Connect, gRPC and gRPC-Web, with reflection and health.
//
// A handler says who calls (auth), checks and translates (convert), lets control or submit decide, asks the store to apply it, and tells those who should
// know. Decisions stand in the packages below, not here. It never imports planner, executor or status: what it needs of the running system comes as the
// small interfaces of this file. Package cmd wires it and owns the listener.
package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/api/auth"
	"github.com/waterclock-io/waterclock/api/control"
	"github.com/waterclock-io/waterclock/api/convert"
	"github.com/waterclock-io/waterclock/api/page"
	"github.com/waterclock-io/waterclock/api/rpcerr"
	"github.com/waterclock-io/waterclock/api/submit"
	"github.com/waterclock-io/waterclock/internal/gather"
	"github.com/waterclock-io/waterclock/proto/waterclock/v1/waterclockv1connect"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
)

// Store is what the handlers ask of SQL.
type Store interface {
	store.Jobs
	store.History
	auth.Keys
}

// Withdrawer stops runs that were handed out.
type Withdrawer interface {
	// Withdraw deletes the message of a run and tells its executor, or every executor, to stop. It tries until ctx ends; after an error the run may still begin,
	// until its planner has taken it back.
	Withdraw(ctx context.Context, t store.Timer, reason string) error
	// TakeBack lets a run that no executor has got yet come back and wait; one that an executor has goes on. It tries until moved tells that the run is no longer as
	// it was, or until ctx ends; after an error the run may still begin.
	TakeBack(ctx context.Context, t store.Timer, moved func(context.Context) bool) error
}

// Watcher tells of recorded changes.
type Watcher interface {
	// Watch signals after each recorded change of a run until stop is called. It may miss some.
	Watch(runID uuid.UUID) (changed <-chan struct{}, stop func())
}

// LiveLog reads what goes on in a run.
type LiveLog interface {
	// Live gives what is kept of a run's live messages from the beginning, then what comes, until the attempt ends or ctx does.
	Live(ctx context.Context, namespace string, runID uuid.UUID) iter.Seq2[*wirev1.Live, error]
}

// Progress knows what handlers last said of their work.
type Progress interface {
	// Progress returns the latest progress of a run; false where none is known. It does not block for long.
	Progress(ctx context.Context, namespace string, runID uuid.UUID) (*wirev1.Live, bool)
}

// Blobs opens what executors stored.
type Blobs interface {
	Open(ctx context.Context, key string) (io.ReadCloser, error)
}

// Executors is the registry of the live executors.
type Executors interface {
	// Offers tells whether a live executor of a queue offers a kind.
	Offers(queueNamespace, queue, kind string) bool
}

// LogEntry is a piece of a stored log.
type LogEntry struct {
	Stream int32 // 1 stdout, 2 stderr
	Time   time.Time
	Data   []byte
	Cut    int64 // bytes left out before Data
}

// Deps is what the handlers work with. Progress, LiveLog, Blobs, DecodeLog, Executors and Ready may be nil: then there is none of it.
type Deps struct {
	Store      Store
	Submit     *submit.Service
	Validator  *convert.Validator
	Clock      submit.Clock
	Waker      submit.Waker
	Withdrawer Withdrawer
	Watcher    Watcher
	LiveLog    LiveLog
	Progress   Progress
	Blobs      Blobs
	Executors  Executors
	// DecodeLog reads the format of stored logs.
	DecodeLog func(io.Reader) iter.Seq2[LogEntry, error]
	// Ready says why the process cannot serve at the moment; nil where it can. Health answers by it.
	Ready func(context.Context) error
	// ClusterKey is store.Cluster.Key.
	ClusterKey []byte
	// AllowAnonymousLoopback lets callers of this machine that show no credential into the default namespace.
	AllowAnonymousLoopback bool
	// AllowedOrigins are the origins of web pages that may call, such as https://example.com; empty: none.
	AllowedOrigins []string
	Log            *slog.Logger
}

const (
	// MaxRequest is the largest request message, after decompression.
	MaxRequest = 4 << 20
	// callTimeout is how long a call may take that is no stream.
	callTimeout = 30 * time.Second
	// maxStreams bounds the streams of one process.
	maxStreams = 2000
)

// service implements both services.
type service struct {
	Deps
	errs      *rpcerr.Table
	tokens    *page.Sealer
	streams   chan struct{}
	standings *gather.Gatherer[store.JobRef, *standing]
}

// NewErrors returns the table that maps errors of every way in to what callers see.
func NewErrors() *rpcerr.Table {
	t := rpcerr.New()
	t.Add(submit.ErrBusy, connect.CodeResourceExhausted, "BUSY", "")
	t.Add(submit.ErrStopped, connect.CodeUnavailable, "STOPPING", "")
	t.Add(control.ErrPaused, connect.CodeFailedPrecondition, "JOB_PAUSED", "")
	t.Add(control.ErrCompleted, connect.CodeFailedPrecondition, "JOB_COMPLETED", "")
	t.Add(control.ErrRanBefore, connect.CodeFailedPrecondition, "RUN_ENDED", "")
	t.Add(auth.ErrDenied, connect.CodeUnauthenticated, "UNAUTHENTICATED", "")
	t.Add(auth.ErrThrottled, connect.CodeResourceExhausted, "THROTTLED", "")
	t.Add(errTooManyStreams, connect.CodeResourceExhausted, "TOO_MANY_STREAMS", "")
	t.Add(errMoved, connect.CodeAborted, "CONTENDED", "")
	t.Add(errNotWithdrawn, connect.CodeUnavailable, "NOT_WITHDRAWN", "")
	t.Add(errNoLog, connect.CodeUnavailable, "NO_LOG_STORE", "")
	return t
}

var errTooManyStreams = errors.New("this server follows too many runs already; try another, or later")

// NewHandler returns the handler of all services. It must be served with HTTP/1 and unencrypted HTTP/2 (see NewServer) for gRPC clients to reach it.
func NewHandler(d Deps) (http.Handler, error) { return newHandler(d, bodyTimeout) }

func newHandler(d Deps, forBody time.Duration) (http.Handler, error) {
	if err := policed(); err != nil {
		return nil, err
	}
	s := &service{Deps: d, errs: NewErrors(), tokens: page.NewSealer(d.ClusterKey), streams: make(chan struct{}, maxStreams), standings: newStandings(d.Store)}
	options := []connect.HandlerOption{
		connect.WithInterceptors(&interceptor{s}),
		connect.WithReadMaxBytes(MaxRequest),
		bounded(),
		connect.WithCompressMinBytes(minCompressed),
		connect.WithRecover(s.recovered),
	}
	guarded := http.NewServeMux()
	guarded.Handle(waterclockv1connect.NewJobServiceHandler(s, options...))
	guarded.Handle(waterclockv1connect.NewRunServiceHandler(s, options...))
	reflector := grpcreflect.NewStaticReflector(waterclockv1connect.JobServiceName, waterclockv1connect.RunServiceName, healthService)
	guarded.Handle(grpcreflect.NewHandlerV1(reflector, connect.WithReadMaxBytes(MaxRequest), bounded()))
	guarded.Handle(grpcreflect.NewHandlerV1Alpha(reflector, connect.WithReadMaxBytes(MaxRequest), bounded()))

	keys := auth.New(auth.Config{Keys: d.Store, Now: d.Clock.Now, AllowAnonymousLoopback: d.AllowAnonymousLoopback})
	mux := http.NewServeMux()
	mux.Handle("/", s.authenticated(keys, guarded))
	s.mountHealth(mux)
	return crossOrigin(d.AllowedOrigins, limitBodies(forBody, mux))
}

// NewServer returns a server for the handler: HTTP/1 and HTTP/2 without TLS on one port, with limits against slow and greedy clients. TLS, if any, ends before.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		Protocols:         &protocols,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 1000, MaxReadFrameSize: 1 << 20},
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

func (s *service) recovered(_ context.Context, spec connect.Spec, _ http.Header, value any) error {
	s.Log.Error("a handler panicked", "procedure", spec.Procedure, "panic", fmt.Sprint(value))
	return s.errs.Connect(errPanic)
}

var errPanic = errors.New("handler panicked")
