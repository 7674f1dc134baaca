package page_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/api/page"
	"github.com/waterclock-io/waterclock/job/fielderr"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	s := page.NewSealer([]byte("key"))
	q := page.Query{Namespace: "acme", Request: &waterclockv1.ListJobsRequest{Kind: "exec", PageSize: 10}}
	at := page.Position{Part: 1, At: time.UnixMicro(1234567890123456).UTC(), ID: uuid.New()}
	token := s.Token(q, at)
	same := page.Query{Namespace: "acme", Request: &waterclockv1.ListJobsRequest{Kind: "exec", PageSize: 99, PageToken: token}}
	got, err := s.Open(same, token)
	if diff := cmp.Diff(at, got); diff != "" || err != nil {
		t.Errorf("%s %v", diff, err)
	}
	zero, err := s.Open(q, s.Token(q, page.Position{Part: 1}))
	if err != nil || !zero.At.IsZero() || zero.Part != 1 {
		t.Errorf("%v %v", zero, err)
	}
	if got, err := s.Open(q, ""); err != nil || got != (page.Position{}) {
		t.Errorf("%v %v", got, err)
	}
	flipped := []byte(token)
	flipped[5] ^= 1
	for name, open := range map[string]func() (page.Position, error){
		"namespace": func() (page.Position, error) {
			return s.Open(page.Query{Namespace: "rival", Request: q.Request}, token)
		},
		"filter": func() (page.Position, error) {
			return s.Open(page.Query{Namespace: "acme", Request: &waterclockv1.ListJobsRequest{}}, token)
		},
		"list": func() (page.Position, error) {
			return s.Open(page.Query{Namespace: "acme", Request: &waterclockv1.ListRunsRequest{}}, token)
		},
		"key":     func() (page.Position, error) { return page.NewSealer([]byte("other")).Open(q, token) },
		"changed": func() (page.Position, error) { return s.Open(q, string(flipped)) },
		"short":   func() (page.Position, error) { return s.Open(q, token[:10]) },
		"garbage": func() (page.Position, error) { return s.Open(q, "ü!") },
	} {
		_, err := open()
		var bad *fielderr.FieldError
		if !errors.As(err, &bad) || bad.Field != "page_token" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
