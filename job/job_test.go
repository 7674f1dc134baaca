package job_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/waterclock-io/waterclock/job"
)

func TestRunIDIsTheSameForTheSameOccurrenceOnly(t *testing.T) {
	t.Parallel()
	id := uuid.MustParse("7d444840-9dc0-11d1-b245-5ffdce74fad2")
	at := time.Date(2026, 3, 29, 2, 30, 0, 0, time.UTC)
	first := job.RunID(id, job.FromSchedule, at, "")
	if again := job.RunID(id, job.FromSchedule, at.In(time.FixedZone("x", 3600)), ""); again != first {
		t.Errorf("the same instant in another zone is another run: %s, %s", again, first)
	}
	for name, other := range map[string]uuid.UUID{
		"another job":    job.RunID(uuid.New(), job.FromSchedule, at, ""),
		"another origin": job.RunID(id, job.FromTrigger, at, ""),
		"another time":   job.RunID(id, job.FromSchedule, at.Add(time.Microsecond), ""),
		"another nonce":  job.RunID(id, job.FromSchedule, at, "x"),
	} {
		if other == first {
			t.Errorf("%s has the same run id", name)
		}
	}
	// Ids are stored: the formula must never change.
	if want := "b12e687a-2538-5d75-9057-c45dd748dac6"; first.String() != want {
		t.Errorf("got %s, want %s", first, want)
	}
}

func TestKeyedIDSeparatesNamespaceAndKey(t *testing.T) {
	t.Parallel()
	if job.KeyedID("a", "bc") == job.KeyedID("ab", "c") {
		t.Error("namespace and key run into each other")
	}
	if got, want := job.KeyedID("default", "k").String(), "8ca225d1-fbbd-5529-84a5-dc7d231d9e58"; got != want {
		t.Errorf("got %s, want %s: ids made with a key before would be made anew", got, want)
	}
}

func TestShardsAreEvenlyUsed(t *testing.T) {
	t.Parallel()
	const shards, jobs = 64, 64_000
	for name, next := range map[string]func() uuid.UUID{
		"random": uuid.New, "ascending": func() uuid.UUID { return uuid.Must(uuid.NewV7()) },
	} {
		var count [shards]int
		for range jobs {
			count[job.ShardOf(next(), shards)]++
		}
		for s, n := range count {
			if n < jobs/shards*8/10 || n > jobs/shards*12/10 {
				t.Errorf("%s ids: shard %d has %d of %d", name, s, n, jobs)
			}
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := job.RetryPolicy{
			InitialBackoff: time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "initial")),
			MaxBackoff:     time.Duration(rapid.Int64Range(0, int64(7*24*time.Hour)).Draw(t, "max")),
			Multiplier:     rapid.Float64Range(0, 10).Draw(t, "multiplier"),
		}
		attempt := rapid.Int32Range(1, 1000).Draw(t, "attempt")
		run := uuid.New()
		d := p.Backoff(run, attempt)
		limit := p.MaxBackoff
		if limit == 0 {
			limit = job.DefaultMaxBackoff
		}
		if d < 0 || d > limit {
			t.Fatalf("wait %s is outside 0 to %s", d, limit)
		}
		if d != p.Backoff(run, attempt) {
			t.Fatal("deciding twice decides differently")
		}
		if d != d.Truncate(time.Microsecond) {
			t.Fatalf("%s is not whole microseconds", d)
		}
	})
	p := job.RetryPolicy{InitialBackoff: time.Second, MaxBackoff: time.Minute, Multiplier: 2}
	for attempt, most := range map[int32]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 7: time.Minute, 1000: time.Minute} {
		if d := p.Backoff(uuid.New(), attempt); d < most/2 || d > most {
			t.Errorf("attempt %d waits %s, want %s to %s", attempt, d, most/2, most)
		}
	}
}

func TestNothingFollowsATerminalStep(t *testing.T) {
	t.Parallel()
	seen := map[[2]string]bool{}
	for _, tr := range job.Transitions {
		if tr.From.Terminal() {
			t.Errorf("%s is terminal and has %s", tr.From, tr.Event)
		}
		key := [2]string{tr.From.String(), string(tr.Event)}
		if seen[key] {
			t.Errorf("%s has %s twice", tr.From, tr.Event)
		}
		seen[key] = true
		if to, ok := job.Next(tr.From, tr.Event); !ok || to != tr.To {
			t.Errorf("Next(%s, %s) = %s, %t; the table says %s", tr.From, tr.Event, to, ok, tr.To)
		}
		if tr.From == job.StepCancelling && !tr.To.Terminal() && tr.To != job.StepCancelling {
			t.Errorf("a cancelled run goes on by %s", tr.Event)
		}
	}
	if _, ok := job.Next(job.StepSucceeded, job.EventFailed); ok {
		t.Error("a run that succeeded can fail")
	}
}

func TestWhatAUserSees(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		step    job.Step
		attempt int32
		want    job.RunState
	}{
		{job.StepDue, 1, "scheduled"},
		{job.StepDue, 2, "retrying"},
		{job.StepDispatched, 1, "queued"},
		{job.StepRunning, 1, "running"},
		{job.StepSkipped, 1, "skipped"},
	} {
		if got := job.StateOf(c.step, c.attempt); got != c.want {
			t.Errorf("%s at attempt %d is %s, want %s", c.step, c.attempt, got, c.want)
		}
	}
}
