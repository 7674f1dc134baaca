package webcall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock-io/waterclock/executor"
)

// maxLogged is how many bytes of a body go into the log of the run.
const maxLogged = 64 << 10

// loggedHeaders are what the log shows of an answer's headers. Cookies and locations are not among them: they may hold secrets.
var loggedHeaders = []string{"Content-Type", "Content-Length", "Content-Encoding", "Date", "Retry-After", "Server", "X-Request-Id", "Traceparent"}

// answer decides by the status of an answer, after it has written it to the log of the run.
func answer(ctx context.Context, resp *http.Response, to call) error {
	fmt.Fprintf(to.Stdout(), "%s %s\n", resp.Proto, resp.Status) // the log takes all
	for _, name := range loggedHeaders {
		for _, value := range resp.Header.Values(name) {
			fmt.Fprintf(to.Stdout(), "%s: %s\n", name, value) // the log takes all
		}
	}
	ok := resp.StatusCode >= 200 && resp.StatusCode < 300
	limit := maxLogged
	if ok {
		limit = executor.MaxResult
	}
	body, readErr := io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	logBody(to.Stdout(), body)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	code := int32(resp.StatusCode) //nolint:gosec // three digits
	if ok {
		switch {
		case readErr != nil:
			return executor.WithCode(fmt.Errorf("read the body of the answer: %w", readErr), reason, code)
		case len(body) > limit:
			return executor.Fatal(executor.WithCode(fmt.Errorf("the body of the answer has more than %d bytes", limit), reason, code))
		case len(body) > 0:
			to.SetResult(body)
		}
		return nil
	}
	err := executor.WithCode(errors.New(describe(resp)), reason, code)
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < 500 {
		return executor.Fatal(err)
	}
	if delay := retryAfter(resp.Header, time.Now()); delay > 0 {
		return executor.RetryAfter(err, delay)
	}
	return err
}

func describe(resp *http.Response) string {
	status := strconv.Itoa(resp.StatusCode) + " " + http.StatusText(resp.StatusCode)
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return fmt.Sprintf("answered %s, which is not followed for %s", strings.TrimSpace(status), resp.Request.Method)
	}
	return "answered " + strings.TrimSpace(status)
}

func logBody(w io.Writer, body []byte) {
	if len(body) == 0 {
		return
	}
	kept := body[:min(len(body), maxLogged)]
	fmt.Fprintf(w, "\n%s\n", kept) // the log takes all
	if len(kept) < len(body) {
		fmt.Fprintf(w, "… the log has only the first %d bytes\n", len(kept)) // the log takes all
	}
}

// retryAfter reads the header of that name: seconds, or a date, which is held against the service's own clock where it tells it. 0 where there is none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
		return time.Duration(min(max(seconds, 0), int64(maxRetryAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
