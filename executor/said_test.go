package executor_test

import (
	"context"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/internal/check"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/streams"
)

// said is a status as STATUS has it.
type said struct {
	*wirev1.Status
	run      uuid.UUID
	dispatch int64
	executor string
	msgID    string
	at       time.Time // when it was heard
}

// record reads what executors say.
func (p *plant) record() {
	c, err := p.js.OrderedConsumer(context.Background(), streams.StatusStream, jetstream.OrderedConsumerConfig{})
	check.OK(p.t, err)
	reading, err := c.Consume(func(m jetstream.Msg) {
		b := new(wirev1.StatusBatch)
		if err := proto.Unmarshal(m.Data(), b); err != nil {
			p.t.Errorf("a status that cannot be read: %v", err)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, s := range b.Statuses {
			ticket, err := p.sealer.Open(s.Ticket)
			if err != nil {
				p.t.Errorf("status %s: %v", s.Kind, err)
				continue
			}
			p.heard = append(p.heard, said{s, uuid.UUID(ticket.RunId), ticket.Dispatch, b.Executor, m.Headers().Get(jetstream.MsgIDHeader), time.Now()})
		}
		close(p.more)
		p.more = make(chan struct{})
	})
	check.OK(p.t, err)
	p.t.Cleanup(reading.Stop)
}

// find waits until STATUS has what is looked for.
func (p *plant) find(what string, match func(said) bool) said {
	p.t.Helper()
	over := time.After(check.Patience)
	for {
		p.mu.Lock()
		i := slices.IndexFunc(p.heard, match)
		var found said
		if i >= 0 {
			found = p.heard[i]
		}
		more := p.more
		p.mu.Unlock()
		if i >= 0 {
			return found
		}
		select {
		case <-more:
		case <-over:
			p.t.Fatalf("STATUS does not have %s", what)
		}
	}
}

// ended waits for the last word on a run.
func (p *plant) ended(run uuid.UUID) said {
	p.t.Helper()
	return p.find("the end of "+run.String(), func(s said) bool { return s.run == run && s.Kind != wirev1.StatusKind_STATUS_KIND_STARTED })
}

// started waits for the claim of a run.
func (p *plant) started(run uuid.UUID) said {
	p.t.Helper()
	return p.find("the start of "+run.String(), func(s said) bool { return s.run == run && s.Kind == wirev1.StatusKind_STATUS_KIND_STARTED })
}

// ends waits for the last word on a run, and fails where it is of another kind.
func (p *plant) ends(what string, run uuid.UUID, want wirev1.StatusKind) {
	p.t.Helper()
	if s := p.ended(run); s.Kind != want {
		p.t.Errorf("%s: %s %s %s, want %s", what, s.Kind, s.Reason, s.Message, want)
	}
}

// words are all the kinds of status that a run has so far.
func (p *plant) words(run uuid.UUID) []wirev1.StatusKind {
	p.mu.Lock()
	defer p.mu.Unlock()
	var kinds []wirev1.StatusKind
	for _, s := range p.heard {
		if s.run == run {
			kinds = append(kinds, s.Kind)
		}
	}
	return kinds
}

// wordsAre fails unless the words on a run so far are exactly these.
func (p *plant) wordsAre(run uuid.UUID, want ...wirev1.StatusKind) {
	p.t.Helper()
	if d := cmp.Diff(want, p.words(run)); d != "" {
		p.t.Errorf("STATUS (-want +got):\n%s", d)
	}
}

// buried returns the way to the next dead letter.
func (p *plant) buried() (next func() *nats.Msg) {
	p.t.Helper()
	dead, err := p.nc.SubscribeSync("dead.>")
	check.OK(p.t, err)
	return func() *nats.Msg {
		p.t.Helper()
		m, err := dead.NextMsg(check.Patience)
		check.OK(p.t, err)
		return m
	}
}
