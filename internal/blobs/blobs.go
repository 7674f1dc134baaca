// Package blobs keeps what is too large for SQL: logs and large results of runs, and large payloads. It lives in a folder, in memory, or wherever a driver of
// gocloud.dev/blob that is linked in here can put it.
//
// It knows nothing of what it keeps: names are given by the executor that writes, found in history by the api that reads, and deleted by whoever deletes
// history. It does not list, version or expire.
package blobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"
	"gocloud.dev/gcerrors"
	"golang.org/x/sys/unix"

	"github.com/waterclock-io/waterclock/job/fielderr"
)

// ErrNotFound is the error of a key that holds nothing.
var ErrNotFound = errors.New("blob not found")

// Store keeps blobs under keys. Its methods may be called by several goroutines at once.
//
// A key is a relative path of names between slashes, up to 1024 bytes of UTF-8 without control characters and without "..". A key that is not is refused
// with a *fielderr.FieldError by every method.
type Store struct {
	bucket *blob.Bucket
	folder string // root of the file driver, absolute; empty for others
}

// schemes tells users what is built in.
const schemes = "file:///folder (file:///folder?create_dir=true makes it) or mem://"

// Open opens the store at a URL: file:///absolute/folder, file://./relative/folder, or mem:// which forgets all when it is closed.
//
// Parameters of file: create_dir=true makes the folder where it is missing; dir_file_mode=0750 is the mode of folders that are made, 0700 by default.
// Errors about the URL are *fielderr.FieldError and repeat no more of it than scheme and parameters.
func Open(ctx context.Context, address string) (*Store, error) {
	u, err := parse(address)
	if err != nil {
		return nil, err
	}
	if u.Scheme == memblob.Scheme {
		bucket, err := (&memblob.URLOpener{}).OpenBucketURL(ctx, u)
		if err != nil {
			return nil, fmt.Errorf("open blob store: %w", err)
		}
		return &Store{bucket: bucket}, nil
	}
	return openFolder(ctx, u)
}

// Put stores content under a key, in place of what was there. When it returns, the content is as durable as the driver can make it: the file driver has
// synced the file and its folders. Readers see the old content or the new, never a part; after an error the old stays.
func (s *Store) Put(ctx context.Context, key string, content []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	// A writer whose context is cancelled leaves nothing behind when it is closed.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var file *os.File
	w, err := s.bucket.NewWriter(ctx, key, &blob.WriterOptions{
		ContentType: "application/octet-stream", // given, so that nothing is buffered to guess it
		BeforeWrite: func(as func(any) bool) error {
			if s.folder != "" && !as(&file) {
				return errors.New("the file driver does not show its file")
			}
			return nil
		},
	})
	if err != nil {
		return fmt.Errorf("put blob %q: %w", key, err)
	}
	_, err = w.Write(content)
	if err == nil && file != nil {
		err = file.Sync()
	}
	if err != nil {
		cancel()
		_ = w.Close() // it says that it was cancelled
		return fmt.Errorf("put blob %q: %w", key, err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("put blob %q: %w", key, err)
	}
	if file != nil {
		if err := syncFolders(file.Name(), s.folder); err != nil {
			return fmt.Errorf("put blob %q: %w", key, err)
		}
	}
	return nil
}

// Open returns the content of a key, to be closed by the caller; ctx ends the reading of it. ErrNotFound.
func (s *Store) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	r, err := s.bucket.NewReader(ctx, key, nil)
	if err != nil {
		return nil, describe("open", key, err)
	}
	return r, nil
}

// Delete removes a key. ErrNotFound.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if err := s.bucket.Delete(ctx, key); err != nil {
		return describe("delete", key, err)
	}
	return nil
}

// Drop removes keys; those that hold nothing are passed over.
func (s *Store) Drop(ctx context.Context, keys []string) error {
	for _, key := range keys {
		if err := s.Delete(ctx, key); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return nil
}

// Ping tells whether the store can be reached; of a folder, whether it is there and may be written to.
func (s *Store) Ping(ctx context.Context) error {
	if s.folder != "" {
		if err := unix.Access(s.folder, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
			return fmt.Errorf("blob store %s: %w", s.folder, err)
		}
		return nil
	}
	ok, err := s.bucket.IsAccessible(ctx)
	if err != nil {
		return fmt.Errorf("blob store: %w", err)
	}
	if !ok {
		return errors.New("blob store: it is not there, or may not be read")
	}
	return nil
}

// Close releases the store. It may be called more than once; other methods fail afterwards.
func (s *Store) Close() error {
	if err := s.bucket.Close(); err != nil && gcerrors.Code(err) != gcerrors.FailedPrecondition {
		return fmt.Errorf("close blob store: %w", err)
	}
	return nil
}

func describe(what, key string, err error) error {
	if gcerrors.Code(err) == gcerrors.NotFound {
		return fmt.Errorf("%s blob %q: %w", what, key, ErrNotFound)
	}
	return fmt.Errorf("%s blob %q: %w", what, key, err)
}

func badURL(given, reason string) error {
	return &fielderr.FieldError{Field: "blobs", Given: given, Reason: reason, Allowed: schemes}
}
