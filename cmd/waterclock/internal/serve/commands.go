package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waterclock-io/waterclock/cmd/waterclock/internal/config"
)

// Env is what the commands know of the process that they run in.
type Env struct {
	Stdout, Stderr io.Writer
	Environ        []string
	Version        string
}

// Commands returns the commands that run servers and look after their database.
func Commands(env Env) []*cobra.Command {
	return []*cobra.Command{
		devCommand(env),
		roleCommand(env, "server", "Run all roles in one process", AllRoles),
		roleCommand(env, "api", "Run the API: Connect-RPC over HTTP, and submits over NATS", Roles{API: true}),
		roleCommand(env, "planner", "Run a planner: it hands out due runs", Roles{Planner: true}),
		roleCommand(env, "executor", "Run an executor: it works on runs", Roles{Executor: true}),
		roleCommand(env, "recorder", "Run a recorder: it writes history and schedules recurrences", Roles{Recorder: true}),
		migrateCommand(env),
		keysCommand(env),
	}
}

// shortFlags are the names that people type for the settings they set most.
func shortFlags(flags *pflag.FlagSet, nats string) {
	short := map[string]string{"http": "http.listen", "nats": nats, "data": "data.dir", "store": "store.url"}
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if long, ok := short[name]; ok {
			name = long
		}
		return pflag.NormalizedName(name)
	})
}

func devCommand(env Env) *cobra.Command {
	var ephemeral, demo bool
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run everything on this machine, with nothing else installed",
		Long: `Run everything on this machine, with nothing else installed: NATS and SQLite are embedded and keep their data in ./.waterclock,
all roles are in this one process, commands of any kind may be run, and callers on this machine need no key.

Short flags: --http is --http.listen, --nats is --nats.listen, --data is --data.dir.`,
		Args: cobra.NoArgs,
	}
	config.AddFlags(c.Flags())
	shortFlags(c.Flags(), "nats.listen")
	c.Flags().BoolVar(&ephemeral, "ephemeral", false, "keep the data in a temporary folder that is removed at the end")
	c.Flags().BoolVar(&demo, "demo", false, "submit a few jobs to watch")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if ephemeral {
			dir, err := os.MkdirTemp("", "waterclock-")
			if err != nil {
				return fmt.Errorf("make a temporary folder: %w", err)
			}
			defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
			if err := c.Flags().Set("data.dir", dir); err != nil {
				return err
			}
		}
		cfg, err := config.Load(c.Flags(), env.Environ)
		if err != nil {
			return err
		}
		if !c.Flags().Changed("log.level") && os.Getenv(config.Variable("log.level")) == "" {
			cfg.Log.Level = "warn"
		}
		cfg.Executor.Kinds.HTTP.AllowPrivate = true
		return run(c.Context(), env, cfg, Options{Roles: AllRoles, AllowAllCommands: true}, func(ctx context.Context, n *Node) error {
			greet(env.Stdout, n, cfg)
			if demo {
				return runDemo(ctx, env.Stdout, n)
			}
			return nil
		})
	}
	return c
}

// gcPercent lets the heap of a service grow to four times what is live before garbage is collected, instead of twice: a seventh less processor time under load. What
// is live are some tens of megabytes. dev, on somebody's desk, keeps to the runtime's 100.
const gcPercent = 300

func roleCommand(env Env, name, short string, roles Roles) *cobra.Command {
	c := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		Long: short + `.

Settings come from a file (--config), then the environment (WATERCLOCK_…), then flags.
Short flags: --http is --http.listen, --nats is --nats.url, --data is --data.dir, --store is --store.url.`,
	}
	config.AddFlags(c.Flags())
	shortFlags(c.Flags(), "nats.url")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := config.Load(c.Flags(), env.Environ)
		if err != nil {
			return err
		}
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(gcPercent)
		}
		return run(c.Context(), env, cfg, Options{Roles: roles}, func(_ context.Context, n *Node) error {
			fmt.Fprintf(env.Stdout, "HTTP   %s\nNATS   %s\n", httpURL(cfg, n), n.NATSAddr()) // nobody to tell
			return nil
		})
	}
	return c
}

// run starts a node, says so, and keeps it until a signal, the end of ctx or its own failure. A second signal ends the process at once.
func run(ctx context.Context, env Env, cfg config.Config, opt Options, started func(context.Context, *Node) error) error {
	opt.Logger, opt.Stdout, opt.Version = newLogger(env.Stderr, cfg), env.Stdout, env.Version
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	n, err := Start(ctx, cfg, opt)
	if err != nil {
		if ctx.Err() != nil {
			return nil // told to stop before it was up
		}
		return err
	}
	err = started(ctx, n)
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-n.Failed():
		}
	}
	stop()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Executor.DrainGrace+10*time.Second)
	defer cancel()
	n.Stop(grace)
	return err
}

func newLogger(w io.Writer, cfg config.Config) *slog.Logger {
	var level slog.Level
	if level.UnmarshalText([]byte(cfg.Log.Level)) != nil {
		level = slog.LevelInfo // cannot be: the configuration was checked
	}
	opts := &slog.HandlerOptions{Level: level}
	if cfg.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

func httpURL(cfg config.Config, n *Node) string {
	scheme := "http"
	if cfg.HTTP.TLSCert != "" {
		scheme = "https"
	}
	return scheme + "://" + n.HTTPAddr()
}

// greet says where dev listens and what to try.
func greet(w io.Writer, n *Node, cfg config.Config) {
	url := httpURL(cfg, n)
	server := ""
	if _, port, err := net.SplitHostPort(n.HTTPAddr()); err == nil && port != "7420" {
		server = "WATERCLOCK_SERVER=" + url + " "
	}
	self := "waterclock"
	if exe, err := os.Executable(); err == nil {
		self = exe
		if wd, err := os.Getwd(); err == nil {
			if rel, err := filepath.Rel(wd, exe); err == nil && len(rel) < len(exe) {
				self = rel
			}
		}
	}
	fmt.Fprintf(w, `Waterclock is running.

HTTP   %[1]s
NATS   %[2]s
Data   %[3]s

Try, in another terminal:

  %[4]s%[5]s submit --wait -- date -u
  %[4]s%[5]s submit --every 10s --name tick -- echo tick
  %[4]s%[5]s job list

Ctrl-C stops it.
`, url, n.NATSAddr(), cfg.Data.Dir, server, self) // nobody to tell
}
