package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/job"
)

// Queue names a queue as executors serve it. Namespace is job.SharedNamespace where all namespaces share it.
type Queue struct {
	Namespace string
	Name      string
}

// PullConfig says what a Puller takes, and for whom.
type PullConfig struct {
	Queues []Queue
	// Slots is how many runs the executor works on at once.
	Slots int
	// AckWait is the lease of a delivery.
	AckWait time.Duration
	// Hold is how long a surplus delivery may wait for a slot of this executor before it is given back.
	Hold time.Duration
	// Deliver hands over a message for a free slot; Release ends its use of the slot. It must not block.
	Deliver func(Delivery)
	// Surplus hands over messages that no slot became free for, most urgent first: they are to be given back. It must not block.
	Surplus func([]Delivery)
	// Gone is called where the stream does not exist any more; the puller goes on trying until it is stopped. It must not block.
	Gone   func()
	Logger *slog.Logger

	parkFor time.Duration // PullFor of AckWait; other in tests
}

// Delivery is a message as a consumer delivered it.
type Delivery struct {
	*nats.Msg
	// Since is when the consumer was made, by the server's clock: what was stored before may have been delivered by the one before it, and forgotten with that.
	Since time.Time
	// Leased is when the pull was sent that it answers, by this machine's clock: its lease began after that, wherever it has been held up since.
	Leased time.Time
}

// The rhythm of a Puller.
const (
	// A parked pull is lost without a word where the consumer gets another leader while the servers are cut off from each other, and so may be the word of the
	// election: nothing is delivered until it has expired and is given up.
	longestPull  = 5 * time.Second
	parkSlack    = 2 * time.Second // past this after its expiry a pull that got no answer is given up
	leastParked  = 4               // messages that a pull parked on a lane asks for which nothing came by lately
	mostParked   = 64              // and where each pull is used up before it expires
	probeLinger  = time.Millisecond
	bottomEvery  = 8 // after so many rounds that did not come to the lowest lane, one begins there
	idleConsumer = time.Hour
	retryGone    = 500 * time.Millisecond
)

// Puller takes runs off the lanes of its queues for as many slots as are free, the most urgent first.
//
// While there is work it probes: it asks lane after lane, from the top, without waiting, and begins again at the top before it goes on to a lower priority than that of a
// lane that may have more. When every lane is empty it parks a pull on each and is woken by the
// first delivery. Parked pulls may bring more than there are slots: such surplus is held for a moment, in order of priority, and then given back. Where
// fewer slots are free than there are priorities, a delivery is started only after every higher lane has answered that it has nothing: runs that fall
// due together then start in their order of priority.
//
// All state belongs to one goroutine; the methods speak to it through channels.
type Puller struct {
	cfg    PullConfig
	nc     *nats.Conn
	js     jetstream.JetStream
	runs   Runs
	prefix string
	// elections is the prefix of the subjects of elections of the lanes' consumers.
	elections string
	lanes     []*lane

	inboxes  map[*nats.Subscription]*inbox
	retired  []*inbox // in the order in which they were
	inboxSeq uint64
	free     int // slots that neither work nor are promised
	held     []heldMsg
	probing  int // index of the lane that is asked; -1 = none
	found    bool
	more     bool // a lane has sent all that it was asked for in this round, and may have more
	lowest   bool // the round began at the lowest lane
	rounds   int  // probe rounds since the lowest lane was asked
	parked   bool
	fences   int // unanswered questions to higher lanes
	pullSeq  uint64
	lingerAt time.Time

	msgs     chan *nats.Msg
	freed    chan int
	again    chan restored
	reset    chan struct{}
	stop     chan struct{}
	stopOnce sync.Once
	done     chan struct{}
}

type lane struct {
	Lane
	consumer
	pull    *inbox    // may be nil, as may fence
	fence   *inbox    // of the question whether the lane has anything, which asks for one message
	park    int       // messages that the next parked pull asks for
	retryAt time.Time // not asked before: its consumer is missing
}

type heldMsg struct {
	msg   Delivery
	lane  *lane
	until time.Time
	// cleared: every higher lane has been asked after this came, or it is the turn of the lowest.
	cleared bool
	fenced  bool // the question is under way
}

