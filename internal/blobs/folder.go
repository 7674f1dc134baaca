package blobs

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/memblob"

	"github.com/waterclock-io/waterclock/job/fielderr"
)

// parse reads a URL and refuses what no driver here takes, or what the file driver would silently read as something else.
func parse(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		// Its own words repeat the address, which may hold credentials.
		return nil, badURL("", "is not a URL")
	}
	shown := u.Scheme + "://"
	switch u.Scheme {
	case memblob.Scheme:
		if u.Host != "" || u.Path != "" || u.RawQuery != "" {
			return nil, badURL(shown+"…", "has a name or parameters, which memory does not take")
		}
		return u, nil
	case fileblob.Scheme:
	case "":
		return nil, badURL("", "has no scheme")
	default:
		return nil, badURL(shown, "is not built in")
	}
	if u.User != nil || u.Opaque != "" || u.Fragment != "" || u.Host != "" && u.Host != "." && u.Host != "localhost" {
		return nil, badURL(shown, "does not name a folder of this machine")
	}
	if strings.Trim(u.Path, "/") == "" {
		return nil, badURL(shown+u.Path, "names no folder")
	}
	for name, values := range u.Query() {
		switch name {
		case "create_dir", "no_tmp_dir":
			if len(values) != 1 || values[0] != "true" {
				return nil, badURL(shown+"…?"+name+"="+strings.Join(values, ","), `is not "true"`)
			}
		case "dir_file_mode":
		default:
			return nil, badURL(shown+"…?"+name+"=", "is not a parameter")
		}
	}
	return u, nil
}

func openFolder(ctx context.Context, u *url.URL) (*Store, error) {
	folder := u.Path
	if u.Host == "." {
		folder = strings.TrimPrefix(folder, "/")
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	q := u.Query()
	q.Set("metadata", "skip")   // no second file beside each
	q.Set("no_tmp_dir", "true") // a rename into another file system is a copy, or fails
	if !q.Has("dir_file_mode") {
		q.Set("dir_file_mode", "0700") // output of runs is nobody else's business
	}
	u.RawQuery = q.Encode()
	bucket, err := (&fileblob.URLOpener{}).OpenBucketURL(ctx, u)
	if errors.Is(err, os.ErrNotExist) {
		return nil, badURL(u.Scheme+"://"+u.Host+u.Path, "does not exist")
	}
	if err != nil {
		return nil, fmt.Errorf("open blob store %s: %w", folder, err)
	}
	return &Store{bucket: bucket, folder: folder}, nil
}

// syncFolders makes the name of a new file durable, and those of its folders up to the root, which may be as new.
func syncFolders(file, root string) error {
	for dir := filepath.Dir(file); ; dir = filepath.Dir(dir) {
		if err := syncFolder(dir); err != nil {
			return err
		}
		if dir == root || len(dir) <= len(root) {
			return nil
		}
	}
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// maxKey is the longest key in bytes that all drivers take.
const maxKey = 1024

func checkKey(key string) error {
	reason := ""
	switch {
	case key == "":
		reason = "is empty"
	case len(key) > maxKey:
		reason = "is too long"
	case !utf8.ValidString(key):
		reason = "is not UTF-8"
	case strings.HasPrefix(key, "/"):
		reason = `begins with "/"`
	case strings.Contains(key, ".."):
		reason = `contains ".."`
	case strings.ContainsFunc(key, unicode.IsControl):
		reason = "contains control characters"
	default:
		return nil
	}
	return &fielderr.FieldError{Field: "key", Given: key, Reason: reason, Allowed: `1 to 1024 bytes of UTF-8 such as logs/team/run/1-1, without "..", a leading "/" and control characters`}
}
