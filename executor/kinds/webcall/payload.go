package webcall

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/waterclock-io/waterclock/job/fielderr"
)

// Payload is what a job of this kind carries, as JSON. Fields it does not have are refused.
type Payload struct {
	// Method of the request; POST if empty. CONNECT is refused.
	Method string `json:"method"`
	// URL is http or https, without user and password.
	URL string `json:"url"`
	// Headers to send. Those of the connection and those that Waterclock sets itself are refused.
	Headers map[string]string `json:"headers"`
	// Body is the body as text; BodyBase64 as bytes. At most one of them may be given.
	Body       string `json:"body"`
	BodyBase64 string `json:"body_base64"`
}

// Limits of a payload.
const (
	maxPayload = 16 << 20
	maxURL     = 8 << 10
	maxMethod  = 32
	maxHeaders = 100
	maxHeader  = 32 << 10 // bytes of all headers
)

// Headers that Waterclock sets.
const (
	headerKey      = "Idempotency-Key"
	headerRun      = "Waterclock-Run-Id"
	headerAttempt  = "Waterclock-Attempt"
	headerDispatch = "Waterclock-Dispatch"
)

// connectionHeaders belong to the connection, or say what the URL and the body say already.
var connectionHeaders = []string{"Host", "Connection", "Content-Length", "Expect", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// request is a Payload that was checked.
type request struct {
	method  string
	url     *url.URL
	headers http.Header
	body    []byte
}

func decode(b []byte) (*request, error) {
	if len(b) > maxPayload {
		return nil, &fielderr.FieldError{Field: "payload", Given: strconv.Itoa(len(b)) + " bytes", Allowed: "at most " + strconv.Itoa(maxPayload)}
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	p := new(Payload)
	err := d.Decode(p)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the object")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("payload of kind %s: %w; allowed: a JSON object of method, url, headers, body and body_base64", Kind, err)
	}
	return p.check()
}

func (p *Payload) check() (*request, error) {
	r := &request{method: p.Method, body: []byte(p.Body)}
	if r.method == "" {
		r.method = http.MethodPost
	}
	if len(r.method) > maxMethod || !httpguts.ValidHeaderFieldName(r.method) || strings.EqualFold(r.method, http.MethodConnect) {
		return nil, &fielderr.FieldError{Field: "method", Given: r.method, Allowed: "a method of HTTP such as GET or POST; not CONNECT"}
	}
	var err error
	if r.url, err = parseURL(p.URL); err != nil {
		return nil, err
	}
	if r.headers, err = p.header(); err != nil {
		return nil, err
	}
	if p.BodyBase64 == "" {
		return r, nil
	}
	if p.Body != "" {
		return nil, &fielderr.FieldError{Field: "body_base64", Reason: "stands beside body", Allowed: "one of them"}
	}
	if r.body, err = base64.StdEncoding.DecodeString(p.BodyBase64); err != nil {
		return nil, &fielderr.FieldError{Field: "body_base64", Reason: "cannot be read: " + err.Error(), Allowed: "standard base64 with padding"}
	}
	return r, nil
}

// parseURL checks a URL. Its errors do not repeat it: it may hold secrets.
func parseURL(text string) (*url.URL, error) {
	const allowed = "an absolute http or https URL without user and password, at most 8 KiB"
	bad := func(reason string) (*url.URL, error) {
		return nil, &fielderr.FieldError{Field: "url", Reason: reason, Allowed: allowed}
	}
	if len(text) > maxURL {
		return bad("is too long")
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return bad("is malformed")
	case u.Scheme != "http" && u.Scheme != "https":
		return bad(fmt.Sprintf("has the scheme %q", u.Scheme))
	case u.Opaque != "" || u.Hostname() == "":
		return bad("has no host")
	case u.User != nil:
		return bad("has a user or password")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return bad("has the port " + strconv.Quote(port))
		}
	}
	return u, nil
}

// header checks the headers. Their values are not repeated: they may be secrets.
func (p *Payload) header() (http.Header, error) {
	if len(p.Headers) > maxHeaders {
		return nil, &fielderr.FieldError{Field: "headers", Given: strconv.Itoa(len(p.Headers)), Allowed: "at most " + strconv.Itoa(maxHeaders)}
	}
	h, size := make(http.Header, len(p.Headers)+5), 0
	for name, value := range p.Headers {
		size += len(name) + len(value)
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			return nil, &fielderr.FieldError{Field: "headers", Given: name, Reason: "is not the name of a header", Allowed: "names such as Content-Type"}
		case slices.Contains(connectionHeaders, canonical), strings.HasPrefix(canonical, "Proxy-"):
			return nil, &fielderr.FieldError{Field: "headers", Given: name, Reason: "belongs to the connection", Allowed: "other headers"}
		case canonical == headerKey, strings.HasPrefix(canonical, "Waterclock-"):
			return nil, &fielderr.FieldError{Field: "headers", Given: name, Reason: "is set by Waterclock", Allowed: "other headers"}
		case len(h[canonical]) > 0:
			return nil, &fielderr.FieldError{Field: "headers", Given: name, Reason: "is there twice", Allowed: "each name once, whatever its case"}
		case !httpguts.ValidHeaderFieldValue(value):
			return nil, &fielderr.FieldError{Field: "headers." + name, Reason: "contains control characters", Allowed: "a value without them"}
		}
		h.Set(canonical, value)
	}
	if size > maxHeader {
		return nil, &fielderr.FieldError{Field: "headers", Given: strconv.Itoa(size) + " bytes", Allowed: "at most " + strconv.Itoa(maxHeader)}
	}
	return h, nil
}
