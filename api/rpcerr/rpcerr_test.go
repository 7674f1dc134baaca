package rpcerr_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/waterclock-io/waterclock/api/rpcerr"
	"github.com/waterclock-io/waterclock/job/fielderr"
	"github.com/waterclock-io/waterclock/store"
)

func TestTable(t *testing.T) {
	t.Parallel()
	table := rpcerr.New()
	secret := "password=hunter2"
	for _, c := range []struct {
		err        error
		want       connect.Code
		unexpected bool
	}{
		{store.ErrNotFound, connect.CodeNotFound, false},
		{store.ErrNameTaken, connect.CodeAlreadyExists, false},
		{store.ErrKeyReused, connect.CodeAlreadyExists, false},
		{store.ErrVersion, connect.CodeAborted, false},
		{store.ErrUnavailable, connect.CodeUnavailable, false},
		{store.ErrUnknownOutcome, connect.CodeUnavailable, false},
		{context.DeadlineExceeded, connect.CodeDeadlineExceeded, false},
		{&fielderr.FieldError{Field: "f", Given: "g", Allowed: "a"}, connect.CodeInvalidArgument, false},
		{errors.New("boom"), connect.CodeInternal, true},
	} {
		err := fmt.Errorf("dial %s: %w", secret, c.err)
		got := table.Connect(err)
		if got.Code() != c.want || strings.Contains(got.Error(), secret) || table.Unexpected(err) != c.unexpected {
			t.Errorf("%v: %v, unexpected %t", c.err, got, table.Unexpected(err))
		}
		if s := table.Submit(err); s.GetCode() != c.want.String() || s.GetMessage() == "" {
			t.Errorf("%v: %v", c.err, s)
		}
	}
	long := table.Submit(&fielderr.FieldError{Field: "f", Given: strings.Repeat("ü", 1000), Allowed: "a"})
	if v := long.GetViolations()[0]; len(v.GetGiven()) > 300 || strings.ToValidUTF8(v.GetGiven(), "") != v.GetGiven() {
		t.Errorf("given: %q", v.GetGiven())
	}
}
