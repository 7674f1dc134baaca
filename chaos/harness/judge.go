package harness

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/chaos/process"
	"github.com/waterclock-io/waterclock/job/schedule"
)

// judge waits for everything to end, and hands what is known to the checker.
func (r *rig) judge(ctx context.Context) (*Report, error) {
	h := &checker.History{Slots: r.world.slots()}
	for _, w := range r.nemesis.windows {
		h.Disturbed = append(h.Disturbed, w.Window)
		if w.loses {
			h.Lost = append(h.Lost, w.Window)
		}
	}
	healed := time.Now()
	if due := lastDue(r.traffic.told()); due.After(healed) {
		healed = due
	}
	quietAfter, failures, err := r.gather(ctx, h, healed)
	if err != nil {
		return nil, err
	}
	rep := r.report(h, quietAfter)
	rep.Failures = append(rep.Failures, failures...)
	return rep, nil
}

// gather waits until nothing is left, or the time for it is over, ends the world, and puts all that is known into a history. The failures are what was wrong with
// that end.
func (r *rig) gather(ctx context.Context, h *checker.History, healed time.Time) (quietAfter time.Duration, failures []string, err error) {
	if h.Left, quietAfter, err = r.settle(ctx, healed); err != nil {
		return quietAfter, nil, err
	}
	if err := r.traffic.fill(ctx, h); err != nil {
		return quietAfter, nil, err
	}
	if err := r.world.stop(ctx); err != nil {
		failures = append(failures, err.Error())
	}
	if h.Work, err = r.lines(); err != nil {
		return quietAfter, nil, err
	}
	alive, err := process.Find("cmdline", r.file)
	if err != nil {
		return quietAfter, nil, err
	}
	if len(alive) > 0 {
		failures = append(failures, fmt.Sprintf("%d commands outlive the processes", len(alive)))
	}
	return quietAfter, failures, nil
}

// lines are what the commands have written.
func (r *rig) lines() ([]checker.Line, error) {
	text, err := os.ReadFile(r.file)
	if err != nil {
		return nil, fmt.Errorf("read what the commands wrote: %w", err)
	}
	lines, err := checker.ParseLines(string(text))
	if err != nil {
		return nil, fmt.Errorf("read what the commands wrote: %w", err)
	}
	return lines, nil
}

// lastDue is when the last occurrence of all falls due.
func lastDue(jobs []checker.Job) time.Time {
	var last time.Time
	of := func(s schedule.Schedule) {
		at := s.At
		if s.Kind != schedule.Once {
			at = s.End
		}
		if at.After(last) {
			last = at
		}
	}
	for _, j := range jobs {
		of(j.Schedule)
		for _, ch := range j.Changes {
			if ch.Kind == checker.Update {
				of(ch.Schedule)
			}
		}
	}
	return last
}

// settle waits until nothing is left, or the time for it is over; it returns what is left and how long that took.
func (r *rig) settle(ctx context.Context, healed time.Time) (checker.Left, time.Duration, error) {
	if err := fault.Wait(ctx, time.Until(healed)); err != nil {
		return checker.Left{}, 0, err
	}
	db, err := openStore(r.world.storeURL())
	if err != nil {
		return checker.Left{}, 0, err
	}
	defer func() { _ = db.Close() }() // read-only
	l := &left{db: db, js: r.traffic.js}
	for {
		one, cancel := context.WithTimeout(ctx, 10*time.Second)
		now, err := l.read(one)
		cancel()
		since := time.Since(healed)
		switch {
		case err == nil && drained(now), err == nil && since > quiet:
			return now, since, nil
		case err != nil && since > quiet:
			return now, since, err
		}
		if err := fault.Wait(ctx, 200*time.Millisecond); err != nil {
			return now, since, err
		}
	}
}
