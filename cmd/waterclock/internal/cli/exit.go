package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/waterclock-io/waterclock/job/fielderr"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

// The exit codes of every command. With --wait, submit passes the exit code of the command that it ran, whatever that is.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitConflict    = 4
	ExitDenied      = 5
	ExitUnavailable = 6
	ExitInterrupted = 130
)

// ExitCodeHelp documents the exit codes, for the help and the documentation.
const ExitCodeHelp = `Exit codes:
    0  it worked
    1  the run failed, was cancelled or was skipped; or any other failure
    2  wrong usage, or the server calls an argument invalid
    3  there is no such job, run or log
    4  a conflict: the job was changed meanwhile, the name is taken, the idempotency key belongs to another job
    5  the server does not know the API key, or the key may not do this
    6  the server cannot be reached or is not ready
  130  interrupted

With --wait, "waterclock submit" instead exits with the code of the command that it ran, once that has ended.`

func exitCodesTopic() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "The exit codes of all commands", Long: ExitCodeHelp}
}

// usageError says that the command line is wrong; the use line is shown with it.
type usageError struct {
	command *cobra.Command
	err     error
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// runError says that the run ended other than well. Text may be empty: a command's own code speaks for itself.
type runError struct {
	code int
	text string
}

func (e *runError) Error() string { return e.text }

// notFoundError says that a name leads to no job.
type notFoundError struct{ text string }

func (e *notFoundError) Error() string { return e.text }

// ExitCode returns the exit code that an error of a command stands for; 0 for nil.
func ExitCode(err error) int {
	var run *runError
	var usage *usageError
	var field *fielderr.FieldError
	var missing *notFoundError
	var rpc *connect.Error
	var bad interface{ BadInput() bool }
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &run):
		return run.code
	case errors.As(err, &usage), errors.As(err, &field), errors.As(err, &bad) && bad.BadInput():
		return ExitUsage
	case errors.As(err, &missing):
		return ExitNotFound
	case errors.As(err, &rpc):
		return codeOf(rpc.Code())
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	default:
		return ExitFailed
	}
}

func codeOf(c connect.Code) int {
	switch c {
	case connect.CodeInvalidArgument, connect.CodeOutOfRange:
		return ExitUsage
	case connect.CodeNotFound:
		return ExitNotFound
	case connect.CodeAlreadyExists, connect.CodeAborted, connect.CodeFailedPrecondition:
		return ExitConflict
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		return ExitDenied
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded:
		return ExitUnavailable
	case connect.CodeCanceled:
		return ExitInterrupted
	default:
		return ExitFailed
	}
}

// Execute runs the root command, prints its error to stderr in a line or two, and returns the exit code. The arguments are those of the process
// unless root.SetArgs was called.
func Execute(ctx context.Context, root *cobra.Command, env Env) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return &usageError{command: c, err: err} })
	command, err := root.ExecuteContextC(ctx)
	var usage *usageError
	if err != nil && command == root && !root.Runnable() && !errors.As(err, &usage) {
		err = &usageError{command: root, err: err} // cobra found no command of that name
	}
	report(env.Stderr, err)
	return ExitCode(err)
}

func report(w io.Writer, err error) {
	if err == nil {
		return
	}
	for _, line := range explain(err) {
		if line != "" {
			fmt.Fprintln(w, "waterclock: "+line)
		}
	}
	var usage *usageError
	if errors.As(err, &usage) {
		fmt.Fprintf(w, "Usage: %s\nMore: %s --help\n", usage.command.UseLine(), usage.command.CommandPath())
	}
}

// explain turns an error into lines for people, free of control characters.
func explain(err error) []string {
	var rpc *connect.Error
	var fields fielderr.FieldErrors
	var lines []string
	switch {
	case errors.As(err, &fields):
		for _, f := range fields {
			lines = append(lines, f.Error())
		}
	case errors.As(err, &rpc):
		lines = explainRPC(rpc)
		if joined, isJoined := err.(interface{ Unwrap() []error }); isJoined {
			lines = nil
			for _, e := range joined.Unwrap() {
				lines = append(lines, explain(e)...)
			}
			return lines
		}
	case errors.Is(err, context.Canceled):
		lines = []string{"interrupted"}
	default:
		lines = strings.Split(strings.TrimRight(err.Error(), "\n"), "\n")
	}
	for i := range lines {
		lines[i] = clean(lines[i])
	}
	return lines
}

func explainRPC(err *connect.Error) []string {
	if lines := violations(err); len(lines) > 0 {
		return lines
	}
	var dial *net.OpError
	message := strings.ReplaceAll(strings.TrimSpace(err.Message()), "\n", "; ")
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		return []string{"cannot reach the server: " + dial.Error(), "is it running, and is its address right? It is given by --server or WATERCLOCK_SERVER"}
	case err.Code() == connect.CodeUnimplemented:
		return []string{"this is no Waterclock server, or an older one: " + message}
	case err.Code() == connect.CodeUnauthenticated:
		return []string{message + " (unauthenticated); the key is given by WATERCLOCK_API_KEY or --api-key"}
	case err.Code() == connect.CodeCanceled:
		return []string{"interrupted"}
	default:
		return []string{message + " (" + err.Code().String() + ")"}
	}
}

// violations lists the fields that the server refused, one line each.
func violations(err *connect.Error) []string {
	var short, whole []string
	for _, detail := range err.Details() {
		value, decodeErr := detail.Value()
		if decodeErr != nil {
			continue // of a type that this client does not know; the message of the error still says what is wrong
		}
		switch v := value.(type) {
		case *waterclockv1.FieldViolation:
			f := fielderr.FieldError{Field: v.GetField(), Given: v.GetGiven(), Allowed: v.GetAllowed()}
			short = append(short, f.Error())
		case *errdetails.BadRequest:
			for _, f := range v.GetFieldViolations() {
				text := f.GetDescription()
				if !strings.HasPrefix(text, f.GetField()+": ") {
					text = f.GetField() + ": " + text
				}
				whole = append(whole, text)
			}
		}
	}
	if len(whole) > 0 { // the same fields, with the reason
		return whole
	}
	return short
}
