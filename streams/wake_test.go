package streams

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/waterclock-io/waterclock/internal/check"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
)

var instants = rapid.Map(rapid.Int64Range(1, 253402300799000000), func(us int64) time.Time { return time.UnixMicro(us).UTC() })

// anyDue is a row as submit, recurrence and trigger make it: due, with its first attempt before it.
func anyDue(t *rapid.T) *store.DueRow {
	at := instants.Draw(t, "at")
	sched := rapid.SampledFrom([]schedule.Schedule{
		{Kind: schedule.Once, At: at},
		{Kind: schedule.Every, Period: 90 * time.Second, Anchor: at},
		{Kind: schedule.Cron, Spec: "30 2 * * *", Zone: "Europe/Berlin"},
		{Kind: schedule.Cron, Spec: "*/5 * * * *", Zone: "America/New_York"},
	}).Draw(t, "schedule")
	occ, ok := sched.Next(time.Unix(rapid.Int64Range(1, 4_000_000_000).Draw(t, "after"), 0))
	if !ok {
		occ, _ = sched.First()
	}
	j := &job.Job{
		ID: anyID(t, "job"), Namespace: tokens.Draw(t, "namespace"), Shard: rapid.Int32Range(0, 63).Draw(t, "shard"), Version: rapid.Int64Min(1).Draw(t, "version"),
		State: job.Active, Kind: tokens.Draw(t, "kind"), Queue: tokens.Draw(t, "queue"), QueueNamespace: job.SharedNamespace,
		Priority: rapid.SampledFrom(job.Priorities[:]).Draw(t, "priority"), Name: rapid.String().Draw(t, "name"), CreatedAt: instants.Draw(t, "created"),
		Payload: rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "payload"),
		Spec: job.Spec{
			Schedule: sched, Retry: job.RetryPolicy{MaxAttempts: rapid.Int32Range(0, 9).Draw(t, "attempts")}, TotalDeadline: time.Duration(rapid.Int64Min(0).Draw(t, "deadline")),
			CatchUp: rapid.SampledFrom([]job.CatchUp{"", job.CatchUpAll, job.CatchUpNone}).Draw(t, "catch-up"), Labels: map[string]string{"a": "ü\n"},
		},
	}
	tm := store.NewTimer(j, occ, instants.Draw(t, "now"))
	if rapid.Bool().Draw(t, "trigger") {
		tm = store.NewTrigger(j, "nonce", occ.At, instants.Draw(t, "now"))
	}
	tm.Dispatch, tm.Attempt = rapid.Int64Min(0).Draw(t, "dispatch"), rapid.Int32Min(1).Draw(t, "attempt")
	return &store.DueRow{Timer: tm, Name: j.Name, Spec: j.Spec, Payload: j.Payload, JobCreatedAt: j.CreatedAt}
}

func TestWakeThereAndBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := anyDue(t)
		w, err := encodeWake(want)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := DecodeWake(w)
		if !ok {
			t.Fatal("it cannot be decoded")
		}
		// Whether a row is in the index by job matters to SQL alone.
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(store.Timer{}, "Listed")); d != "" {
			t.Fatalf("-want +got:\n%s", d)
		}
	})
}

func TestWakeThatMustBeReadFromSQL(t *testing.T) {
	t.Parallel()
	id := make([]byte, 16)
	for what, w := range map[string]*wirev1.WakeRow{
		"no job":      {RunId: id, JobId: id},
		"short run":   {RunId: id[:15], JobId: id, Spec: []byte("{}")},
		"short job":   {RunId: id, JobId: id[:3], Spec: []byte("{}")},
		"broken spec": {RunId: id, JobId: id, Spec: []byte("{")},
		"empty":       {},
	} {
		if r, ok := DecodeWake(w); ok {
			t.Errorf("%s: got %v", what, r)
		}
	}
}

func TestWakeIsCutToWhatAServerTakes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got := make(chan int, 100)
	sub, err := OnWake(r.nc, 7, func(w *wirev1.Wake) { got <- len(w.Rows) })
	check.OK(t, err)
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closed next
	rows := make([]*store.DueRow, 20)
	payload := []byte(strings.Repeat("x", job.MaxPayload))
	for i := range rows {
		rows[i] = &store.DueRow{Payload: payload}
		rows[i].Shard, rows[i].Spec.Schedule.Kind = 7, schedule.Once
	}
	NewWaker(NewNotifier(r.nc, quiet), quiet).Wake(rows)
	for n := 0; n < len(rows); {
		n += check.Receive(t, "a wake", got)
	}
}
