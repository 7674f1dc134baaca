package executor

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/waterclock-io/waterclock/executor/runlog"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/streams"
)

const (
	progressEvery = 250 * time.Millisecond
	blobTimeout   = 30 * time.Second
)

// log returns the log of the attempt, made when it is first written to.
func (a *attempt) log() *runlog.Log {
	a.logOnce.Do(func() { a.logged.Store(runlog.New(a.e.cfg.LogLimit, a.live)) })
	return a.logged.Load()
}

// live sends a piece of the log to who follows it.
func (a *attempt) live(c runlog.Chunk) {
	a.sendLive(&wirev1.Live{Stream: int32(c.Stream), Time: c.Time.UnixMicro(), Data: c.Data, Cut: c.Cut})
}

func (a *attempt) sendLive(l *wirev1.Live) {
	l.Attempt, l.Dispatch = a.msg.Attempt, a.msg.Dispatch
	a.sentLive.Store(true)
	if err := streams.PublishLive(a.e.cfg.Conn, a.msg.Namespace, a.run, l); err != nil {
		a.e.log.Debug("live message not sent", "error", err)
	}
}

func (a *attempt) progress(fraction float64, note string) {
	now := time.Now()
	last := a.progressN.Load()
	at := int64(now.Sub(processStart))
	if last != 0 && at-last < int64(progressEvery) && fraction < 1 {
		return
	}
	if !a.progressN.CompareAndSwap(last, at) {
		return
	}
	a.sendLive(&wirev1.Live{Time: now.UnixMicro(), Fraction: min(max(fraction, 0), 1), Note: cut(note, 500)})
}

// keepResult puts the result where it belongs by its size. False: it was too large, and the status says so.
func (a *attempt) keepResult(s *wirev1.Status) bool {
	p := a.result.Load()
	if p == nil {
		return true
	}
	b := *p
	switch {
	case len(b) <= MaxInlineResult:
		s.Result = b
	case len(b) > MaxResult || a.e.cfg.Blobs == nil:
		limit := MaxResult
		if a.e.cfg.Blobs == nil {
			limit = MaxInlineResult
		}
		s.Kind, s.Reason, s.Retriable = wirev1.StatusKind_STATUS_KIND_FAILED, "fatal", false
		s.Message = fmt.Sprintf("result: %d bytes given; allowed: at most %d", len(b), limit)
		return false
	default:
		ref, err := a.put("results", b)
		if err != nil {
			s.Kind, s.Reason, s.Retriable, s.Message = wirev1.StatusKind_STATUS_KIND_FAILED, "error", true, "the result could not be stored: "+err.Error()
			return false
		}
		s.ResultRef = ref
	}
	return true
}

// keepLog stores the log. A log that cannot be stored does not change the outcome of the work; history says that it is missing.
func (a *attempt) keepLog(s *wirev1.Status) {
	l := a.logged.Load()
	if l == nil {
		return
	}
	l.Close()
	if a.e.cfg.Blobs != nil {
		var b bytes.Buffer
		err := l.Encode(&b)
		ref := ""
		if err == nil {
			ref, err = a.put("logs", b.Bytes())
		}
		if err == nil {
			s.LogRef = ref
		} else {
			a.e.log.Warn("log of a run is lost", "run", a.run, "error", err)
			if s.Message == "" {
				s.Message = "the log could not be stored"
			}
		}
	}
	if a.sentLive.Load() {
		a.sendLive(&wirev1.Live{Time: time.Now().UnixMicro(), End: true})
	}
}

// put stores content under a name that no other dispatch of the run uses.
func (a *attempt) put(folder string, content []byte) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), blobTimeout)
	defer cancel()
	ref := fmt.Sprintf("%s/%s/%s/%d-%d", folder, a.msg.Namespace, a.run, a.msg.Attempt, a.msg.Dispatch)
	return ref, a.e.cfg.Blobs.Put(ctx, ref, content)
}
