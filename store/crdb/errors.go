package crdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/cockroachdb/cockroach-go/v2/crdb"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waterclock-io/waterclock/store"
)

// errClosed is what calls get after Close.
var errClosed = fmt.Errorf("store is closed: %w", store.ErrUnavailable)

// The SQLSTATEs that are told apart.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	completionUnknown    = "40003"
	uniqueViolation      = "23505"
	undefinedTable       = "42P01"
	duplicateTable       = "42P07"
	duplicateObject      = "42710"

	insufficientPrivilege = "42501"
)

// unavailableClasses are the classes of SQLSTATE that say that the server could not, not that the statement was wrong: connection, resources (disk full
// and too many connections among them), operator intervention (shutdown, statement time-out), system (I/O).
var unavailableClasses = []string{"08", "53", "57", "58"}

// unavailableCodes are single codes of that meaning: a standby, a transaction that stood idle too long, a lock that could not be had.
var unavailableCodes = []string{"25006", "25P03", "55P03"}

// refusalClasses are those of a server that knows no such user, password or database.
var refusalClasses = []string{"28", "3D"}

// commitError is a failure after the commit was asked for, where the answer does not tell what became of it.
type commitError struct{ err error }

func (e *commitError) Error() string { return e.err.Error() }

func (e *commitError) Unwrap() error { return e.err }

// classify wraps an error of the driver in the store's own where callers branch on it.
func classify(err error) error {
	switch {
	case err == nil, errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrUnknownOutcome):
		return err
	case unknownOutcome(err):
		return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
	case unavailable(err):
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return err
}

func unknownOutcome(err error) bool {
	var ours *commitError
	var theirs *crdb.AmbiguousCommitError
	return errors.As(err, &ours) || errors.As(err, &theirs) || sqlState(err) == completionUnknown
}

// opening is classify for who opens the store: that the server lets nobody in by this address is no reason to wait.
func opening(err error) error {
	if code := sqlState(err); code != "" && (slices.Contains(refusalClasses, code[:2]) || code == insufficientPrivilege) {
		return err
	}
	return classify(err)
}

func unavailable(err error) bool {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) || fatal(err) {
		return true // whatever its code: it says nothing of what was asked
	}
	if code := sqlState(err); code != "" {
		// What was repeated until the bound and still collided was rolled back each time.
		return code == serializationFailure || code == deadlockDetected ||
			slices.Contains(unavailableClasses, code[:2]) || slices.Contains(unavailableCodes, code)
	}
	return broken(err)
}

// broken tells whether an error that is no answer of the server comes from the connection to it.
func broken(err error) bool {
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, pgconn.ErrConnClosed) || pgconn.SafeToRetry(err)
}

// repeatable tells whether the transaction was rolled back, or never began, for a reason that may be gone at once.
func repeatable(err error) bool {
	if unknownOutcome(err) {
		return false
	}
	switch sqlState(err) {
	case serializationFailure, deadlockDetected:
		return true
	case "":
		var connect *pgconn.ConnectError
		return pgconn.SafeToRetry(err) && !errors.As(err, &connect) && !cancelled(err)
	}
	return false
}

func cancelled(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func isUnique(err error) bool { return sqlState(err) == uniqueViolation }

// sqlState is the code of the server's answer, "" where it is none.
func sqlState(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) && len(e.Code) == 5 {
		return e.Code
	}
	return ""
}

// fatal tells whether the server ended the connection with its answer.
func fatal(err error) bool {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return false
	}
	severity := e.SeverityUnlocalized
	if severity == "" {
		severity = e.Severity
	}
	return severity == "FATAL" || severity == "PANIC"
}
