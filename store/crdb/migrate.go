package crdb

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/waterclock-io/waterclock/store"
)

//go:embed migrations
var migrationFiles embed.FS

// Migrate brings the schema of a database to what this binary knows. It returns the version that it was at before and the one it is at now. Of several
// processes that migrate at once one does it and the others wait. ErrSchemaNewer, ErrUnavailable.
func Migrate(ctx context.Context, dsn string) (from, to int64, err error) {
	m, err := newMigrator(ctx, dsn)
	if err != nil {
		return 0, 0, fmt.Errorf("migrate database: %w", opening(err))
	}
	defer func() { err = errors.Join(err, m.close()) }()
	from, known, err := m.versions(ctx)
	if err == nil && from < known {
		err = m.up(ctx)
	}
	if err == nil && from > known {
		return from, from, newer(from, known)
	}
	if err != nil {
		return from, from, fmt.Errorf("migrate database: %w", opening(err))
	}
	return from, known, nil
}

// MigrationStatus returns the version of the schema, 0 where there is none yet, and the version that this binary knows.
func MigrationStatus(ctx context.Context, dsn string) (current, known int64, err error) {
	m, err := newMigrator(ctx, dsn)
	if err != nil {
		return 0, 0, fmt.Errorf("read schema version: %w", opening(err))
	}
	defer func() { err = errors.Join(err, m.close()) }()
	current, known, err = m.versions(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("read schema version: %w", opening(err))
	}
	return current, known, nil
}

// checkSchema fails unless the schema is the one that this binary knows.
func checkSchema(ctx context.Context, dsn string) error {
	current, known, err := MigrationStatus(ctx, dsn)
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

// migrator is a migration under way. It has a connection for the lock beside those of goose.
type migrator struct {
	base     *pgx.ConnConfig
	provider *goose.Provider
}

func newMigrator(ctx context.Context, dsn string) (*migrator, error) {
	base, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	d, err := detect(ctx, base)
	if err != nil {
		return nil, err
	}
	files, err := fs.Sub(migrationFiles, "migrations/"+d.name())
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*base)
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithTableName(versionTable))
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &migrator{base: base, provider: p}, nil
}

const (
	versionTable = "schema_version"
	lockTable    = "schema_lock"
)

// versions reads without making anything: goose would make its table, and fail where two do so at once.
func (m *migrator) versions(ctx context.Context) (current, known int64, err error) {
	for _, s := range m.provider.ListSources() {
		known = max(known, s.Version)
	}
	conn, err := pgx.ConnectConfig(ctx, m.base.Copy())
	if err != nil {
		return 0, known, err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	err = conn.QueryRow(ctx, "SELECT COALESCE(max(version_id), 0) FROM "+versionTable+" WHERE is_applied").Scan(&current)
	if sqlState(err) == undefinedTable {
		err = nil
	}
	return current, known, err
}

// up migrates under a lock: a row that is written in a transaction that stays open. It is free again when the process that has it ends, however it ends.
func (m *migrator) up(ctx context.Context) (err error) {
	conn, err := pgx.ConnectConfig(ctx, m.base.Copy())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	lock, err := acquireLock(ctx, conn)
	if err != nil {
		return err
	}
	defer func() {
		if ending := lock.Rollback(context.WithoutCancel(ctx)); err == nil {
			err = ending
		}
	}()
	_, err = m.provider.Up(ctx)
	return err
}

func acquireLock(ctx context.Context, conn *pgx.Conn) (pgx.Tx, error) {
	wait := firstWait
	for {
		lock, err := tryLock(ctx, conn)
		if err == nil {
			return lock, nil
		}
		switch sqlState(err) {
		// The table or its row is being made by another, or the row was let go of.
		case uniqueViolation, duplicateTable, duplicateObject, serializationFailure, deadlockDetected, undefinedTable:
		default:
			return nil, err
		}
		if !pause(ctx, wait) {
			return nil, context.Cause(ctx)
		}
		wait = min(2*wait, longestWait)
	}
}

func tryLock(ctx context.Context, conn *pgx.Conn) (pgx.Tx, error) {
	for _, text := range []string{
		"CREATE TABLE IF NOT EXISTS " + lockTable + " (one INT4 NOT NULL PRIMARY KEY, taken INT8 NOT NULL)",
		"INSERT INTO " + lockTable + " (one, taken) VALUES (1, 0) ON CONFLICT DO NOTHING",
	} {
		if _, err := conn.Exec(ctx, text); err != nil {
			return nil, err
		}
	}
	lock, err := conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := lock.Exec(ctx, "UPDATE "+lockTable+" SET taken = taken + 1 WHERE one = 1"); err != nil {
		return nil, errors.Join(err, lock.Rollback(context.WithoutCancel(ctx)))
	}
	return lock, nil
}

func (m *migrator) close() error { return m.provider.Close() }