// NewPuller makes the consumers of its lanes and starts. Stop ends it.
func NewPuller(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, runs Runs, cfg PullConfig) (*Puller, error) {
	if cfg.parkFor <= 0 {
		cfg.parkFor = PullFor(cfg.AckWait)
	}
	p := &Puller{
		cfg: cfg, nc: nc, js: js, runs: runs, prefix: nc.NewInbox() + ".", elections: electionsOf(runs.Name), inboxes: map[*nats.Subscription]*inbox{}, free: cfg.Slots, probing: -1,
		// Room for all that can be under way, so that the client never drops a delivery.
		msgs: make(chan *nats.Msg, cfg.Slots+len(cfg.Queues)*len(job.Priorities)*(mostParked+8)+1024), freed: make(chan int, cfg.Slots+1), again: make(chan restored), reset: make(chan struct{}, 1),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	for _, prio := range job.Priorities {
		for _, q := range cfg.Queues {
			p.lanes = append(p.lanes, &lane{Lane: Lane{Namespace: q.Namespace, Queue: q.Name, Priority: prio}, park: leastParked})
		}
	}
	for _, l := range p.lanes {
		c, err := ensureConsumer(ctx, js, runs.Name, l.Lane, cfg.AckWait, true)
		if err != nil {
			return nil, err
		}
		l.consumer = c
	}
	elections, err := nc.ChanSubscribe(p.elections+"*", p.msgs)
	if err != nil {
		return nil, fmt.Errorf("subscribe to elections: %w", err)
	}
	go p.run(elections)
	return p, nil
}

// Release gives n slots back. It never blocks for longer than the puller takes to see it.
func (p *Puller) Release(n int) {
	select {
	case p.freed <- n:
	case <-p.done:
	}
}

// Reset forgets every pull under way: to be called after a reconnect, when the server knows them no more.
func (p *Puller) Reset() {
	select {
	case p.reset <- struct{}{}:
	default:
	}
}

// Stop ends pulling. What the server delivered already still comes through Deliver or Surplus until Stop returns. It may be called more than once.
func (p *Puller) Stop() {
	p.stopOnce.Do(func() { close(p.stop) })
	<-p.done
}

func (p *Puller) run(elections *nats.Subscription) {
	defer close(p.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-p.stop:
			_ = elections.Unsubscribe() // fails only on a closed connection
			p.drain()
			return
		case m := <-p.msgs:
			p.take(m)
		case n := <-p.freed:
			p.free += n
			if p.lingerAt.IsZero() {
				p.lingerAt = time.Now().Add(probeLinger)
			}
		case c := <-p.again:
			p.lanes[c.lane].consumer = c.consumer
		case <-p.reset:
			p.forget()
		case <-timer.C:
		}
		p.takeMore()
		p.act()
		timer.Reset(p.nextWake())
	}
}

// PullFor is how long a pull waits on a lane that has nothing: how much earlier than its lease began Delivery.Leased may be. It is short against the lease, of
// which that much is lost.
func PullFor(ackWait time.Duration) time.Duration { return min(ackWait/5, longestPull) }

// takeMore takes what waits already, so that decisions see all of it.
func (p *Puller) takeMore() {
	for {
		select {
		case m := <-p.msgs:
			p.take(m)
		case n := <-p.freed:
			p.free += n
			if p.lingerAt.IsZero() {
				p.lingerAt = time.Now().Add(probeLinger)
			}
		default:
			return
		}
	}
}

// drain stops deliveries and gives back what came: the server sends nothing after it has seen the unsubscribe, and all it sent before has arrived when
// it answers the flush. The client must know the subscriptions until then (Unsubscribe would make it throw away what is on its way).
func (p *Puller) drain() {
	for sub := range p.inboxes {
		_ = sub.Drain() // fails only on a closed connection
	}
	_ = p.nc.FlushTimeout(time.Second) // then the lease gives the rest back
	for {
		select {
		case m := <-p.msgs:
			if in := p.inboxes[m.Sub]; in != nil && isData(m) {
				p.held = append(p.held, heldMsg{msg: p.delivery(m, in), lane: p.lanes[in.lane]})
			}
		default:
			p.giveBackAll()
			return
		}
	}
}

func isData(m *nats.Msg) bool { return strings.HasPrefix(m.Subject, "run.") }

