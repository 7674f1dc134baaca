package status

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/streams"
)

// A status that cannot be applied is found among those with it, buried with its reason, and holds up nobody.
func TestPoisonedStatusIsBisectedOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n = 200
	runs := r.handedOut(n, nil)
	poison := runs[n/3].RunID
	s := &faulty{r.store, func(_ context.Context, reports []store.Report, do func() ([]store.ReportResult, error)) ([]store.ReportResult, error) {
		if has(reports, poison) {
			return nil, errors.New("numeric overflow")
		}
		return do()
	}}
	for i := 0; i < n; i += 10 {
		var batch []*wirev1.Status
		for k := i; k < i+10; k++ {
			batch = append(batch, r.say(&runs[k], succeeded))
		}
		r.send("x", batch...)
	}
	r.recorder(s)
	r.settled()
	for i := range runs {
		rows := r.history(&runs[i])
		if want := map[bool]int{true: 0, false: 1}[runs[i].RunID == poison]; len(rows) != want {
			t.Errorf("run %d has %d rows of history, want %d", i, len(rows), want)
		}
	}
	m, err := r.dead(1).GetLastMsgForSubject(t.Context(), streams.DeadSubject("status", ""))
	check.OK(t, err)
	if !strings.Contains(m.Header.Get("Waterclock-Reason"), "numeric overflow") {
		t.Errorf("it says %v", m.Header)
	}
}

// While SQL is away nothing is lost, refused or buried; when it is back all is applied. Commits whose answer is lost are applied once.
func TestStoreThatIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n = 100
	runs := r.handedOut(n, nil)
	var away atomic.Bool
	var refusals, lostAnswers atomic.Int32
	away.Store(true)
	tried := make(chan struct{}, 1000)
	s := &faulty{r.store, func(_ context.Context, _ []store.Report, do func() ([]store.ReportResult, error)) ([]store.ReportResult, error) {
		if away.Load() {
			refusals.Add(1)
			tried <- struct{}{}
			return nil, fmt.Errorf("connect: %w", store.ErrUnavailable)
		}
		if lostAnswers.Add(1)%2 == 1 {
			if _, err := do(); err != nil {
				return nil, err
			}
			return nil, store.ErrUnknownOutcome
		}
		return do()
	}}
	r.recorder(s)
	for i := range runs {
		r.send("x", r.say(&runs[i], succeeded))
	}
	for range 4 {
		<-tried
	}
	if n := r.applied(); n != 0 {
		t.Errorf("applied up to %d while SQL is away", n)
	}
	away.Store(false)
	r.settled()
	for i := range runs {
		r.ended(&runs[i], job.StepSucceeded)
	}
	r.dead(0)
}

// A recorder that dies between commit and ack leaves its messages to the next, which finds them applied.
func TestCrashBetweenCommitAndAck(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := r.handedOut(20, func(j *job.Job) {
		j.Spec.Schedule = schedule.Schedule{Kind: schedule.Every, Period: time.Hour, Anchor: j.CreatedAt}
	})
	committed := make(chan struct{})
	var once sync.Once
	s := &faulty{r.store, func(ctx context.Context, _ []store.Report, do func() ([]store.ReportResult, error)) ([]store.ReportResult, error) {
		if _, err := do(); err != nil {
			return nil, err
		}
		once.Do(func() { close(committed) })
		<-ctx.Done() // the answer never comes back to this process
		return nil, ctx.Err()
	}}
	for i := range runs {
		r.send("x", r.say(&runs[i], failed))
	}
	first := r.recorder(s)
	<-committed
	first.Stop()
	if n := r.applied(); n != 0 {
		t.Fatalf("acknowledged up to %d", n)
	}
	r.recorder(nil)
	r.settled()
	for i := range runs {
		r.ended(&runs[i], job.StepFailed)
		timers, err := r.store.Timers(t.Context(), []*job.Job{{ID: runs[i].JobID, Shard: runs[i].Shard, Namespace: "default", Spec: job.Spec{Schedule: schedule.Schedule{Kind: schedule.Every}}}})
		if err != nil || len(timers[runs[i].JobID]) != 1 {
			t.Errorf("run %d is followed by %v, %v", i, timers, err)
		}
	}
	r.dead(0)
}
