package status

import (
	"context"
	"time"
)

const (
	purgeEvery = 10 * time.Minute
	purgeRows  = 1000
	purgePause = 100 * time.Millisecond // between two batches, so that recording goes first
)

// purge removes history that is older than it is to be kept, and the blobs that it names.
func (r *Recorder) purge() {
	tick := time.NewTicker(purgeEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.life.Done():
			return
		case <-tick.C:
		}
		if err := r.purgeOld(r.life); err != nil && r.life.Err() == nil {
			r.log.Warn("cannot remove old history", "error", err)
		}
	}
}

// purgeOld removes all that is too old now.
func (r *Recorder) purgeOld(ctx context.Context) error {
	now, err := r.cfg.Store.Now(ctx)
	if err != nil {
		return err
	}
	for {
		n, err := r.cfg.Store.Purge(ctx, now.Add(-r.cfg.Keep), purgeRows, r.cfg.Drop)
		if err != nil || n < purgeRows {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(purgePause):
		}
	}
}
