package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	bad := fmt.Errorf("read it: %w", io.ErrUnexpectedEOF)
	const text = "read it: unexpected EOF"
	const failed = wirev1.StatusKind_STATUS_KIND_FAILED
	for _, c := range []struct {
		name string
		err  error
		want *wirev1.Status
	}{
		{"plain", bad, &wirev1.Status{Kind: failed, Reason: "error", Message: text, Retriable: true}},
		{"fatal", Fatal(bad), &wirev1.Status{Kind: failed, Reason: "fatal", Message: text}},
		{"fatal inside", fmt.Errorf("outer: %w", Fatal(bad)), &wirev1.Status{Kind: failed, Reason: "fatal", Message: "outer: " + text}},
		{"later", RetryAfter(bad, 3*time.Second), &wirev1.Status{Kind: failed, Reason: "error", Message: text, Retriable: true, Delay: 3_000_000}},
		{"later, negative", RetryAfter(bad, -time.Second), &wirev1.Status{Kind: failed, Reason: "error", Message: text, Retriable: true, Delay: 1}},
		{"code", WithCode(bad, "exit", 3), &wirev1.Status{Kind: failed, Reason: "exit", Message: text, Retriable: true, Code: 3}},
		{"code, fatal", Fatal(WithCode(bad, "http", 404)), &wirev1.Status{Kind: failed, Reason: "http", Message: text, Code: 404}},
		{"fatal, code", WithCode(Fatal(bad), "http", 404), &wirev1.Status{Kind: failed, Reason: "http", Message: text, Code: 404}},
		{"code, later", RetryAfter(WithCode(bad, "http", 503), time.Second), &wirev1.Status{Kind: failed, Reason: "http", Message: text, Code: 503, Retriable: true, Delay: 1_000_000}},
		{
			"marks survive wrapping", RetryAfter(fmt.Errorf("outer: %w", WithCode(bad, "http", 503)), time.Second),
			&wirev1.Status{Kind: failed, Reason: "http", Message: "outer: " + text, Code: 503, Retriable: true, Delay: 1_000_000},
		},
		{"snooze", Snooze(time.Minute), &wirev1.Status{Kind: wirev1.StatusKind_STATUS_KIND_SNOOZED, Reason: "snoozed", Message: "snoozed for 1m0s", Retriable: true, Delay: 60_000_000}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := &wirev1.Status{}
			describe(got, c.err)
			if d := cmp.Diff(c.want, got, protocmp.Transform()); d != "" {
				t.Errorf("status (-want +got):\n%s", d)
			}
		})
	}
}

func TestMarksKeepTheError(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"Fatal": Fatal(io.EOF), "RetryAfter": RetryAfter(io.EOF, 1), "WithCode": WithCode(io.EOF, "x", 1), "all": Fatal(RetryAfter(WithCode(io.EOF, "x", 1), 1)),
	} {
		if !errors.Is(err, io.EOF) || err.Error() != "EOF" {
			t.Errorf("%s: %v does not unwrap to what was marked", name, err)
		}
	}
}

func TestMarksDoNotChangeTheMarked(t *testing.T) {
	t.Parallel()
	first := WithCode(io.EOF, "http", 503)
	_ = Fatal(first)
	_ = RetryAfter(first, time.Minute)
	if got := OutcomeOf(first); got != (Outcome{Reason: "http", Code: 503}) {
		t.Errorf("the first error is now %+v", got)
	}
}

func TestMarksLeaveNil(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"Fatal": Fatal(nil), "RetryAfter": RetryAfter(nil, 1), "WithCode": WithCode(nil, "x", 1)} {
		if err != nil {
			t.Errorf("%s(nil) is %v", name, err)
		}
	}
}

func TestLongMessageIsCut(t *testing.T) {
	t.Parallel()
	got := &wirev1.Status{}
	describe(got, errors.New(strings.Repeat("ü", maxMessage)))
	if n := len(got.Message); n > maxMessage+len("…") || n < maxMessage-4 || !strings.HasSuffix(got.Message, "ü…") {
		t.Errorf("a message of %d bytes that ends in %q", n, got.Message[n-8:])
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	type in struct {
		N int `json:"n"`
	}
	double := JSON(func(_ context.Context, p in) (map[string]int, error) {
		switch p.N {
		case 13:
			return nil, io.EOF
		default:
			return map[string]int{"n": 2 * p.N}, nil
		}
	})
	for _, c := range []struct {
		name, payload, result, fails string
		fatal                        bool
	}{
		{"typed", `{"n":21}`, `{"n":42}`, "", false},
		{"no payload", ``, `{"n":0}`, "", false},
		{"malformed", `{"n":`, "", "decode payload of kind double", true},
		{"wrong type", `{"n":"x"}`, "", "decode payload of kind double", true},
		{"its own error", `{"n":13}`, "", "EOF", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			run := &Run{Kind: "double", Payload: []byte(c.payload), a: &attempt{}}
			err := double(t.Context(), run)
			if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) || OutcomeOf(err).Fatal != c.fatal {
				t.Errorf("got %v, want %q, fatal: %v", err, c.fails, c.fatal)
			}
			got := ""
			if p := run.a.result.Load(); p != nil {
				got = string(*p)
			}
			if got != c.result {
				t.Errorf("result %q, want %q", got, c.result)
			}
		})
	}
}

func TestJSONResultThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	h := JSON(func(context.Context, struct{}) (float64, error) { return math.Inf(1), nil })
	err := h(t.Context(), &Run{Kind: "inf", a: &attempt{}})
	var unsupported *json.UnsupportedValueError
	if !errors.As(err, &unsupported) || !OutcomeOf(err).Fatal {
		t.Errorf("got %v, want a fatal error of encoding", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"no connection", Config{}, "Conn is missing"},
	} {
		if _, err := New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
