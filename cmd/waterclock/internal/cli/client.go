package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job/fielderr"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/proto/waterclock/v1/waterclockv1connect"
)

const (
	callTimeout = 30 * time.Second // of a call that is no stream
	maxResponse = 64 << 20
)

type client struct {
	jobs waterclockv1connect.JobServiceClient
	runs waterclockv1connect.RunServiceClient
}

// dial makes a client from the flags and the environment. It does not connect yet.
func (a *app) dial() (*client, error) {
	server := first(a.server, a.Getenv("WATERCLOCK_SERVER"), DefaultServer)
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, &fielderr.FieldError{Field: "--server", Given: server, Allowed: "an http:// or https:// address"}
	}
	httpClient := &http.Client{Transport: &keyTransport{
		key:  strings.TrimSpace(first(a.apiKey, a.Getenv("WATERCLOCK_API_KEY"))),
		next: http.DefaultTransport,
	}}
	limit := connect.WithReadMaxBytes(maxResponse)
	return &client{
		jobs: waterclockv1connect.NewJobServiceClient(httpClient, server, limit),
		runs: waterclockv1connect.NewRunServiceClient(httpClient, server, limit),
	}, nil
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// keyTransport shows the API key with every request.
type keyTransport struct {
	key  string
	next http.RoundTripper
}

func (t *keyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.key != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+t.key)
	}
	return t.next.RoundTrip(r)
}

// call makes one call that is no stream, within callTimeout.
func call[Req, Res any](ctx context.Context, method func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req) (*Res, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := method(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

// maxNamePages bounds the search for a job by its name among the names that begin with it.
const maxNamePages = 10

// jobID returns the id that the argument JOB stands for: itself, or that of the job with exactly this name.
func (c *client) jobID(ctx context.Context, arg string) (string, error) {
	if isUUID(arg) {
		return strings.ToLower(arg), nil
	}
	if arg == "" {
		return "", &fielderr.FieldError{Field: "JOB", Allowed: "the id or the name of a job"}
	}
	req := &waterclockv1.ListJobsRequest{NamePrefix: arg, PageSize: maxPage}
	for range maxNamePages {
		page, err := call(ctx, c.jobs.ListJobs, req)
		if err != nil {
			return "", fmt.Errorf("look for job %q: %w", arg, err)
		}
		for _, j := range page.GetJobs() {
			if j.GetSpec().GetName() == arg {
				return j.GetJobId(), nil
			}
		}
		if page.GetNextPageToken() == "" {
			return "", &notFoundError{fmt.Sprintf("there is no job of the name %q", arg)}
		}
		req.PageToken = page.GetNextPageToken()
	}
	return "", errors.New("too many jobs have names that begin so; give the id of the job")
}

// runIDs returns the ids of the arguments JOB [RUN].
func (c *client) runIDs(ctx context.Context, args []string) (jobID, runID string, err error) {
	if len(args) > 1 {
		if !isUUID(args[1]) {
			return "", "", &fielderr.FieldError{Field: "RUN", Given: args[1], Allowed: "the id of a run"}
		}
		runID = strings.ToLower(args[1])
	}
	jobID, err = c.jobID(ctx, args[0])
	return jobID, runID, err
}

// isUUID takes the one way in which ids are written; uuid.Parse takes others, which may as well be names.
func isUUID(s string) bool { return len(s) == 36 && uuid.Validate(s) == nil }
