package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/waterclock-io/waterclock/store"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrate brings the schema of a database file to what this binary knows, and makes the file where there is none. It returns the version that it was at
// before and the one it is at now. ErrSchemaNewer. The caller holds the folder.
func Migrate(ctx context.Context, path string) (from, to int64, err error) {
	err = withMigrations(path, func(p *goose.Provider) error {
		current, target, err := p.GetVersions(ctx)
		if err != nil {
			return err
		}
		from, to = current, target
		switch {
		case current > target:
			return newer(current, target)
		case current == target:
			return nil
		}
		_, err = p.Up(ctx)
		return err
	})
	if err != nil {
		return from, from, fmt.Errorf("migrate %s: %w", path, classify(err))
	}
	return from, to, nil
}

// MigrationStatus returns the version of the schema in a database file, 0 where there is none yet, and the version that this binary knows.
func MigrationStatus(ctx context.Context, path string) (current, known int64, err error) {
	err = withMigrations(path, func(p *goose.Provider) error {
		current, known, err = p.GetVersions(ctx)
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("read schema version of %s: %w", path, classify(err))
	}
	return current, known, nil
}

// checkSchema fails unless the schema is the one that this binary knows.
func checkSchema(ctx context.Context, path string) error {
	current, known, err := MigrationStatus(ctx, path)
	switch {
	case err != nil:
		return err
	case current > known:
		return newer(current, known)
	case current < known:
		return fmt.Errorf("schema is at version %d, this binary needs %d: %w", current, known, store.ErrSchemaOlder)
	}
	return nil
}

func newer(current, known int64) error {
	return fmt.Errorf("schema is at version %d, this binary knows %d: %w", current, known, store.ErrSchemaNewer)
}

func withMigrations(path string, use func(*goose.Provider) error) (err error) {
	db, err := sql.Open("sqlite", dsn(path, 0))
	if err != nil {
		return err
	}
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files)
	if err != nil {
		_ = db.Close() // the first error is the one that tells
		return err
	}
	defer func() {
		// Closes the database as well.
		if closing := p.Close(); err == nil {
			err = closing
		}
	}()
	return use(p)
}
