package harness

import (
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"

	"github.com/waterclock-io/waterclock/proto/waterclock/v1/waterclockv1connect"
)

// door is the way of one namespace into the API, by whichever of its processes answers.
type door struct {
	namespace string
	jobs      waterclockv1connect.JobServiceClient
	runs      waterclockv1connect.RunServiceClient
}

// newDoor begins with the API of that number. Without a key nobody is told who calls, and the namespace is the default one.
func newDoor(namespace, key string, apis []string, begin int, base http.RoundTripper) (*door, error) {
	t := &turnstile{base: base, key: key}
	for _, api := range apis {
		u, err := url.Parse(api)
		if err != nil {
			return nil, fmt.Errorf("address of an API: %w", err)
		}
		t.apis = append(t.apis, u)
	}
	if len(t.apis) == 0 {
		return nil, fmt.Errorf("no API for namespace %q", namespace)
	}
	t.at.Store(uint32(begin)) //nolint:gosec // small
	hc := &http.Client{Transport: t}
	return &door{
		namespace: namespace, jobs: waterclockv1connect.NewJobServiceClient(hc, apis[0]), runs: waterclockv1connect.NewRunServiceClient(hc, apis[0]),
	}, nil
}

// turnstile sends requests to one API until that cannot be reached or says that it cannot serve; what comes next goes to the next one. It repeats nothing
// itself: only the caller knows what a second time means.
type turnstile struct {
	base http.RoundTripper
	key  string
	apis []*url.URL
	at   atomic.Uint32
}

// RoundTrip implements http.RoundTripper.
func (t *turnstile) RoundTrip(req *http.Request) (*http.Response, error) {
	at := t.at.Load()
	api := t.apis[int(at)%len(t.apis)]
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host, out.Host = api.Scheme, api.Host, ""
	if t.key != "" {
		out.Header.Set("Authorization", "Bearer "+t.key)
	}
	res, err := t.base.RoundTrip(out)
	if err != nil || res.StatusCode == http.StatusServiceUnavailable {
		t.at.CompareAndSwap(at, at+1)
	}
	return res, err
}
