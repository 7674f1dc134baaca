package dbclock

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// database is the clock of another machine: set at will, and answered for after a delay there and back.
type database struct {
	mu     sync.Mutex
	offset time.Duration
	delay  func() time.Duration
	err    error
}

func (d *database) time() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Now().Add(d.offset)
}

func (d *database) set(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.offset += by
}

func (d *database) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func (d *database) Now(ctx context.Context) (time.Time, error) {
	d.mu.Lock()
	there, back, err := d.delay(), d.delay(), d.err
	d.mu.Unlock()
	if err := pass(ctx, there); err != nil {
		return time.Time{}, err
	}
	now := d.time().Truncate(time.Microsecond)
	if err := pass(ctx, back); err != nil {
		return time.Time{}, err
	}
	return now, err
}

func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Over many random delays, some past every time-out, and jumps forward, the clock is never ahead of the database, and not long behind.
func TestNeverAhead(t *testing.T) {
	t.Parallel()
	for range 20 {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) {
			rnd, delays := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, 1))
			db := &database{delay: func() time.Duration {
				if delays.IntN(20) == 0 {
					return time.Duration(delays.Int64N(int64(4 * time.Second)))
				}
				return time.Duration(delays.Int64N(int64(50 * time.Millisecond)))
			}}
			db.offset = time.Duration(rnd.Int64N(int64(time.Hour)))
			c := New(db, quiet)
			for c.Start(t.Context()) != nil {
				continue // the first answer took too long
			}
			defer c.Stop()
			lastSet := time.Now()
			for range 2000 {
				<-time.After(time.Duration(rnd.Int64N(int64(100 * time.Millisecond))))
				if rnd.IntN(100) == 0 {
					db.set(time.Duration(rnd.Int64N(int64(time.Hour))))
					lastSet = time.Now()
				}
				got, truth := c.Now(), db.time()
				if got.After(truth) {
					t.Fatalf("seed %d: %s ahead", seed, got.Sub(truth))
				}
				if d := truth.Sub(got); time.Since(lastSet) > 30*time.Second && d > 5*time.Second {
					t.Fatalf("seed %d: %s behind, %s after the last jump", seed, d, time.Since(lastSet))
				}
			}
		})
	}
}

// A database whose clock is set back is believed within a second and the way of the answer.
func TestSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &database{delay: func() time.Duration { return 10 * time.Millisecond }}
		c := New(db, quiet)
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer c.Stop()
		db.set(-time.Hour)
		<-time.After(every + 30*time.Millisecond)
		if got, truth := c.Now(), db.time(); got.After(truth) || truth.Sub(got) > 20*time.Millisecond {
			t.Errorf("%s, and the database says %s", got, truth)
		}
	})
}

// While the database cannot be asked the clock goes on; what it says is whole microseconds of UTC.
func TestDatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &database{delay: func() time.Duration { return time.Millisecond }, err: errors.New("away")}
		c := New(db, quiet)
		if err := c.Start(t.Context()); err == nil {
			t.Fatal("it started without an answer")
		}
		c.Stop()
		db.fail(nil)
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		db.fail(errors.New("away"))
		<-time.After(time.Minute + 123*time.Nanosecond)
		got, truth := c.Now(), db.time()
		if got.After(truth) || truth.Sub(got) > 10*time.Millisecond {
			t.Errorf("%s, and the database says %s", got, truth)
		}
		if got.Location() != time.UTC || !got.Equal(got.Truncate(time.Microsecond)) {
			t.Errorf("not whole microseconds of UTC: %s", got)
		}
		c.Stop()
		c.Stop()
	})
}
