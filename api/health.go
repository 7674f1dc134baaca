package api

import (
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/waterclock-io/waterclock/proto/waterclock/v1/waterclockv1connect"
)

const (
	healthService = "grpc.health.v1.Health"
	// healthPoll is how often a watched health is asked for anew.
	healthPoll = 2 * time.Second
	// healthTimeout is how long an answer may take before it counts as no.
	healthTimeout = 2 * time.Second
)

// mountHealth serves the health protocol of gRPC, to anybody: load balancers have no credentials.
func (s *service) mountHealth(mux *http.ServeMux) {
	limit := connect.WithReadMaxBytes(4 << 10)
	check, watch := "/"+healthService+"/Check", "/"+healthService+"/Watch"
	mux.Handle(check, connect.NewUnaryHandler(check, s.healthCheck, limit))
	mux.Handle(watch, connect.NewServerStreamHandler(watch, s.healthWatch, limit))
}

func (s *service) healthCheck(ctx context.Context, req *connect.Request[healthv1.HealthCheckRequest]) (*connect.Response[healthv1.HealthCheckResponse], error) {
	status := s.health(ctx, req.Msg.GetService())
	if status == healthv1.HealthCheckResponse_SERVICE_UNKNOWN {
		return nil, connect.NewError(connect.CodeNotFound, nil)
	}
	return connect.NewResponse(&healthv1.HealthCheckResponse{Status: status}), nil
}

func (s *service) healthWatch(
	ctx context.Context, req *connect.Request[healthv1.HealthCheckRequest], stream *connect.ServerStream[healthv1.HealthCheckResponse],
) error {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		return s.errs.Connect(errTooManyStreams)
	}
	last := healthv1.HealthCheckResponse_ServingStatus(-1)
	tick := time.NewTicker(healthPoll)
	defer tick.Stop()
	for {
		if now := s.health(ctx, req.Msg.GetService()); now != last {
			if err := stream.Send(&healthv1.HealthCheckResponse{Status: now}); err != nil {
				return err //nolint:wrapcheck // the client is gone
			}
			last = now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (s *service) health(ctx context.Context, name string) healthv1.HealthCheckResponse_ServingStatus {
	switch name {
	case "", waterclockv1connect.JobServiceName, waterclockv1connect.RunServiceName:
	default:
		return healthv1.HealthCheckResponse_SERVICE_UNKNOWN
	}
	if s.Ready == nil {
		return healthv1.HealthCheckResponse_SERVING
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if s.Ready(ctx) != nil {
		return healthv1.HealthCheckResponse_NOT_SERVING
	}
	return healthv1.HealthCheckResponse_SERVING
}
