package webcall

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		payload string
		want    request
	}{
		{
			`{"method":"PUT","url":"https://example.com:8443/a%20b?c=d#e","headers":{"content-type":"text/plain"},"body":"text"}`,
			request{method: "PUT", headers: http.Header{"Content-Type": {"text/plain"}}, body: []byte("text")},
		},
		{`{"url":"http://[2606:4700::1]/","body_base64":"AAEC"}`, request{method: "POST", headers: http.Header{}, body: []byte{0, 1, 2}}},
	} {
		got, err := decode([]byte(c.payload))
		if err != nil {
			t.Fatal(err)
		}
		if got.url == nil {
			t.Fatal("no URL")
		}
		got.url = nil
		if d := cmp.Diff(c.want, *got, cmp.AllowUnexported(request{}, url.URL{})); d != "" {
			t.Errorf("request (-want +got):\n%s", d)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, payload, want string }{
		{"nothing", ``, "payload"},
		{"null", `null`, "url"},
		{"unknown field", `{"url":"http://a","verify_tls":false}`, `unknown field "verify_tls"`},
		{"two objects", `{"url":"http://a"} 1`, "something follows"},
		{"scheme", `{"url":"file:///etc/topsecret"}`, `scheme "file"`},
		{"gopher", `{"url":"gopher://a/topsecret"}`, `scheme "gopher"`},
		{"no scheme", `{"url":"//a/b"}`, "scheme"},
		{"opaque", `{"url":"http:a"}`, "no host"},
		{"no host", `{"url":"http:///topsecret"}`, "no host"},
		{"user", `{"url":"http://topsecret@a/"}`, "user or password"},
		{"port", `{"url":"http://a:70000/topsecret"}`, "port"},
		{"malformed", `{"url":"http://a/%zz?topsecret"}`, "malformed"},
		{"control characters", `{"url":"http://a/\r\nHost: topsecret"}`, "malformed"},
		{"long", `{"url":"http://a/` + strings.Repeat("b", 9000) + `"}`, "too long"},
		{"method", `{"method":"GET /x HTTP/1.1\r\nX:","url":"http://a"}`, "method"},
		{"CONNECT", `{"method":"Connect","url":"http://a"}`, "method"},
		{"both bodies", `{"url":"http://a","body":"x","body_base64":"eA=="}`, "body_base64"},
		{"base64", `{"url":"http://a","body_base64":"!"}`, "body_base64"},
		{"header name", `{"url":"http://a","headers":{"a b":"topsecret"}}`, "headers"},
		{"header value", `{"url":"http://a","headers":{"a":"topsecret\r\nb: c"}}`, "headers.a"},
		{"host header", `{"url":"http://a","headers":{"host":"topsecret"}}`, "connection"},
		{"hop by hop", `{"url":"http://a","headers":{"transfer-encoding":"chunked"}}`, "connection"},
		{"proxy", `{"url":"http://a","headers":{"Proxy-Authorization":"topsecret"}}`, "connection"},
		{"own header", `{"url":"http://a","headers":{"waterclock-dispatch":"9"}}`, "set by Waterclock"},
		{"idempotency key", `{"url":"http://a","headers":{"idempotency-key":"9"}}`, "set by Waterclock"},
		{"twice", `{"url":"http://a","headers":{"x-a":"1","X-A":"2"}}`, "twice"},
		{"large headers", `{"url":"http://a","headers":{"a":"` + strings.Repeat("b", 33<<10) + `"}}`, "at most 32768"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := decode([]byte(c.payload))
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "topsecret") {
				t.Errorf("got %v, want %q in it and nothing secret", err, c.want)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"method":"PUT","url":"https://example.com/a?c=d","headers":{"content-type":"text/plain"},"body":"text"}`))
	f.Add([]byte(`{"url":"http://a@b"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b)
		if err != nil {
			return
		}
		if r.url.User != nil || r.url.Host == "" || r.url.Scheme != "http" && r.url.Scheme != "https" || strings.ContainsAny(r.method, " \r\n") {
			t.Errorf("%q was let through", b)
		}
	})
}
