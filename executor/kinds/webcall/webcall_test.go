package webcall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock-io/waterclock/executor"
)

func TestRequestAndResult(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Set-Cookie", "topsecret")
		w.Header().Set("X-Request-Id", "req-1")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "%s %s %s %s %s", r.Method, r.URL, r.Header.Get("X-A"), r.Header.Get("User-Agent"), body)
	})
	r, err := do(t, open(t), `{"method":"PATCH","url":"`+s.URL+`/p?token=topsecret","headers":{"x-a":"1"},"body":"hello"}`)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(r.result), "PATCH /p?token=topsecret 1 Waterclock hello"; got != want {
		t.Errorf("result %q, want %q", got, want)
	}
	log := strings.Replace(r.log.String(), string(r.result), "", 1)
	for _, want := range []string{"PATCH " + s.URL + "/p?…\n", "HTTP/1.1 201 Created\n", "X-Request-Id: req-1\n"} {
		if !strings.Contains(log, want) {
			t.Errorf("log %q has no %q", log, want)
		}
	}
	if strings.Contains(log, "topsecret") {
		t.Errorf("log %q holds a secret", log)
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.URL.Path[1:])
		w.WriteHeader(code)
	})
	c := open(t)
	for _, v := range []struct {
		code    int
		outcome executor.Outcome
	}{
		{200, executor.Outcome{}},
		{204, executor.Outcome{}},
		{304, executor.Outcome{Reason: "http", Code: 304, Fatal: true}},
		{307, executor.Outcome{Reason: "http", Code: 307, Fatal: true}},
		{400, executor.Outcome{Reason: "http", Code: 400, Fatal: true}},
		{404, executor.Outcome{Reason: "http", Code: 404, Fatal: true}},
		{429, executor.Outcome{Reason: "http", Code: 429}},
		{500, executor.Outcome{Reason: "http", Code: 500}},
		{503, executor.Outcome{Reason: "http", Code: 503}},
	} {
		_, err := do(t, c, `{"url":"`+s.URL+"/"+strconv.Itoa(v.code)+`"}`)
		if d := cmp.Diff(v.outcome, executor.OutcomeOf(err)); d != "" || (err == nil) != (v.code < 300) {
			t.Errorf("%d: %v (-want +got):\n%s", v.code, err, d)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		after, date string
		want        time.Duration
	}{
		{"", "", 0},
		{"7", "", 7 * time.Second},
		{"-7", "", 0},
		{"86400", "", time.Hour},
		{"9223372036854775807", "", time.Hour},
		{"soon", "", 0},
		{now.Add(time.Minute).Format(http.TimeFormat), "", time.Minute},
		{now.Add(-time.Minute).Format(http.TimeFormat), "", 0},
		{now.AddDate(1, 0, 0).Format(http.TimeFormat), "", time.Hour},
		{now.Add(time.Minute).Format(http.TimeFormat), now.Add(30 * time.Second).Format(http.TimeFormat), 30 * time.Second},
	} {
		h := http.Header{}
		h.Set("Retry-After", c.after)
		h.Set("Date", c.date)
		if got := retryAfter(h, now); got != c.want {
			t.Errorf("Retry-After %q with date %q: %s, want %s", c.after, c.date, got, c.want)
		}
	}
}

