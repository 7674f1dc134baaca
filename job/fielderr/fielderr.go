// Package fielderr holds the error that names a bad input field, what was given and what is allowed.
//
// The domain packages under job return it from their Validate methods; api turns it into the details of an
// invalid-argument answer. It is not for failures of the system: those are ordinary wrapped errors.
package fielderr

import (
	"fmt"
	"strings"
)

// maxShown bounds how many bytes of a hostile value are repeated in an error text.
const maxShown = 80

// FieldError says that one field of a request is not acceptable.
type FieldError struct {
	Field   string // path as in the API, e.g. "schedule.cron.zone"
	Given   string // what the caller sent, as text; may be empty and may be long
	Allowed string // what would be accepted, e.g. "an IANA time zone name such as Europe/Berlin"
	Reason  string // completes "Field: Given …", e.g. "is not known"; empty means "is not allowed"
}

// Error gives one line; a Given of more than 80 bytes is cut and its length is told.
func (e *FieldError) Error() string {
	reason := e.Reason
	if reason == "" {
		reason = "is not allowed"
	}
	given := fmt.Sprintf("%q", e.Given)
	if len(e.Given) > maxShown {
		given = fmt.Sprintf("%q… (%d bytes)", e.Given[:maxShown], len(e.Given))
	}
	return fmt.Sprintf("%s: %s %s; allowed: %s", e.Field, given, reason, e.Allowed)
}

// FieldErrors is every bad field of one input, so that a caller can mend all of them at once.
type FieldErrors []*FieldError

// Error joins the single errors with "; and ".
func (es FieldErrors) Error() string {
	texts := make([]string, len(es))
	for i, e := range es {
		texts[i] = e.Error()
	}
	return strings.Join(texts, "; and ")
}

// Unwrap lets errors.As find the first *FieldError and errors.Is look at all of them.
func (es FieldErrors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// Err is nil when there is no error in the list; a plain conversion of an empty list to error would not be.
func (es FieldErrors) Err() error {
	if len(es) == 0 {
		return nil
	}
	return es
}
