package status

import (
	"time"
)

const (
	purgeEvery = 10 * time.Minute
	purgeRows  = 1000
	purgePause = 100 * time.Millisecond // between two batches, so that recording goes first
)

// purge removes history that is older than it is to be kept.
func (r *Recorder) purge() {
	tick := time.NewTicker(purgeEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.life.Done():
			return
		case <-tick.C:
		}
		now, err := r.cfg.Store.Now(r.life)
		for err == nil {
			var n int
			n, err = r.cfg.Store.Purge(r.life, now.Add(-r.cfg.Keep), purgeRows)
			if n < purgeRows {
				break
			}
			select {
			case <-r.life.Done():
				return
			case <-time.After(purgePause):
			}
		}
		if err != nil && r.life.Err() == nil {
			r.log.Warn("cannot remove old history", "error", err)
		}
	}
}