func TestRetryAfterReachesTheExecutor(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	_, err := do(t, open(t), `{"url":"`+s.URL+`"}`)
	if d := cmp.Diff(executor.Outcome{Reason: "http", Code: 503, Delay: 30 * time.Second}, executor.OutcomeOf(err)); d != "" {
		t.Errorf("outcome (-want +got):\n%s", d)
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Path[1:])
		_, _ = w.Write(bytes.Repeat([]byte{'x'}, n))
	})
	c := open(t)
	r, err := do(t, c, `{"url":"`+s.URL+"/"+strconv.Itoa(executor.MaxResult)+`"}`)
	if err != nil || len(r.result) != executor.MaxResult {
		t.Errorf("largest: %d bytes, %v", len(r.result), err)
	}
	if n := r.log.Len(); n < maxLogged || n > maxLogged+1000 {
		t.Errorf("the log has %d bytes, want about %d", n, maxLogged)
	}
	r, err = do(t, c, `{"url":"`+s.URL+"/"+strconv.Itoa(executor.MaxResult+1)+`"}`)
	if !executor.OutcomeOf(err).Fatal || r.result != nil {
		t.Errorf("too large: %v, want a fatal error", err)
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/hop/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.PathValue("n"))
		if n == 0 {
			fmt.Fprint(w, r.Header.Get("X-Secret"), r.Header.Get("Referer"))
			return
		}
		http.Redirect(w, r, "/hop/"+strconv.Itoa(n-1), http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/to", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("url"), http.StatusFound)
	})
	s := serve(t, mux.ServeHTTP)
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "key=", r.Header.Get(headerKey), " secret=", r.Header.Get("X-Secret"), r.Header.Get("Referer"))
	})
	c := open(t)
	for _, v := range []struct {
		name, method, path string
		want               string
		fatal              bool
	}{
		{"five", "GET", "/hop/5", "s3", false},
		{"six", "GET", "/hop/6", "more than 5", true},
		{"POST is not followed", "POST", "/hop/1", "not followed for POST", true},
		{"PUT is not followed", "PUT", "/hop/1", "not followed for PUT", true},
		{"headers stay with their host", "GET", "/to?url=" + other.URL, "key=k secret=", false},
		{"other scheme", "GET", "/to?url=file:///etc/passwd", "scheme", true},
		{"with a password", "GET", "/to?url=http://a:b@" + other.Listener.Addr().String(), "user or password", true},
	} {
		req, err := decode([]byte(`{"method":"` + v.method + `","url":"` + s.URL + v.path + `","headers":{"X-Secret":"s3"}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.headers.Set(headerKey, "k")
		r := &run{}
		err = c.do(t.Context(), req, r)
		switch {
		case v.fatal && (!executor.OutcomeOf(err).Fatal || !strings.Contains(err.Error(), v.want)):
			t.Errorf("%s: %v, want a fatal error with %q", v.name, err, v.want)
		case !v.fatal && (err != nil || string(r.result) != v.want):
			t.Errorf("%s: %q, %v; want %q", v.name, r.result, err, v.want)
		}
	}
}

func TestRedirectToPlainHTTP(t *testing.T) {
	t.Parallel()
	from, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://a/", http.NoBody)
	to, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a/", http.NoBody)
	var refused *redirectError
	if err := checkRedirect(to, []*http.Request{from}); !errors.As(err, &refused) {
		t.Errorf("got %v, want a refusal", err)
	}
}

func TestNetworkErrorsAreRetriable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cut := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	short := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("half"))
	})
	c := open(t)
	for name, url := range map[string]string{"refused": "http://" + closed, "cut": cut.URL, "short": short.URL} {
		r, err := do(t, c, `{"url":"`+url+`/p?token=topsecret"}`)
		if o := executor.OutcomeOf(err); err == nil || o.Fatal || o.Reason != "http" || strings.Contains(err.Error(), "topsecret") || r.result != nil {
			t.Errorf("%s: %v %+v, want a retriable error without the query", name, err, o)
		}
	}
}

func TestContextEndsTheRequest(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before the headers", "after the headers"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if when == "after the headers" {
					w.WriteHeader(http.StatusOK)
					w.(http.Flusher).Flush()
				}
				cancel(executor.ErrCancelled)
				<-r.Context().Done()
			})
			req, err := decode([]byte(`{"url":"` + s.URL + `"}`))
			if err != nil {
				t.Fatal(err)
			}
			if err := open(t).do(ctx, req, &run{}); !errors.Is(err, executor.ErrCancelled) {
				t.Errorf("got %v, want the cause", err)
			}
		})
	}
}

func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	var remotes []string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		remotes = append(remotes, r.RemoteAddr)
		_, _ = w.Write([]byte("x"))
	})
	c := open(t)
	for range 3 {
		if _, err := do(t, c, `{"url":"`+s.URL+`"}`); err != nil {
			t.Fatal(err)
		}
	}
	if remotes[0] != remotes[1] || remotes[1] != remotes[2] {
		t.Errorf("requests came over %v, want one connection", remotes)
	}
}
