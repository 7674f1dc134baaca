package executor

import (
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/waterclock-io/waterclock/internal/failpoint"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
	"github.com/waterclock-io/waterclock/streams"
)

// outbox sends what became of attempts to STATUS until the stream has it. A lone status waits for nothing; when many come, those of ten milliseconds share a
// message.
type outbox struct {
	e    *Executor
	room chan struct{} // bounds what waits, so that finished work cannot pile up while NATS is away

	mu      sync.Mutex
	waiting []report
	flying  int // messages without an answer
	kick    chan struct{}
	empty   *sync.Cond
}

type report struct {
	status *wirev1.Status
	done   func()
}

const (
	outboxLinger   = 10 * time.Millisecond
	outboxMessages = 4       // unanswered at once
	outboxStatuses = 200     // in one message
	outboxBytes    = 512_000 // in one message, short of the server's limit of 1 MiB
	outboxRetry    = 250 * time.Millisecond
)

func newOutbox(e *Executor) *outbox {
	o := &outbox{e: e, room: make(chan struct{}, max(1024, 4*e.cfg.Slots)), kick: make(chan struct{}, 1)}
	o.empty = sync.NewCond(&o.mu)
	return o
}

// add takes statuses to send, those of one call in one message as far as it holds them; done of each is called when the stream has it. It blocks while the
// outbox is full.
func (o *outbox) add(reports ...report) {
	for range reports {
		o.room <- struct{}{}
	}
	o.mu.Lock()
	o.waiting = append(o.waiting, reports...)
	o.mu.Unlock()
	o.wake()
}

func (o *outbox) wake() {
	select {
	case o.kick <- struct{}{}:
	default:
	}
}

func (o *outbox) run() {
	var last time.Time
	for {
		select {
		case <-o.e.life.Done():
			return
		case <-o.kick:
		}
		if wait := outboxLinger - time.Since(last); wait > 0 && !o.many() {
			t := time.NewTimer(wait)
			select {
			case <-o.e.life.Done():
				t.Stop()
				return
			case <-t.C:
			}
		}
		for o.sendOne() {
			last = time.Now()
		}
	}
}

func (o *outbox) many() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.waiting) >= outboxStatuses
}

// sendOne publishes one message of what waits, if the number of those without an answer allows. False: there is nothing more to do before the next kick.
func (o *outbox) sendOne() bool {
	o.mu.Lock()
	if len(o.waiting) == 0 || o.flying >= outboxMessages {
		o.mu.Unlock()
		return false
	}
	n, size := 0, 0
	for n < len(o.waiting) && n < outboxStatuses {
		s := o.waiting[n].status
		size += len(s.Ticket) + len(s.Result) + len(s.Message) + 64
		if n > 0 && size > outboxBytes {
			break
		}
		n++
	}
	batch := append([]report(nil), o.waiting[:n]...)
	o.waiting = o.waiting[n:]
	o.flying++
	o.mu.Unlock()

	b := &wirev1.StatusBatch{Executor: o.e.id, Statuses: make([]*wirev1.Status, n)}
	for i := range batch {
		b.Statuses[i] = batch[i].status
	}
	data, err := proto.Marshal(b)
	if err == nil {
		failpoint.Here(failpoint.ExecutorReporting)
		err = o.e.window.Publish(o.e.life, streams.StatusSubject(o.e.id), nil, data, func(_ streams.Ack, err error) { o.answered(batch, err) })
		failpoint.Here(failpoint.ExecutorReported)
	}
	if err != nil {
		o.answered(batch, err)
	}
	return err == nil
}

func (o *outbox) answered(batch []report, err error) {
	if err == nil {
		failpoint.Here(failpoint.ExecutorConfirmed)
		for i := range batch {
			batch[i].done()
			<-o.room
		}
	}
	o.mu.Lock()
	o.flying--
	if err != nil {
		o.waiting = append(batch, o.waiting...)
	}
	o.empty.Broadcast()
	more := len(o.waiting) > 0
	o.mu.Unlock()
	switch {
	case err != nil:
		o.e.log.Warn("status not taken; trying again", "statuses", len(batch), "error", err)
		time.AfterFunc(outboxRetry, o.wake)
	case more:
		o.wake()
	}
}

// flush waits until all is sent, but no longer than a time.
func (o *outbox) flush(limit time.Duration) {
	o.wake()
	over := false
	t := time.AfterFunc(limit, func() {
		o.mu.Lock()
		over = true
		o.empty.Broadcast()
		o.mu.Unlock()
	})
	defer t.Stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	for (len(o.waiting) > 0 || o.flying > 0) && !over {
		o.empty.Wait()
	}
}
