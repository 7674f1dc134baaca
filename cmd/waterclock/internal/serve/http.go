package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/waterclock-io/waterclock/api"
	"github.com/waterclock-io/waterclock/api/convert"
	"github.com/waterclock-io/waterclock/api/natssubmit"
	"github.com/waterclock-io/waterclock/api/submit"
	"github.com/waterclock-io/waterclock/executor/runlog"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/streams"
)

// listenHTTP takes the port before anything else is done, so that one in use is told at once. Nobody is answered before startHTTP.
func (n *Node) listenHTTP(context.Context) error {
	l, err := streams.Listen(n.cfg.HTTP.Listen)
	if err != nil {
		return fmt.Errorf("http.listen: %w", err)
	}
	n.listener = l
	n.onStop("HTTP port", func(context.Context) { _ = l.Close() }) // the server has closed it already
	return nil
}

// startHTTP answers on the port: with the API where the process has that role, and in any case with health, readiness and metrics.
func (n *Node) startHTTP(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(n.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { answer(w, n.Ready(r.Context())) })
	if n.opt.Roles.API {
		h, err := n.api(ctx)
		if err != nil {
			return err
		}
		mux.Handle("/", h)
	}
	srv := api.NewServer(mux, n.log)
	l := n.listener
	go func() {
		var err error
		if n.cfg.HTTP.TLSCert != "" {
			err = srv.ServeTLS(l, n.cfg.HTTP.TLSCert, n.cfg.HTTP.TLSKey)
		} else {
			err = srv.Serve(l)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			n.failed <- fmt.Errorf("serve HTTP: %w", err)
		}
	}()
	n.onStop("HTTP server", func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close() // streams that are followed do not end by themselves
		}
	})
	return nil
}

// api makes the handler of the API and the ways in by NATS.
func (n *Node) api(ctx context.Context) (http.Handler, error) {
	loopback, err := isLoopback(n.cfg.HTTP.Listen)
	if err != nil {
		return nil, err
	}
	if err := n.askSQL(ctx, func(ctx context.Context) error { return n.checkKeys(ctx, loopback) }); err != nil {
		return nil, err
	}
	var cluster store.Cluster
	err = n.askSQL(ctx, func(ctx context.Context) (err error) {
		cluster, err = n.store.Cluster(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read cluster key: %w", err)
	}
	validator, err := convert.NewValidator()
	if err != nil {
		return nil, err
	}
	waker := streams.NewWaker(n.notify, n.log)
	service := submit.New(submit.Config{Store: n.store, Clock: n.clock, Waker: waker, Validator: validator, Metrics: submit.NewMetrics(n.registry)})
	n.onStop("submit", func(context.Context) { service.Stop() })

	executors := streams.NewRegistry()
	if err := n.listen(executors); err != nil {
		return nil, err
	}
	watchers := streams.NewWatchers()
	sub, err := watchers.Start(n.nc)
	if err != nil {
		return nil, err
	}
	n.onStop("watchers", func(context.Context) { _ = sub.Unsubscribe() }) // the connection is closed next

	live := streams.NewLiveReader(n.js)
	h, err := api.NewHandler(api.Deps{
		Store: n.store, Submit: service, Validator: validator, Clock: n.clock, Waker: waker,
		Withdrawer: streams.NewWithdrawer(n.js, n.notify, n.clock), Watcher: watchers, LiveLog: live, Progress: live, Blobs: n.blobs,
		Executors: executors, DecodeLog: decodeLog, Ready: n.Ready, ClusterKey: cluster.Key, AllowAnonymousLoopback: loopback, Log: n.log,
	})
	if err != nil {
		return nil, err
	}
	way := natssubmit.New(natssubmit.Config{
		Conn: n.nc, JS: n.js, Submit: service, Errors: api.NewErrors(), RequestSubjects: streams.SubmitSubjects, Stream: streams.SubmitStream,
		DeadSubject: func(namespace string) string { return streams.DeadSubject("submit", namespace) }, Log: n.log,
	})
	if err := way.Start(); err != nil {
		return nil, err
	}
	n.onStop("submit by NATS", func(context.Context) { way.Stop() })
	return h, nil
}

func (n *Node) listen(executors *streams.Registry) error {
	sub, err := streams.OnHeartbeat(n.nc, executors.Take)
	if err != nil {
		return err
	}
	n.onStop("registry", func(context.Context) { _ = sub.Unsubscribe() }) // the connection is closed next
	n.notify.RollCall()
	return nil
}

// ErrNoKey refuses to let the whole network in.
var ErrNoKey = errors.New("http.listen is reachable from other machines and no API key exists")

// checkKeys refuses to listen beyond loopback without a key.
func (n *Node) checkKeys(ctx context.Context, loopback bool) error {
	if loopback {
		return nil
	}
	keys, err := n.store.Keys(ctx, "")
	if err != nil {
		return fmt.Errorf("read API keys: %w", err)
	}
	for _, k := range keys {
		if k.RevokedAt.IsZero() && (k.ExpiresAt.IsZero() || k.ExpiresAt.After(n.clock.Now())) {
			return nil
		}
	}
	return fmt.Errorf("%w: %s given; make a key with `waterclock keys create --namespace NAME` or listen on 127.0.0.1", ErrNoKey, n.cfg.HTTP.Listen)
}

func isLoopback(listen string) (bool, error) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false, fmt.Errorf("http.listen: %w", err)
	}
	if host == "localhost" {
		return true, nil
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback(), nil
}

// Ready says why this process cannot do its work at the moment; nil where it can.
func (n *Node) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var errs []error
	if !n.nc.IsConnected() {
		errs = append(errs, errors.New("NATS is not connected"))
	} else if _, err := streams.Discover(ctx, n.js); err != nil {
		errs = append(errs, fmt.Errorf("JetStream: %w", err))
	}
	if n.store != nil {
		if err := n.store.Ping(ctx); err != nil {
			errs = append(errs, fmt.Errorf("database: %w", err))
		}
	}
	return errors.Join(errs...)
}

func answer(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	body := map[string]string{"status": "ok"}
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		body = map[string]string{"status": "unavailable", "reason": err.Error()}
	}
	_ = json.NewEncoder(w).Encode(body) // the client is gone
}

// decodeLog gives the API the logs that executors store.
func decodeLog(r io.Reader) iter.Seq2[api.LogEntry, error] {
	return func(yield func(api.LogEntry, error) bool) {
		for e, err := range runlog.Decode(r) {
			if !yield(api.LogEntry{Stream: int32(e.Stream), Time: e.Time, Data: e.Data, Cut: e.Cut}, err) {
				return
			}
		}
	}
}
