package planner

import (
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/internal/failpoint"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/store"
	"github.com/waterclock-io/waterclock/streams"
)

// reporter tells the recorder what this planner decided. What became of hand-overs is sent again until it is taken; other decisions that do not get through are
// dropped: the row is as it was, and is decided on anew.
type reporter struct {
	p    *Planner
	mu   sync.Mutex
	wait []*wirev1.Status
	back []*wirev1.Status // to be sent again a little later
	kick chan struct{}
}

const (
	reportMost  = 500                    // statuses in one message
	reportKeep  = 10_000                 // statuses that wait to be sent again; the watch finds what is dropped
	reportAgain = 250 * time.Millisecond // after one that was not taken
)

func newReporter(p *Planner) *reporter { return &reporter{p: p, kick: make(chan struct{}, 1)} }

func (r *reporter) add(s *wirev1.Status) {
	r.mu.Lock()
	r.wait = append(r.wait, s)
	r.mu.Unlock()
	r.wake()
}

func (r *reporter) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

func (r *reporter) run() {
	for {
		select {
		case <-r.p.life.Done():
			return
		case <-r.kick:
		}
		for {
			r.mu.Lock()
			n := min(len(r.wait), reportMost)
			batch := r.wait[:n:n]
			r.wait = r.wait[n:]
			r.mu.Unlock()
			if n == 0 {
				break
			}
			r.send(batch)
		}
	}
}

func (r *reporter) send(batch []*wirev1.Status) {
	data, err := proto.Marshal(&wirev1.StatusBatch{Executor: r.p.id, Statuses: batch})
	if err == nil {
		failpoint.Here(failpoint.PlannerReporting)
		err = r.p.window.Publish(r.p.life, streams.StatusSubject(memberToken(r.p.id)), nil, data, func(_ streams.Ack, err error) {
			if err != nil {
				r.failed(batch, err)
			}
		})
		failpoint.Here(failpoint.PlannerReported)
	}
	if err != nil {
		r.failed(batch, err)
	}
}

// failed keeps what nobody else would think of for long.
func (r *reporter) failed(batch []*wirev1.Status, err error) {
	if r.p.life.Err() != nil {
		return
	}
	r.p.log.Warn("report not taken; it is sent again, or the rows are decided on again", "statuses", len(batch), "error", err)
	r.mu.Lock()
	for _, s := range batch {
		if (s.Kind == wirev1.StatusKind_STATUS_KIND_RELEASED || s.Kind == wirev1.StatusKind_STATUS_KIND_LOST) && len(r.back) < reportKeep {
			if len(r.back) == 0 {
				time.AfterFunc(reportAgain, r.again)
			}
			r.back = append(r.back, s)
		}
	}
	r.mu.Unlock()
}

// again sends what was not taken.
func (r *reporter) again() {
	r.mu.Lock()
	r.wait, r.back = append(r.wait, r.back...), nil
	r.mu.Unlock()
	r.wake()
}

// memberToken makes a member id fit for a subject: host names may hold dots.
func memberToken(id string) string {
	b := []byte(id)
	for i, c := range b {
		if c == '.' || c == '*' || c == '>' || c <= ' ' || c > '~' {
			b[i] = '-'
		}
	}
	return string(b)
}

// report sends a status that speaks of a row.
func (p *Planner) report(t *store.Timer, s *wirev1.Status) {
	ticket, err := p.seal(t)
	if err != nil {
		p.log.Error("cannot seal a ticket", "run", t.RunID, "error", err)
		return
	}
	s.Ticket = ticket
	p.reporter.add(s)
}

// verdictOut is a decision that was reported and that nobody has recorded yet.
type verdictOut struct {
	key   store.TimerKey
	until time.Time // then it is decided again
}

// decideAgain is how long a row that was reported as skipped or failed is left alone before it is decided on again.
const decideAgain = 5 * time.Second

// skip reports that an occurrence is not run.
func (p *Planner) skip(e *entry, d decision) {
	s := &wirev1.Status{Kind: wirev1.StatusKind_STATUS_KIND_SKIPPED, Reason: d.reason, SkipCount: d.count}
	if !d.through.IsZero() {
		s.SkipThrough = d.through.UnixMicro()
	}
	p.cfg.Metrics.skipped.WithLabelValues(d.reason).Inc()
	p.settleByReport(e, s)
}

// fail reports that a run is over without another attempt.
func (p *Planner) fail(e *entry, d decision) {
	p.settleByReport(e, &wirev1.Status{
		Kind: wirev1.StatusKind_STATUS_KIND_FAILED, Reason: d.reason, Message: "the total deadline was over before the run could start",
	})
}

func (p *Planner) settleByReport(e *entry, s *wirev1.Status) {
	p.board.forget(e.row.RunID)
	p.skipping[e.row.RunID] = verdictOut{e.row.TimerKey, time.Now().Add(decideAgain)}
	p.report(&e.row.Timer, s)
}
