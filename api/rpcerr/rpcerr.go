// Package rpcerr says what a caller gets to read of an error: a Connect code, one line, and details that a program can branch on.
//
// There is one table for all ways in (RPC handlers and NATS submit). What it does not know becomes "internal" without its text, which is for the log of
// the operator only; Unexpected tells which those are.
package rpcerr

import (
	"context"
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/job/fielderr"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
)

// Domain is that of the ErrorInfo details.
const Domain = "waterclock.io"

// entry is one line of the table.
type entry struct {
	is     error
	code   connect.Code
	reason string // of ErrorInfo
	text   string // empty: the error's own
}

// Table maps errors to answers. Packages above add theirs when they make one.
type Table struct {
	entries []entry
}

// New returns the table of the errors of package store and of contexts.
func New() *Table {
	t := &Table{}
	t.Add(store.ErrNotFound, connect.CodeNotFound, "NOT_FOUND", "there is no such job or run in this namespace")
	t.Add(store.ErrNameTaken, connect.CodeAlreadyExists, "NAME_TAKEN", "another job of the namespace has this name")
	t.Add(store.ErrKeyReused, connect.CodeAlreadyExists, "IDEMPOTENCY_KEY_REUSED", "this idempotency key has made a job with another spec")
	t.Add(store.ErrVersion, connect.CodeAborted, "VERSION_MISMATCH", "the job has changed since the given version; read it again and repeat the update")
	t.Add(store.ErrUnknownOutcome, connect.CodeUnavailable, "OUTCOME_UNKNOWN",
		"the connection to the store was lost while it committed: the change may have been made or not; look, or repeat the call where it carries an idempotency key")
	t.Add(store.ErrUnavailable, connect.CodeUnavailable, "STORE_UNAVAILABLE", "the store cannot be reached; nothing was changed; try again")
	t.Add(store.ErrSchemaNewer, connect.CodeUnavailable, "STORE_UNAVAILABLE", "the store is being upgraded; try again")
	t.Add(store.ErrSchemaOlder, connect.CodeUnavailable, "STORE_UNAVAILABLE", "the store is being upgraded; try again")
	t.Add(context.DeadlineExceeded, connect.CodeDeadlineExceeded, "TIMEOUT", "the call took too long; it may have had its effect")
	t.Add(context.Canceled, connect.CodeCanceled, "CANCELED", "the call was given up by its caller")
	return t
}

// Add maps one more error. Where text is empty, the error's own text is shown. Earlier lines come first.
func (t *Table) Add(is error, code connect.Code, reason, text string) {
	t.entries = append(t.entries, entry{is, code, reason, text})
}

// Unexpected tells whether the caller is told nothing of an error, so that the operator must be.
func (t *Table) Unexpected(err error) bool {
	_, known := t.find(err)
	return !known && fields(err) == nil && !isConnect(err)
}

// Connect returns what a Connect caller sees of an error.
func (t *Table) Connect(err error) *connect.Error {
	var already *connect.Error
	if errors.As(err, &already) {
		return already
	}
	if bad := fields(err); bad != nil {
		return invalid(bad)
	}
	e, ok := t.find(err)
	if !ok {
		return connect.NewError(connect.CodeInternal, errors.New("internal error; the server's log has the details"))
	}
	text := e.text
	if text == "" {
		text = e.is.Error()
	}
	out := connect.NewError(e.code, errors.New(text))
	detail(out, &errdetails.ErrorInfo{Reason: e.reason, Domain: Domain})
	return out
}

// Submit returns what a batch result or a NATS reply says of an error.
func (t *Table) Submit(err error) *waterclockv1.SubmitError {
	c := t.Connect(err)
	return &waterclockv1.SubmitError{Code: c.Code().String(), Message: c.Message(), Violations: violations(fields(err))}
}

func (t *Table) find(err error) (entry, bool) {
	for _, e := range t.entries {
		if errors.Is(err, e.is) {
			return e, true
		}
	}
	return entry{}, false
}

func isConnect(err error) bool {
	var c *connect.Error
	return errors.As(err, &c)
}

func fields(err error) fielderr.FieldErrors {
	var many fielderr.FieldErrors
	if errors.As(err, &many) {
		return many
	}
	var one *fielderr.FieldError
	if errors.As(err, &one) {
		return fielderr.FieldErrors{one}
	}
	return nil
}

// Given is cut to this many bytes: a hostile value must not come back in full.
const maxGiven = 256

func violations(bad fielderr.FieldErrors) []*waterclockv1.FieldViolation {
	var out []*waterclockv1.FieldViolation
	for _, f := range bad {
		out = append(out, &waterclockv1.FieldViolation{Field: f.Field, Given: shorten(f.Given), Allowed: f.Allowed})
	}
	return out
}

func shorten(s string) string {
	if len(s) <= maxGiven {
		return s
	}
	cut := maxGiven
	for cut > 0 && s[cut]&0xc0 == 0x80 { // not inside of a character
		cut--
	}
	return s[:cut] + "…"
}

func invalid(bad fielderr.FieldErrors) *connect.Error {
	out := connect.NewError(connect.CodeInvalidArgument, bad)
	br := &errdetails.BadRequest{}
	for _, f := range bad {
		one := *f
		one.Given = shorten(f.Given)
		br.FieldViolations = append(br.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: f.Field, Description: one.Error()})
	}
	detail(out, br)
	for _, v := range violations(bad) {
		detail(out, v)
	}
	return out
}

func detail(e *connect.Error, m proto.Message) {
	// Encoding a message of our own cannot fail but for text that is not UTF-8; the error is still right without its detail.
	if d, err := connect.NewErrorDetail(m); err == nil {
		e.AddDetail(d)
	}
}
