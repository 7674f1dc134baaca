package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock-io/waterclock/chaos/checker"
)

func TestWebhookWritesLinesAndRefusesTheOlder(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "lines")
	w, err := newWebhook(file)
	if err != nil {
		t.Fatal(err)
	}
	call := func(ctx context.Context, attempt, dispatch int, do work) (int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, webURL(w.url, 7, do), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Waterclock-Run-Id", "r")
		req.Header.Set("Waterclock-Attempt", fmt.Sprint(attempt))
		req.Header.Set("Waterclock-Dispatch", fmt.Sprint(dispatch))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, res.Body)
		return res.StatusCode, errors.Join(err, res.Body.Close())
	}
	for _, tt := range []struct{ attempt, dispatch, fails, want int }{{1, 2, 1, 500}, {2, 3, 1, 200}, {1, 2, 0, 409}} {
		if got, err := call(t.Context(), tt.attempt, tt.dispatch, work{fails: tt.fails}); got != tt.want || err != nil {
			t.Errorf("dispatch %d: got %d, %v, want %d", tt.dispatch, got, err, tt.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for !strings.Contains(text(file), "start r 3 4") {
			if t.Context().Err() != nil {
				break
			}
		}
		cancel() // the executor hangs up
	}()
	if _, err := call(ctx, 3, 4, work{long: time.Minute}); err == nil {
		t.Error("a call that was hung up was answered")
	}
	if err := w.close(); err != nil {
		t.Error(err)
	}
	lines, err := checker.ParseLines(text(file))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range lines {
		if l.Kind != checker.Alive {
			got = append(got, fmt.Sprint(l.Kind, l.Attempt, l.Dispatch, l.Number, l.Group >= webGroup))
		}
	}
	want := []string{"start 1 2 7 true", "end 1 2 7 true", "start 2 3 7 true", "end 2 3 7 true", "start 3 4 7 true"}
	if diff := cmp.Diff(want, got, cmp.Transformer("words", func(s string) string { return strings.ReplaceAll(s, " ", "") })); diff != "" {
		t.Error(diff)
	}
}

func text(file string) string {
	b, _ := os.ReadFile(file) // not there yet
	return string(b)
}
