package status

import (
	"errors"
	"testing"
	"time"

	"github.com/waterclock-io/waterclock/internal/blobs"
	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/store"
)

// Old history goes with the blobs that it names, and with no others.
func TestBlobsGoWithTheirHistory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b, err := blobs.Open(t.Context(), "mem://")
	check.OK(t, err)
	t.Cleanup(func() { check.OK(t, b.Close()) })
	for _, key := range []string{"logs/a", "results/a", "logs/b"} {
		check.OK(t, b.Put(t.Context(), key, []byte("x")))
	}
	runs := r.handedOut(1, nil)
	said := r.say(&runs[0], succeeded)
	said.LogRef, said.ResultRef = "logs/a", "results/a"
	r.send("x", said)
	r.recorder(nil)
	rows := func() []store.RunRow {
		got, err := r.store.ListRuns(t.Context(), runs[0].JobID, store.RunPosition{}, 10)
		check.OK(t, err)
		return got
	}
	check.Await(t, "the run in history", func() bool { return len(rows()) == 1 })

	purge := func(keep time.Duration) error {
		p, err := New(Config{Store: r.store, Conn: r.nc, Keep: keep, Logger: quiet, Drop: b.Drop})
		check.OK(t, err)
		return p.purgeOld(t.Context())
	}
	check.OK(t, purge(time.Hour))
	if len(rows()) != 1 {
		t.Error("history of this hour is gone")
	}
	check.OK(t, purge(time.Nanosecond))
	if n := len(rows()); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	for key, want := range map[string]error{"logs/a": blobs.ErrNotFound, "results/a": blobs.ErrNotFound, "logs/b": nil} {
		content, err := b.Open(t.Context(), key)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", key, err, want)
		}
		if err == nil {
			check.OK(t, content.Close())
		}
	}
}
