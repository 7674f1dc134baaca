// Waterclock is a distributed job scheduler: one binary that holds the server, each of its roles, and the client.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/waterclock-io/waterclock/cmd/waterclock/internal/cli"
	"github.com/waterclock-io/waterclock/cmd/waterclock/internal/serve"
	"github.com/waterclock-io/waterclock/executor/guard"
)

func main() {
	// The executor starts this binary again as the guard of a command; such a process is nothing else.
	if guard.Main() {
		return
	}
	env := cli.System()
	root := newRoot(env)
	os.Exit(cli.Execute(context.Background(), root, env))
}

func newRoot(env cli.Env) *cobra.Command {
	root := &cobra.Command{
		Use:           "waterclock",
		Short:         "Run jobs on time",
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(cli.Commands(env)...)
	root.AddCommand(serve.Commands(serve.Env{Stdout: env.Stdout, Stderr: env.Stderr, Environ: os.Environ(), Version: version()})...)
	return root
}

// version is what the Go toolchain knows of this build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 && v == "(devel)" {
			v = "devel-" + s.Value[:12]
		}
	}
	return v
}
