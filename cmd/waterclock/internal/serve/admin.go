package serve

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock-io/waterclock/api/auth"
	"github.com/waterclock-io/waterclock/cmd/waterclock/internal/config"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/store/crdb"
	"github.com/waterclock-io/waterclock/store/sqlite"
)

func configured(env Env, c *cobra.Command, f func(ctx context.Context, cfg config.Config) error) *cobra.Command {
	config.AddFlags(c.Flags())
	shortFlags(c.Flags(), "nats.url")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := config.Load(c.Flags(), env.Environ)
		if err != nil {
			return err
		}
		return f(c.Context(), cfg)
	}
	return c
}

func migrateCommand(env Env) *cobra.Command {
	c := &cobra.Command{Use: "migrate", Short: "Bring the schema of the database up to this binary, or look at it"}
	c.AddCommand(
		configured(env, &cobra.Command{Use: "up", Short: "Bring the schema up to this binary", Args: cobra.NoArgs}, func(ctx context.Context, cfg config.Config) error {
			from, to, err := migrate(ctx, string(cfg.Store.URL))
			if err != nil {
				return err
			}
			if from == to {
				_, err = fmt.Fprintf(env.Stdout, "schema is at version %d already\n", to)
				return err
			}
			_, err = fmt.Fprintf(env.Stdout, "schema was at version %d and is at version %d now\n", from, to)
			return err
		}),
		configured(env, &cobra.Command{Use: "status", Short: "Show the version of the schema and of this binary", Args: cobra.NoArgs}, func(ctx context.Context, cfg config.Config) error {
			current, known, err := migrationStatus(ctx, string(cfg.Store.URL))
			if err != nil {
				return err
			}
			word := "up to date"
			switch {
			case current < known:
				word = "behind: run `waterclock migrate up`"
			case current > known:
				word = "newer than this binary: use a newer one"
			}
			_, err = fmt.Fprintf(env.Stdout, "schema version %d, this binary knows %d: %s\n", current, known, word)
			return err
		}),
	)
	return c
}

func migrate(ctx context.Context, url string) (from, to int64, err error) {
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		return sqlite.Migrate(ctx, path)
	}
	return crdb.Migrate(ctx, url)
}

func migrationStatus(ctx context.Context, url string) (current, known int64, err error) {
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		return sqlite.MigrationStatus(ctx, path)
	}
	return crdb.MigrationStatus(ctx, url)
}

func keysCommand(env Env) *cobra.Command {
	c := &cobra.Command{Use: "keys", Short: "Make, list and revoke API keys"}
	var namespace, note string
	var expires time.Duration
	create := &cobra.Command{Use: "create", Short: "Make a key; it is shown once", Args: cobra.NoArgs}
	create.Flags().StringVar(&namespace, "namespace", "", "namespace that the key belongs to (required)")
	create.Flags().StringVar(&note, "note", "", "what it is for")
	create.Flags().DurationVar(&expires, "expires", 0, "how long it is good for; 0 for ever")
	configured(env, create, func(ctx context.Context, cfg config.Config) error {
		if err := auth.CheckNamespace(namespace); err != nil {
			return err
		}
		return withStore(ctx, env, cfg, func(s store.Store) error {
			now, err := s.Now(ctx)
			if err != nil {
				return err
			}
			end := time.Time{}
			if expires > 0 {
				end = now.Add(expires)
			}
			k, secret := auth.NewKey(namespace, note, now, end)
			if err := s.CreateKey(ctx, k); err != nil {
				return err
			}
			_, err = fmt.Fprintf(env.Stdout, "%s\n", secret)
			return err
		})
	})
	list := configured(env, &cobra.Command{Use: "list", Short: "List keys, without their secrets", Args: cobra.NoArgs}, func(ctx context.Context, cfg config.Config) error {
		return withStore(ctx, env, cfg, func(s store.Store) error {
			keys, err := s.Keys(ctx, "")
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(env.Stdout, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tNAMESPACE\tCREATED\tEXPIRES\tREVOKED\tNOTE") // shows at Flush
			for _, k := range keys {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%q\n", k.ID, k.Namespace, day(k.CreatedAt), day(k.ExpiresAt), day(k.RevokedAt), k.Note) // as above
			}
			return w.Flush()
		})
	})
	revoke := &cobra.Command{Use: "revoke ID", Short: "Revoke a key at once", Args: cobra.ExactArgs(1)}
	config.AddFlags(revoke.Flags())
	shortFlags(revoke.Flags(), "nats.url")
	revoke.RunE = func(c *cobra.Command, args []string) error {
		cfg, err := config.Load(c.Flags(), env.Environ)
		if err != nil {
			return err
		}
		return withStore(c.Context(), env, cfg, func(s store.Store) error {
			if err := s.RevokeKey(c.Context(), args[0]); err != nil {
				if errors.Is(err, store.ErrNotFound) {
					return fmt.Errorf("id: there is no key %q; allowed: one of `waterclock keys list`", args[0])
				}
				return err
			}
			_, err := fmt.Fprintf(env.Stdout, "revoked %s\n", args[0])
			return err
		})
	}
	c.AddCommand(create, list, revoke)
	return c
}

func withStore(ctx context.Context, env Env, cfg config.Config, f func(store.Store) error) (err error) {
	s, err := OpenStore(ctx, cfg, nil, nil, newLogger(env.Stderr, cfg))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return f(s)
}

func day(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format(time.RFC3339)
}
