package api_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"pgregory.net/rapid"

	"github.com/waterclock-io/waterclock/api"
	"github.com/waterclock-io/waterclock/api/auth"
	"github.com/waterclock-io/waterclock/api/convert"
	"github.com/waterclock-io/waterclock/api/submit"
	"github.com/waterclock-io/waterclock/job"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/store/sqlite"
)

// troubled is a store whose writes go wrong as the test says: before they are made, or after.
type troubled struct {
	*sqlite.Store
	before, after atomic.Pointer[error]
}

func (s *troubled) Submit(ctx context.Context, subs []store.Submission) ([]store.SubmitResult, error) {
	if err := s.before.Load(); err != nil {
		return nil, *err
	}
	out, err := s.Store.Submit(ctx, subs)
	if late := s.after.Load(); late != nil {
		return nil, *late
	}
	return out, err
}

func (s *troubled) ChangeJob(ctx context.Context, ns string, id uuid.UUID, decide func(*job.Job, []store.Timer, time.Time) (store.Change, error)) (*job.Job, []store.Timer, error) {
	if err := s.before.Load(); err != nil {
		return nil, nil, *err
	}
	j, timers, err := s.Store.ChangeJob(ctx, ns, id, decide)
	if late := s.after.Load(); late != nil {
		return nil, nil, *late
	}
	return j, timers, err
}

func reason(err error) string {
	var c *connect.Error
	if errors.As(err, &c) {
		for _, d := range c.Details() {
			if v, err := d.Value(); err == nil {
				if info, ok := v.(*errdetails.ErrorInfo); ok {
					return info.GetReason()
				}
			}
		}
	}
	return ""
}

// The fault: the database is away, out of connections or full, or its answer to a commit is lost. Callers are told which, without what is the operator's; what was
// refused was not made, and what may have been made is found by repeating with the same key.
func TestDatabaseInTrouble(t *testing.T) {
	t.Parallel()
	var s *troubled
	w := newWorld(t, func(d *api.Deps) {
		s = &troubled{Store: d.Store.(*sqlite.Store)}
		v, err := convert.NewValidator()
		must(t, err)
		service := submit.New(submit.Config{Store: s, Clock: d.Clock, Waker: d.Waker, Validator: v})
		t.Cleanup(service.Stop)
		d.Store, d.Submit = s, service
	})
	jobs, ctx := w.jobs("acme"), t.Context()
	there := w.add(&waterclockv1.JobSpec{Kind: "exec", Name: "there", Schedule: every(time.Hour)}).GetJob().GetJobId()
	names := func() map[string]bool {
		res, err := jobs.ListJobs(ctx, connect.NewRequest(&waterclockv1.ListJobsRequest{}))
		must(t, err)
		out := map[string]bool{}
		for _, j := range res.Msg.GetJobs() {
			out[j.GetSpec().GetName()] = true
		}
		return out
	}
	add := func(name string) (*waterclockv1.SubmitJobResponse, error) {
		res, err := jobs.SubmitJob(ctx, connect.NewRequest(&waterclockv1.SubmitJobRequest{
			Spec: &waterclockv1.JobSpec{Kind: "exec", Name: name, Schedule: every(time.Hour)}, IdempotencyKey: name,
		}))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}
	for _, c := range []struct {
		name   string
		where  *atomic.Pointer[error]
		err    error
		reason string
		made   bool
	}{
		{"away", &s.before, fmt.Errorf("dial tcp 10.1.2.3: %w", store.ErrUnavailable), "STORE_UNAVAILABLE", false},
		{"full", &s.before, fmt.Errorf("SQLSTATE 53100 at 10.1.2.3: %w", store.ErrUnavailable), "STORE_UNAVAILABLE", false},
		{"question-lost", &s.before, fmt.Errorf("10.1.2.3: %w", store.ErrUnknownOutcome), "OUTCOME_UNKNOWN", false},
		{"answer-lost", &s.after, fmt.Errorf("10.1.2.3: %w", store.ErrUnknownOutcome), "OUTCOME_UNKNOWN", true},
	} {
		c.where.Store(&c.err)
		_, err := add(c.name)
		if code(err) != connect.CodeUnavailable || reason(err) != c.reason || strings.Contains(err.Error(), "10.1.2.3") {
			t.Errorf("%s: submit: %v %q", c.name, err, reason(err))
		}
		batch, err := jobs.SubmitJobs(ctx, connect.NewRequest(&waterclockv1.SubmitJobsRequest{Requests: []*waterclockv1.SubmitJobRequest{
			{Spec: &waterclockv1.JobSpec{Kind: "exec", Name: c.name + "-1", Schedule: every(time.Hour)}, IdempotencyKey: c.name + "-1"},
			{Spec: &waterclockv1.JobSpec{Kind: "exec", Name: c.name + "-2", Schedule: every(time.Hour)}, IdempotencyKey: c.name + "-2"},
		}}))
		must(t, err)
		for _, r := range batch.Msg.GetResults() {
			if r.GetError().GetCode() != connect.CodeUnavailable.String() {
				t.Errorf("%s: one of a batch: %v", c.name, r)
			}
		}
		_, err = jobs.PauseJob(ctx, connect.NewRequest(&waterclockv1.PauseJobRequest{JobId: there}))
		if code(err) != connect.CodeUnavailable || reason(err) != c.reason {
			t.Errorf("%s: pause: %v %q", c.name, err, reason(err))
		}
		got := names()
		for _, name := range []string{c.name, c.name + "-1", c.name + "-2"} {
			if got[name] != c.made {
				t.Errorf("%s: %s is there %t, want %t", c.name, name, got[name], c.made)
			}
		}
		c.where.Store(nil)
		again, err := add(c.name)
		if err != nil || again.GetExisted() != c.made {
			t.Errorf("%s: repeated: existed %t, want %t; %v", c.name, again.GetExisted(), c.made, err)
		}
		_, err = jobs.ResumeJob(ctx, connect.NewRequest(&waterclockv1.ResumeJobRequest{JobId: there}))
		must(t, err)
	}
	if n := len(names()); n != 1+4+2 {
		t.Errorf("%d jobs, want those that were made and no more", n)
	}
}