// take accounts for one message: a run, the server's word on a pull, or that of an election.
func (p *Puller) take(m *nats.Msg) {
	in := p.inboxes[m.Sub]
	switch {
	case in == nil:
		if consumer, ok := strings.CutPrefix(m.Subject, p.elections); ok {
			p.onElection(consumer)
		}
	case isData(m):
		p.onRun(m, in)
	case in.answers(m):
		p.onStatus(m, in)
	}
}

// onRun holds a run until it is decided what becomes of it.
func (p *Puller) onRun(m *nats.Msg, in *inbox) {
	l := p.lanes[in.lane]
	if in.waits() {
		in.took()
		switch in {
		case l.pull:
			if !in.waits() {
				p.more, l.park = true, min(4*l.park, mostParked)
			}
		case l.fence:
			p.answered()
		}
	}
	p.found = true
	// That the lanes above were found empty before this one was asked says nothing of what has been stored since.
	itsTurn := p.lowest && p.probing >= 0 && p.lanes[p.probing].Priority == l.Priority
	p.held = append(p.held, heldMsg{msg: p.delivery(m, in), lane: l, until: time.Now().Add(p.cfg.Hold), cleared: itsTurn})
}

// onElection forgets what a lane was asked before its consumer had a new leader, so that it is asked again.
func (p *Puller) onElection(consumer string) {
	for _, l := range p.lanes {
		if l.name == consumer {
			p.forgetPulls(l)
			l.retryAt = time.Time{}
		}
	}
}

// forgetPulls waits for no answer of a lane any more.
func (p *Puller) forgetPulls(l *lane) {
	if l.pull.waits() {
		p.retire(l.pull)
		l.pull = nil
	}
	if l.fence.waits() {
		p.retire(l.fence)
		l.fence = nil
		p.answered()
	}
}

// delivery says when a lease began at the earliest, and how old its consumer is. Of one that this puller does not know, it may be of this moment.
func (p *Puller) delivery(m *nats.Msg, in *inbox) Delivery {
	l := p.lanes[in.lane]
	meta, err := m.Metadata()
	switch {
	case err != nil:
		return Delivery{m, time.Time{}, in.asked} // whoever opens it will see
	case meta.Consumer != l.name:
		return Delivery{m, meta.Timestamp.Add(time.Hour), in.asked}
	}
	return Delivery{m, l.created, in.asked}
}

// answered notes that a lane that was asked by a fence has spoken, or never will.
func (p *Puller) answered() {
	if p.fences--; p.fences > 0 {
		return
	}
	for i := range p.held {
		p.held[i].cleared = p.held[i].cleared || p.held[i].fenced
	}
}

// onStatus takes the server's word on the pull of an inbox.
func (p *Puller) onStatus(m *nats.Msg, in *inbox) {
	l, status, text := p.lanes[in.lane], m.Header.Get("Status"), m.Header.Get("Description")
	gone := status == "503" || strings.Contains(text, "Consumer Deleted") || strings.Contains(text, "Stream Deleted")
	switch {
	case status == "100":
		return
	case gone: // who says so need not be who delivered
		p.forgetPulls(l)
		go p.restore(in.lane, l.Lane, l.name)
	default: // it comes from the leader of the consumer, in line with what it delivered
		if status == "408" && in.credit == in.batch {
			l.park = leastParked // nothing came by it
		}
		in.ended()
		if in == l.fence {
			p.answered()
		}
	}
	if status != "404" && status != "408" {
		l.retryAt = time.Now().Add(retryGone)
		p.cfg.Logger.Debug("pull ended", "lane", l.String(), "status", status, "description", text)
	}
}

// restored is the consumer of a lane after the one before was gone.
type restored struct {
	lane int
	consumer
}

// restore finds or makes the consumer of a lane whose consumer is gone, or says that its stream is.
func (p *Puller) restore(i int, l Lane, before string) {
	c, err := ensureConsumer(context.Background(), p.js, p.runs.Name, l, p.cfg.AckWait, true)
	switch {
	case err == nil:
		if c.name != before {
			p.cfg.Logger.Warn("consumer was gone and there is another", "lane", l.String(), "stream", p.runs.Name)
		}
		select {
		case p.again <- restored{i, c}:
		case <-p.done:
		}
	case errors.Is(err, jetstream.ErrStreamNotFound):
		p.cfg.Gone()
	default:
		p.cfg.Logger.Warn("cannot make consumer", "lane", l.String(), "error", err)
	}
}
