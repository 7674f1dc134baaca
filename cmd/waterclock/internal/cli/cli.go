// Package cli holds the client commands of the waterclock program: submit, job, run and schedule. They speak to a server by Connect-RPC and
// print tables for people or JSON for programs.
//
// It is not for the commands that start a server, which are wired elsewhere, and it reads nothing of the server's configuration. cmd/waterclock
// adds Commands to its root command and runs that by Execute, which also prints errors and chooses the exit code for all commands.
package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Env is what the commands know of the process that they run in.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	IsTerminal     func(io.Writer) bool
	Now            func() time.Time // in the zone that times are shown in
}

// System returns the environment of the process.
func System() Env {
	return Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Now: time.Now,
		IsTerminal: func(w io.Writer) bool {
			f, isFile := w.(*os.File)
			return isFile && isatty.IsTerminal(f.Fd())
		},
	}
}

// DefaultServer is where the client commands look for a server that is not named.
const DefaultServer = "http://127.0.0.1:7420"

// app is one run of the program: its environment and the flags that all client commands share.
type app struct {
	Env
	server, apiKey string
	output         choice
	reconnect      time.Duration // wait before a broken stream is opened again; it grows with each failure
}

const defaultReconnect = 250 * time.Millisecond

// Commands returns the client commands, to be added to a root command that Execute runs.
func Commands(env Env) []*cobra.Command {
	a := &app{Env: env, reconnect: defaultReconnect}
	return a.commands()
}

func (a *app) commands() []*cobra.Command {
	a.output = newChoice("table", "json")
	commands := []*cobra.Command{a.submitCommand(), a.jobCommand(), a.runCommand()}
	for _, c := range commands {
		c.PersistentFlags().StringVar(&a.server, "server", "", "address of the server (environment: WATERCLOCK_SERVER; default "+DefaultServer+")")
		c.PersistentFlags().StringVar(&a.apiKey, "api-key", "", "API key; rather use the environment, a flag can be read by other users (environment: WATERCLOCK_API_KEY)")
	}
	commands = append(commands, a.scheduleCommand()) // which needs no server
	for _, c := range commands {
		c.PersistentFlags().VarP(&a.output, "output", "o", "form of the output: table or json")
		completeChoice(c, "output", a.output.allowed...)
	}
	return append(commands, exitCodesTopic())
}

func (a *app) asJSON() bool { return a.output.value == "json" }

// group is a command that only holds others; an unknown one below it is a usage error.
func group(use, short string, sub ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use + " COMMAND", Short: short, SuggestionsMinimumDistance: 2, RunE: func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		text := fmt.Sprintf("there is no command %q below %s", args[0], c.CommandPath())
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			text += "; did you mean " + strings.Join(near, " or ") + "?"
		}
		return &usageError{command: c, err: errors.New(text)}
	}}
	c.AddCommand(sub...)
	return c
}

// arguments refuses a number of arguments other than from low to high; the use line tells what they are.
func arguments(low, high int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) >= low && len(args) <= high {
			return nil
		}
		allowed := fmt.Sprint(low)
		if high > low {
			allowed = fmt.Sprintf("%d to %d", low, high)
		}
		return &usageError{command: c, err: fmt.Errorf("given %d arguments, allowed: %s", len(args), allowed)}
	}
}

// choice is a flag with few values. Its empty value, where no default is given, means left out.
type choice struct {
	value   string
	allowed []string
}

// newChoice makes a choice whose default is the first of the allowed values.
func newChoice(allowed ...string) choice { return choice{value: allowed[0], allowed: allowed} }

func (c *choice) String() string { return c.value }

// Type names the allowed values in the help.
func (c *choice) Type() string { return strings.Join(c.allowed, "|") }

// Set takes one of the allowed values.
func (c *choice) Set(text string) error {
	for _, v := range c.allowed {
		if text == v {
			c.value = v
			return nil
		}
	}
	return fmt.Errorf("allowed: %s", strings.Join(c.allowed, ", "))
}

// span is a flag with a duration of zero or more; zero means what leaving it out means.
type span time.Duration

func (s *span) String() string {
	if *s == 0 {
		return ""
	}
	return time.Duration(*s).String()
}

// Type names the kind of value in the help.
func (s *span) Type() string { return "duration" }

// Set reads a duration with its unit.
func (s *span) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return errors.New("allowed: a duration such as 500ms, 90s or 1h30m")
	}
	*s = span(d)
	return nil
}

// instant is a flag with a moment; empty text means none.
type instant struct{ time.Time }

func (i *instant) String() string {
	if i.IsZero() {
		return ""
	}
	return i.Format(time.RFC3339Nano)
}

// Type names the kind of value in the help.
func (i *instant) Type() string { return "time" }

// Set reads a moment with its offset.
func (i *instant) Set(text string) error {
	if text == "" {
		i.Time = time.Time{}
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return errors.New("allowed: a time as in RFC 3339, such as 2026-04-24T01:00:00+03:00 or 2026-04-23T22:00:00Z")
	}
	i.Time = t
	return nil
}

func given(flags *pflag.FlagSet, names ...string) []string {
	var out []string
	for _, n := range names {
		if f := flags.Lookup(n); f != nil && f.Changed {
			out = append(out, "--"+n)
		}
	}
	return out
}
