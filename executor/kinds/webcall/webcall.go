// Package webcall is the kind "http": a run is an HTTP request to somebody's service.
//
// The answer decides the outcome: 2xx is success and its body the result; 429, 5xx and a network that fails are tried again, as late as Retry-After asks; what
// else is fatal. Unless the configuration allows it, only public addresses are connected to, whatever names, redirects and changing DNS answers lead to.
//
// A request may arrive more than once. Services tell by the header Idempotency-Key, which is the same for all attempts of a run, and may refuse one whose
// Waterclock-Dispatch is lower than one they have seen. cmd registers the handler; nothing else calls it.
package webcall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/waterclock-io/waterclock/executor"
)

// Kind is the name under which the handler is to be registered.
const Kind = "http"

const (
	// maxRedirects of GET and HEAD are followed.
	maxRedirects = 5
	// maxRetryAfter bounds what a service may ask for by Retry-After.
	maxRetryAfter = time.Hour
	// reason is what history says of every outcome that HTTP decided.
	reason = "http"
)

// Config says how the handler reaches services.
type Config struct {
	// AllowPrivate also allows private, loopback, link-local and other addresses that are not public.
	AllowPrivate bool
	// UserAgent is sent where the payload has none; "Waterclock" if empty.
	UserAgent string

	// For tests, which can reach loopback only: other names and another idea of what is public.
	resolver  *net.Resolver
	forbidden func(netip.Addr) string
}

// call is what the handler needs of a run.
type call interface {
	Stdout() io.Writer
	SetResult([]byte)
}

type caller struct {
	client    *http.Client
	userAgent string
}

// Handler returns the handler of the kind. All its runs share one pool of connections. Proxies that the environment names are not used: they would
// connect to whatever they are told.
func Handler(c Config) executor.Handler {
	h := newCaller(c)
	return func(ctx context.Context, run *executor.Run) error {
		r, err := decode(run.Payload)
		if err != nil {
			return executor.Fatal(err)
		}
		r.headers.Set(headerKey, run.IdempotencyKey())
		r.headers.Set(headerRun, run.ID.String())
		r.headers.Set(headerAttempt, strconv.Itoa(int(run.Attempt)))
		r.headers.Set(headerDispatch, strconv.FormatInt(run.Dispatch, 10))
		return h.do(ctx, r, run)
	}
}

func newCaller(c Config) *caller {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Resolver: c.resolver}
	if c.forbidden == nil {
		c.forbidden = forbidden
	}
	if !c.AllowPrivate {
		dialer.Control = guardDial(c.forbidden)
	}
	if c.UserAgent == "" {
		c.UserAgent = "Waterclock"
	}
	return &caller{
		userAgent: c.UserAgent,
		client: &http.Client{
			CheckRedirect: checkRedirect,
			Transport: &http.Transport{
				Proxy: nil, DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
				MaxIdleConns: 256, MaxIdleConnsPerHost: 16, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: 256 << 10,
			},
		},
	}
}

func (c *caller) do(ctx context.Context, r *request, to call) error {
	req, err := http.NewRequestWithContext(ctx, r.method, r.url.String(), bytes.NewReader(r.body))
	if err != nil {
		return executor.Fatal(errors.New("the request cannot be made")) // its own words repeat the URL
	}
	req.Header = r.headers
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", c.userAgent)
	}
	fmt.Fprintf(to.Stdout(), "%s %s\n", r.method, shown(r.url)) // the log takes all
	resp, err := c.client.Do(req)
	if err != nil {
		return failure(ctx, r, err)
	}
	defer resp.Body.Close() // all that is wanted was read
	return answer(ctx, resp, to)
}

// failure says what it means that no answer came.
func failure(ctx context.Context, r *request, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Go's error begins with the whole URL, whose query may hold secrets.
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	err = executor.WithCode(fmt.Errorf("%s %s: %w", r.method, shown(r.url), err), reason, 0)
	var refused *forbiddenError
	var redirect *redirectError
	if errors.As(err, &refused) || errors.As(err, &redirect) {
		return executor.Fatal(err)
	}
	return err
}

// shown is a URL as logs and messages show it.
func shown(u *url.URL) string {
	if u.RawQuery != "" {
		return u.Scheme + "://" + u.Host + u.EscapedPath() + "?…"
	}
	return u.Scheme + "://" + u.Host + u.EscapedPath()
}

// A redirectError says why a redirect is not followed.
type redirectError struct{ why string }

func (e *redirectError) Error() string { return "redirect refused: " + e.why }

// checkRedirect follows for GET and HEAD only; where it goes is checked again when it is connected to.
func checkRedirect(next *http.Request, via []*http.Request) error {
	first := via[0]
	if first.Method != http.MethodGet && first.Method != http.MethodHead {
		return http.ErrUseLastResponse
	}
	if len(via) > maxRedirects {
		return &redirectError{fmt.Sprintf("more than %d", maxRedirects)}
	}
	if _, err := parseURL(next.URL.String()); err != nil {
		return &redirectError{err.Error()}
	}
	if first.URL.Scheme == "https" && next.URL.Scheme != "https" {
		return &redirectError{"it leads from https to http"}
	}
	next.Header.Del("Referer") // the URL before this one, with its query
	if next.URL.Host != first.URL.Host {
		// What the payload says in headers is said to the host it names. Go itself withholds only the usual ones.
		for name := range next.Header {
			switch name {
			case headerKey, headerRun, headerAttempt, headerDispatch, "User-Agent", "Accept":
			default:
				next.Header.Del(name)
			}
		}
	}
	return nil
}
