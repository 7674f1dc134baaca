package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/schedule"
	"github.com/waterclock-io/waterclock/store"
)

// Jitter is counted from the nominal time: a row that is made late is due at once, not late and later.
func TestJitterIsCountedFromTheNominalTime(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	j := &job.Job{ID: uuid.MustParse("11111111-2222-4333-8444-555555555555"), Spec: job.Spec{Schedule: schedule.Schedule{
		Kind: schedule.Every, Period: time.Hour, Anchor: at, Jitter: time.Minute,
	}}}
	due := at.Add(j.Spec.Schedule.JitterFor(j.ID, at)).Truncate(time.Microsecond)
	for _, tt := range []struct{ now, want time.Time }{
		{at.Add(-time.Hour), due}, {at, due}, {due.Add(-time.Microsecond), due}, {at.Add(time.Hour), at.Add(time.Hour)},
	} {
		if got := store.NewTimer(j, schedule.Occurrence{At: at}, tt.now); !got.DueAt.Equal(tt.want) || !got.ScheduledAt.Equal(at) {
			t.Errorf("made at %s: due %s, want %s", tt.now, got.DueAt, tt.want)
		}
	}
}