// The fault: somebody guesses keys, or shows one that was revoked or has expired. The answer is the same to the byte, and soon there is none but that it is too many.
func TestWrongKeysGetOneAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := func(change func(*store.APIKey)) string {
		k, text := auth.NewKey("acme", "n", w.clock.Now(), time.Time{})
		change(&k)
		must(t, w.store.CreateKey(t.Context(), k))
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
		must(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+key)
		res, err := http.DefaultClient.Do(req)
		must(t, err)
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		must(t, err)
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
		must(t, err)
		if due, next := got.Msg.GetRun().GetDueTime().AsTime(), got.Msg.GetJob().GetNextDueTime().AsTime(); !due.Equal(at) || !next.Equal(at) {
			t.Errorf("%s: the run is due at %s, the job at %s", at, due, next)
		}
		rows, err := w.store.ReadDue(t.Context(), w.shards(), at.Add(-time.Microsecond), 100)
		must(t, err)
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
	must(t, err)
	must(t, z.Close())
	packed := bytes.Repeat(member.Bytes(), size>>20) // members one after another are a gzip stream too
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
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
	// To unpack them would take ten seconds and more.
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("%d bombs of %d MiB took %s", bombs, size>>20, took)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > bombs*size {
		t.Errorf("%d MiB were allocated for %d bombs of %d MiB", used>>20, bombs, size>>20)
	}
}

// The fault: everything is cancelled while it ends by itself. Each run has one end, and the answer to the cancel is not taken back.
func TestMassCancelAgainstCompletion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const n = 24
	rows := make([]store.Timer, n)
	for i := range rows {
		rows[i] = w.hand(w.add(&waterclockv1.JobSpec{Kind: "exec"}).GetJob().GetJobId())
	}
	answers := make([]waterclockv1.RunState, n)
	// The cancels begin at one end and the completions at the other: they meet.
	var wg sync.WaitGroup
	next := make(chan int, n)
	for i := range rows {
		next <- i
	}
	close(next)
	for range 4 {
		wg.Go(func() {
			for i := range next {
				res, err := w.runs("acme").CancelRun(t.Context(), connect.NewRequest(&waterclockv1.CancelRunRequest{JobId: rows[i].JobID.String()}))
				if err != nil {
					t.Error(err)
				} else if len(res.Msg.GetRuns()) == 1 {
					answers[i] = res.Msg.GetRuns()[0].GetState()
				}
			}
		})
	}
	wg.Go(func() {
		for i := n - 1; i >= 0; i-- {
			_, err := w.store.Record(t.Context(), []store.Report{{Kind: store.ReportEnd, Key: rows[i].TimerKey, JobID: rows[i].JobID, Dispatch: 1}},
				func(_ int, row *store.Timer, _ *job.Job, now time.Time) store.Change {
					return store.Change{Runs: []store.RunRow{row.History(job.StepSucceeded, true, "ok", now)}}
				})
			if err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	ends := map[job.Step]int{}
	for i := range rows {
		got, err := w.store.RunAttempts(t.Context(), rows[i].JobID, rows[i].RunID)
		must(t, err)
		left, err := w.store.ReadTimers(t.Context(), []store.TimerKey{rows[i].TimerKey})
		must(t, err)
		if len(got) != 1 || !got[0].Final || len(left) != 0 {
			t.Errorf("run %d has history %+v and rows %+v", i, got, left)
			continue
		}
		ends[got[0].Step]++
		if answers[i] == waterclockv1.RunState_RUN_STATE_CANCELLED && got[0].Step != job.StepCancelled {
			t.Errorf("run %d was answered with cancelled and is %s", i, got[0].Step)
		}
	}
	t.Logf("ended as %v", ends)
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
