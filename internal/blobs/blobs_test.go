package blobs_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock-io/waterclock/internal/blobs"
	"github.com/waterclock-io/waterclock/job/fielderr"
)

func open(t *testing.T, address string) *blobs.Store {
	t.Helper()
	s, err := blobs.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func read(t *testing.T, s *blobs.Store, key string) string {
	t.Helper()
	r, err := s.Open(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// each runs a test for every driver.
func each(t *testing.T, f func(t *testing.T, s *blobs.Store)) {
	t.Parallel()
	t.Run("mem", func(t *testing.T) {
		t.Parallel()
		f(t, open(t, "mem://"))
	})
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		f(t, open(t, "file://"+t.TempDir()+"/new/folder?create_dir=true&no_tmp_dir=true"))
	})
}

func TestPutOpenDelete(t *testing.T) {
	each(t, func(t *testing.T, s *blobs.Store) {
		const key = "logs/team-a/0b6c/1-1"
		if _, err := s.Open(t.Context(), key); !errors.Is(err, blobs.ErrNotFound) {
			t.Errorf("open of what is not there: %v, want ErrNotFound", err)
		}
		if err := s.Delete(t.Context(), key); !errors.Is(err, blobs.ErrNotFound) {
			t.Errorf("delete of what is not there: %v, want ErrNotFound", err)
		}
		for _, content := range []string{"one", "", strings.Repeat("two\x00", 1<<18)} {
			if err := s.Put(t.Context(), key, []byte(content)); err != nil {
				t.Fatal(err)
			}
			if got := read(t, s, key); got != content {
				t.Errorf("read %d bytes, want %d", len(got), len(content))
			}
		}
		if err := s.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Open(t.Context(), key); !errors.Is(err, blobs.ErrNotFound) {
			t.Errorf("open after delete: %v, want ErrNotFound", err)
		}
		if err := s.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestKeysAreChecked(t *testing.T) {
	each(t, func(t *testing.T, s *blobs.Store) {
		for _, key := range []string{"", "/etc/passwd", "../up", "a/../../up", "a/..", "a\x00b", "a\nb", "a\x7fb", "a\xffb", strings.Repeat("k", 1025)} {
			_, openErr := s.Open(t.Context(), key)
			for what, err := range map[string]error{"put": s.Put(t.Context(), key, []byte("x")), "open": openErr, "delete": s.Delete(t.Context(), key)} {
				var field *fielderr.FieldError
				if !errors.As(err, &field) || field.Field != "key" {
					t.Errorf("%s %q: %v, want a field error about the key", what, key, err)
				}
			}
		}
		for _, key := range []string{"a", "a.b/c d/ü", strings.Repeat("k", 200), "%2e%2e/x"} {
			if err := s.Put(t.Context(), key, []byte(key)); err != nil {
				t.Errorf("put %q: %v", key, err)
			} else if got := read(t, s, key); got != key {
				t.Errorf("key %q holds %q", key, got)
			}
		}
	})
}

func TestConcurrentPutsLeaveOneWhole(t *testing.T) {
	each(t, func(t *testing.T, s *blobs.Store) {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				if err := s.Put(t.Context(), "same/key", bytes.Repeat([]byte{'a' + byte(i)}, 100_000)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		got := read(t, s, "same/key")
		if len(got) != 100_000 || strings.Trim(got, got[:1]) != "" {
			t.Errorf("%d bytes of more than one writer", len(got))
		}
	})
}

func TestCancelledPutLeavesTheOld(t *testing.T) {
	each(t, func(t *testing.T, s *blobs.Store) {
		if err := s.Put(t.Context(), "k", []byte("old")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Put(ctx, "k", []byte("new")); err == nil {
			t.Error("put with a cancelled context succeeded")
		}
		if got := read(t, s, "k"); got != "old" {
			t.Errorf("holds %q, want the old content", got)
		}
	})
}

func TestFolderHoldsNothingElse(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "blobs")
	s := open(t, "file://"+dir+"?create_dir=true")
	if err := s.Put(t.Context(), "a/b/c", []byte("x")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Put(ctx, "a/b/d", []byte("x")); err == nil {
		t.Error("put with a cancelled context succeeded")
	}
	var got []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, dir)
		if d.IsDir() {
			info, err := d.Info()
			got = append(got, name+" "+info.Mode().String())
			return err
		}
		got = append(got, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{" drwx------", "/a drwx------", "/a/b drwx------", "/a/b/c"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
}

func TestPingTellsOfALostFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "blobs")
	s := open(t, "file://"+dir+"?create_dir=true")
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ping: %v, want that the folder does not exist", err)
	}
}

func TestClosedStore(t *testing.T) {
	each(t, func(t *testing.T, s *blobs.Store) {
		for range 2 {
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		if err := s.Put(t.Context(), "k", nil); err == nil {
			t.Error("put into a closed store succeeded")
		}
	})
}

func TestRefusedAddresses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ address, want string }{
		{"s3://bucket?secret=topsecret", `"s3://" is not built in; allowed: file:///folder`},
		{"http://user:topsecret@x/y", `"http://" is not built in`},
		{"/var/lib/blobs", "has no scheme"},
		{"", "has no scheme"},
		{"file://var/lib", "does not name a folder of this machine"},
		{"file:///", "names no folder"},
		{"file:var", "does not name a folder of this machine"},
		{"file:///there/is/no/such/folder", "does not exist"},
		{"file:///tmp?metadata=", `metadata=" is not a parameter`},
		{"file:///tmp?create_dir=no", `is not "true"`},
		{"mem://name", "has a name or parameters"},
		{"%zz:topsecret", "is not a URL"},
	} {
		t.Run(c.address, func(t *testing.T) {
			t.Parallel()
			_, err := blobs.Open(t.Context(), c.address)
			var field *fielderr.FieldError
			if !errors.As(err, &field) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "topsecret") {
				t.Errorf("got %v, want a field error with %q and no secret", err, c.want)
			}
		})
	}
}
