package api_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waterclock-io/waterclock/api"
	"github.com/waterclock-io/waterclock/api/auth"
	"github.com/waterclock-io/waterclock/internal/check"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
)

// The fault: somebody guesses keys, or shows one that was revoked or has expired. The answer is the same to the byte, and soon there is none but that it is too many.
func TestWrongKeysGetOneAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := func(change func(*store.APIKey)) string {
		k, text := auth.NewKey("acme", "n", w.clock.Now(), time.Time{})
		change(&k)
		check.OK(t, w.store.CreateKey(t.Context(), k))
		return text
	}
	keys := map[string]string{
		"unknown": "wck_aaaaaaaaaaaaaaaa_bbbbbbbbbbbbbbbb",
		"wrong":   key(func(*store.APIKey) {}) + "x",
		"revoked": key(func(k *store.APIKey) { k.RevokedAt = w.clock.Now() }),
		"expired": key(func(k *store.APIKey) { k.ExpiresAt = w.clock.Now() }),
	}
	ask := func(key string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/waterclock.v1.JobService/ListJobs", strings.NewReader("{}"))
		check.OK(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+key)
		res, err := http.DefaultClient.Do(req)
		check.OK(t, err)
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		check.OK(t, err)
		return res.StatusCode, string(b) + res.Header.Get("Www-Authenticate")
	}
	_, first := ask(keys["unknown"])
	for name, k := range keys {
		if status, body := ask(k); status != http.StatusUnauthorized || body != first {
			t.Errorf("%s: %d %s, another got %s", name, status, body, first)
		}
	}
	last := 0
	for range 20 {
		last, _ = ask(keys["unknown"])
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("after many guesses: %d", last)
	}
}

// The fault: times at which counters end. They are kept and given back as they were.
func TestYearsAtWhichCountersEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, at := range []time.Time{
		time.Date(2038, 1, 19, 3, 14, 8, 0, time.UTC), time.Unix(0, math.MaxInt64).UTC().Add(time.Second).Truncate(time.Microsecond),
		time.Date(2300, 1, 1, 0, 0, 0, 1000, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
	} {
		made := w.add(&waterclockv1.JobSpec{Kind: "exec", Schedule: once(at)})
		got, err := w.jobs("acme").GetJob(t.Context(), connect.NewRequest(&waterclockv1.GetJobRequest{JobId: made.GetJob().GetJobId()}))
		check.OK(t, err)
		if due, next := got.Msg.GetRun().GetDueTime().AsTime(), got.Msg.GetJob().GetNextDueTime().AsTime(); !due.Equal(at) || !next.Equal(at) {
			t.Errorf("%s: the run is due at %s, the job at %s", at, due, next)
		}
		rows, err := w.store.ReadDue(t.Context(), w.shards(), at.Add(-time.Microsecond), 100)
		check.OK(t, err)
		for _, r := range rows {
			if r.JobID.String() == made.GetJob().GetJobId() {
				t.Errorf("%s: it is due before its time", at)
			}
		}
	}
}

// The fault: names of queues and namespaces that would be wild cards or separators in a subject. Exactly the allowed ones are taken.
func TestNamesThatSubjectsCannotCarry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := w.jobs("acme")
	allowed := regexp.MustCompile(`\A[A-Za-z0-9_-]{1,64}\z`)
	try := func(name string) error {
		want := allowed.MatchString(name) && name != "_"
		if got := auth.CheckNamespace(name) == nil; got != want {
			return fmt.Errorf("namespace %q is taken: %t", name, got)
		}
		if name == "" {
			return nil // the default queue
		}
		_, err := client.SubmitJob(t.Context(), connect.NewRequest(&waterclockv1.SubmitJobRequest{Spec: &waterclockv1.JobSpec{Kind: "exec", Queue: name}}))
		if want && err == nil {
			return nil
		}
		if v := violation(err); want || code(err) != connect.CodeInvalidArgument || v.GetField() != "spec.queue" {
			return fmt.Errorf("queue %q: %w", name, err)
		}
		return nil
	}
	for _, name := range []string{
		".", "*", ">", "a.b", "a.>", "*.a", "_", "__", "-", "$JS", "a b", "a\n", "\n", "a\x00", "é", "a~b", "A/b", strings.Repeat("a", 64), strings.Repeat("a", 65), strings.Repeat("a", 300),
	} {
		if err := try(name); err != nil {
			t.Error(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.StringMatching(`[A-Za-z0-9_.*>-]{0,70}`)).Draw(t, "name")
		if err := try(name); err != nil {
			t.Fatal(err)
		}
	})
}

// The fault: small bodies that unpack to a lot. They are refused at the limit and not unpacked further, and others are served meanwhile. It counts what the process
// allocates, so it is not parallel.
func TestCompressionBombs(t *testing.T) {
	w := newWorld(t)
	const size, bombs = 256 << 20, 8
	var member bytes.Buffer
	z := gzip.NewWriter(&member)
	_, err := z.Write(make([]byte, 1<<20))
	check.OK(t, err)
	check.OK(t, z.Close())
	packed := bytes.Repeat(member.Bytes(), size>>20) // members one after another are a gzip stream too
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var wg sync.WaitGroup
	for range bombs {
		wg.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/waterclock.v1.JobService/SubmitJob", bytes.NewReader(packed))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Content-Type", "application/proto")
			req.Header.Set("Content-Encoding", "gzip")
			req.Header.Set("Authorization", "Bearer "+w.keys["acme"])
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusTooManyRequests && res.StatusCode != http.StatusBadRequest && res.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("a bomb of %d bytes got %d", size, res.StatusCode)
			}
		})
	}
	w.add(&waterclockv1.JobSpec{Kind: "exec"})
	wg.Wait()
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > bombs*size {
		t.Errorf("%d MiB were allocated for %d bombs of %d MiB", used>>20, bombs, size>>20)
	}
}

// What is packed is unpacked as far as a request may go, and no further: that costs the time.
func TestUnpackingEndsAtTheLargestRequest(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(make([]byte, 8*api.MaxRequest))
	check.OK(t, err)
	check.OK(t, z.Close())
	whole := packed.Len()
	d := api.NewInflater()
	check.OK(t, d.Reset(&packed))
	n, err := io.Copy(io.Discard, d)
	if err == nil || n > api.MaxRequest+1 {
		t.Errorf("%d bytes were unpacked, error %v", n, err)
	}
	if read := whole - packed.Len(); read > whole/4 {
		t.Errorf("%d of %d packed bytes were read", read, whole)
	}
}

// The fault: a page of any size is asked for. It is refused, and says what is allowed.
func TestPageThatIsTooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := map[string]string{}
	_, err := w.jobs("acme").ListJobs(t.Context(), connect.NewRequest(&waterclockv1.ListJobsRequest{PageSize: 1 << 30}))
	got["jobs"] = violation(err).GetField()
	_, err = w.runs("acme").ListRuns(t.Context(), connect.NewRequest(&waterclockv1.ListRunsRequest{PageSize: 1 << 30}))
	got["runs"] = violation(err).GetField()
	if d := cmp.Diff(map[string]string{"jobs": "page_size", "runs": "page_size"}, got); d != "" {
		t.Error(d)
	}
}
