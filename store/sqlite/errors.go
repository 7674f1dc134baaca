package sqlite

import (
	"errors"
	"fmt"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/waterclock-io/waterclock/store"
)

// errClosed is what calls get after Close.
var errClosed = fmt.Errorf("store is closed: %w", store.ErrUnavailable)

// classify wraps an error of the driver in the store's own where callers branch on it.
func classify(err error) error {
	switch primary(err) {
	case lib.SQLITE_FULL, lib.SQLITE_IOERR, lib.SQLITE_CANTOPEN, lib.SQLITE_NOMEM, lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_READONLY, lib.SQLITE_PROTOCOL:
		if !errors.Is(err, store.ErrUnavailable) {
			return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
		}
	}
	return err
}

// classifyCommit is classify for the answer to a commit. Where a write was refused the commit frame is not in the log. Where the sync failed it may
// be: SQLite takes it back in memory, but a crash before the next write would bring it to life.
func classifyCommit(err error) error {
	switch code(err) {
	case lib.SQLITE_IOERR_FSYNC, lib.SQLITE_IOERR_DIR_FSYNC:
		return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
	}
	return classify(err)
}

func isUnique(err error) bool { return code(err) == lib.SQLITE_CONSTRAINT_UNIQUE }

func primary(err error) int { return code(err) & 0xff }

func code(err error) int {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}
