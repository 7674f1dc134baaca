package harness

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/chaos/fault"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/streams"
)

// poisonEvery is about how often a message is put somewhere that nobody can take.
const poisonEvery = 4 * time.Second

// poisoner puts messages into SUBMIT and STATUS that nobody can take, and says at the end what has become of them.
type poisoner struct {
	js         jetstream.JetStream
	rng        *mathrand.Rand
	namespaces []string
	// sealer makes tickets that the cluster believes.
	sealer *streams.Sealer

	mu   sync.Mutex
	done []poured
}

// poured is a message that NATS has taken.
type poured struct {
	checker.Poison
	// mark is in its body, whatever becomes of it on the way, and in no other.
	mark string
	at   time.Time
}

// work pours until the load ends.
func (p *poisoner) work(load, calls context.Context) error {
	for n := 0; ; n++ {
		if fault.Wait(load, fault.Between(p.rng, poisonEvery/2, poisonEvery*3/2)) != nil {
			return nil
		}
		if err := p.pour(calls, n); err != nil {
			return err
		}
	}
}

// pour puts one message in, the kinds in turn. What NATS does not take is tried again under the same id, so that it is there once.
func (p *poisoner) pour(ctx context.Context, n int) error {
	namespace := fault.Pick(p.rng, p.namespaces)
	mark := rand.Text()
	var subject string
	var body []byte
	var err error
	out := poured{mark: mark}
	switch kind := n % 5; kind {
	case 0:
		out.What, out.Want = "a submit that is not JSON", streams.DeadSubject("submit", namespace)
		subject, body = enqueuePrefix+namespace, []byte(`{"spec": `+mark)
	case 1:
		out.What, out.Want = "a submit of a kind that is no name", streams.DeadSubject("submit", namespace)
		subject, body = enqueuePrefix+namespace, []byte(`{"spec": {"kind": "not a name `+mark+`"}}`)
	case 2:
		out.What, out.Want = "a status that cannot be read", streams.DeadSubject("status", "")
		subject, body = streams.StatusSubject("nobody"), append([]byte{0xff, 0xff, 0xff}, mark...)
	case 3:
		out.What, out.Want = "a status with a ticket of nobody's", streams.DeadSubject("status", "")
		subject = streams.StatusSubject("nobody")
		body, err = statusOf(mark, []byte("a ticket that nobody has sealed"))
	default:
		out.What = "a status of a run that never was"
		subject = streams.StatusSubject("nobody")
		var ticket []byte
		ticket, err = p.stranger(namespace)
		if err == nil {
			body, err = statusOf(mark, ticket)
		}
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", out.What, err)
	}
	if err := p.put(ctx, subject, body, mark); err != nil {
		return nil //nolint:nilerr // the run has ended; nobody knows whether it is there, and nothing is said of it
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out.at = time.Now()
	p.done = append(p.done, out)
	return nil
}

func (p *poisoner) put(ctx context.Context, subject string, body []byte, id string) error {
	return fault.Retry(ctx, callLimit, retryEvery, nil, func(ctx context.Context) error {
		_, err := p.js.Publish(ctx, subject, body, jetstream.WithMsgID(id))
		return err
	})
}

func statusOf(mark string, ticket []byte) ([]byte, error) {
	return proto.Marshal(&wirev1.StatusBatch{Executor: "nobody", Statuses: []*wirev1.Status{{
		Ticket: ticket, Kind: wirev1.StatusKind_STATUS_KIND_SUCCEEDED, Reason: "ok", Message: mark,
	}}})
}

// stranger is a good ticket of a run that was never made.
func (p *poisoner) stranger(namespace string) ([]byte, error) {
	jobID, runID := uuid.New(), uuid.New()
	now := time.Now().UnixMicro()
	return p.sealer.Seal(&wirev1.Ticket{
		JobId: jobID[:], RunId: runID[:], DueAt: now, ScheduledAt: now, Dispatch: 1, Attempt: 1, Version: 1,
		Namespace: namespace, QueueNamespace: "_", Queue: "default",
	})
}

// dead is a message in the dead letters.
type dead struct{ subject, reason, body string }

// deadLetters reads all that lies in DEAD.
func deadLetters(ctx context.Context, js jetstream.JetStream) ([]dead, error) {
	s, err := js.Stream(ctx, streams.DeadStream)
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", err)
	}
	state := s.CachedInfo().State
	var out []dead
	for seq := state.FirstSeq; seq <= state.LastSeq && state.Msgs > 0; seq++ {
		m, err := s.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read dead letter %d: %w", seq, err)
		}
		out = append(out, dead{m.Subject, m.Header.Get("Waterclock-Reason"), string(m.Data)})
	}
	return out, nil
}

// ended says where each message is, and which dead letters are none of them. Of one that was put in before NATS lost data nothing is said where it is nowhere.
func (p *poisoner) ended(letters []dead, lost []checker.Window) (all []checker.Poison, strays []dead) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ours := make([]bool, len(letters))
	for _, d := range p.done {
		out := d.Poison
		for i, l := range letters {
			if strings.Contains(l.body, d.mark) {
				ours[i] = true
				out.Ended, out.Reason = append(out.Ended, l.subject), l.reason
			}
		}
		before := slices.ContainsFunc(lost, func(w checker.Window) bool { return d.at.Before(w.Till) })
		if len(out.Ended) > 0 || !before {
			all = append(all, out)
		}
	}
	for i, l := range letters {
		if !ours[i] && !strings.Contains(l.body, fault.Garbage) {
			strays = append(strays, l)
		}
	}
	return all, strays
}
