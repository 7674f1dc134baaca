package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/waterclock-io/waterclock/cmd/waterclock/internal/config"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/store/crdb"
	"github.com/waterclock-io/waterclock/store/sqlite"
)

var errBadStore = errors.New("store.url")

// sqliteCache is the page cache of the embedded database in KiB: enough to keep the hot ends of its tables, little enough for a small host.
const sqliteCache = 12 << 10

// OpenStore opens the database that the configuration names. SQLite is migrated as it is opened, because its one process is the only one to use it; a database
// that is shared is migrated by the command migrate. Lock is the hold on the data folder, where the process has one;
// retried, which may be nil, hears of transactions that are repeated.
func OpenStore(ctx context.Context, cfg config.Config, lock *sqlite.FolderLock, retried func(state string), log *slog.Logger) (store.Store, error) {
	url := string(cfg.Store.URL)
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, fmt.Errorf("%w: %w", errBadStore, err)
		}
		opts := sqlite.Options{CacheKiB: sqliteCache}
		if lock != nil && inside(cfg.Data.Dir, path) {
			opts.Lock = lock
		}
		s, err := sqlite.Open(ctx, path, opts)
		if err != nil {
			return nil, err // an interface holding a nil *Store would not be nil
		}
		return s, nil
	}
	s, err := crdb.Open(ctx, url, crdb.Options{
		NoMigrate: true, Isolation: crdb.Isolation(cfg.Store.Isolation), MaxConns: int32(cfg.Store.MaxConns), Retried: retried, Log: log, //nolint:gosec // at most 1000
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func inside(dir, path string) bool {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return false
	}
	file, err := filepath.Abs(path)
	return err == nil && filepath.Dir(file) == abs
}
