package streams

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// inbox is where the answers to one pull at a time come.
//
// A delivery does not say which pull it answers, only to which subscription it came. An inbox has one of its own, and asks again only when what it asked before
// has come to its end, by as many messages as it asked for or by the server's word behind them. So a delivery answers the last pull, and was leased to it after
// that was asked: however long it lay since, in a server, on a link or in this process, its lease is no younger. One whose pull came to no end that is sure is
// retired, and there is another: what still comes to it is as old as what it asked last.
type inbox struct {
	lane    int
	sub     *nats.Subscription
	prefix  string    // of its subjects
	token   string    // ends the subject of the pull under way; empty: there is none
	asked   time.Time // when the last pull was sent
	batch   int       // messages that it asked for
	credit  int       // of them, not delivered
	giveUp  time.Time // when an answer to the pull under way is not waited for any more
	retired time.Time
}

// openInbox makes an inbox for a lane.
func (p *Puller) openInbox(lane int) (*inbox, error) {
	p.inboxSeq++
	in := &inbox{lane: lane, prefix: p.prefix + strconv.FormatUint(p.inboxSeq, 36) + "."}
	var err error
	if in.sub, err = p.nc.ChanSubscribe(in.prefix+"*", p.msgs); err != nil {
		return nil, fmt.Errorf("subscribe to deliveries: %w", err)
	}
	p.inboxes[in.sub] = in
	return in, nil
}

// waits tells whether a pull of the inbox is under way; the inbox may be missing.
func (in *inbox) waits() bool { return in != nil && in.token != "" }

// took accounts for a delivery that the pull under way asked for.
func (in *inbox) took() {
	if in.credit--; in.credit <= 0 {
		in.ended()
	}
}

// ended notes that the pull under way has come to its end.
func (in *inbox) ended() { in.token, in.credit = "", 0 }

// answers tells whether a message of the server is its word on the pull under way.
func (in *inbox) answers(m *nats.Msg) bool {
	token, ours := strings.CutPrefix(m.Subject, in.prefix)
	return ours && token != "" && token == in.token
}

// retire ends the use of an inbox whose pull may still be answered. What comes to it is taken for as long as its lease may last.
func (p *Puller) retire(in *inbox) {
	in.ended()
	in.retired = time.Now()
	p.retired = append(p.retired, in)
}

// closeRetired ends the subscriptions of inboxes to which nothing can come that is worth taking.
func (p *Puller) closeRetired(now time.Time) {
	for len(p.retired) > 0 && now.Sub(p.retired[0].retired) > p.cfg.AckWait {
		_ = p.retired[0].sub.Unsubscribe() // fails only on a closed connection
		delete(p.inboxes, p.retired[0].sub)
		p.retired = p.retired[1:]
	}
}
