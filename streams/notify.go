package streams

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
)

// What is said here goes over core NATS: nobody stores it, and losing it costs freshness, never a run.

// Notifier publishes the small messages between roles. All methods are best effort and do not block.
type Notifier struct {
	nc  *nats.Conn
	log *slog.Logger
}

// NewNotifier returns a Notifier on a connection.
func NewNotifier(nc *nats.Conn, log *slog.Logger) *Notifier { return &Notifier{nc, log} }

// Wake tells the owners of shards of rows that are due soon.
func (n *Notifier) Wake(shard int32, w *wirev1.Wake) { n.send(wakeSubject(shard), w) }

// Recorded tells of hand-overs that ended or changed.
func (n *Notifier) Recorded(r *wirev1.Recorded) { n.send(RecordedSubject, r) }

// Ask is Recorded with a question: answered is closed when a planner says what OnRecorded tells. Where nobody says so it never is. forget must be called.
func (n *Notifier) Ask(r *wirev1.Recorded) (answered <-chan struct{}, forget func()) {
	yes := make(chan struct{})
	var once sync.Once
	inbox := n.nc.NewInbox()
	sub, err := n.nc.Subscribe(inbox, func(m *nats.Msg) {
		if m.Header.Get("Status") == "" { // else it is the server, which says that nobody listens
			once.Do(func() { close(yes) })
		}
	})
	if err != nil {
		n.log.Debug("an answer cannot be listened for", "error", err)
		n.Recorded(r)
		return yes, func() {}
	}
	n.sendFor(RecordedSubject, inbox, r)
	return yes, func() { _ = sub.Unsubscribe() } // fails only on a closed connection
}

// Heartbeat tells who executes what.
func (n *Notifier) Heartbeat(h *wirev1.Heartbeat) { n.send(heartbeatSubject(h.Executor), h) }

// RollCall asks every executor for a heartbeat now.
func (n *Notifier) RollCall() { n.send(RollCallSubject, &wirev1.Control{}) }

// Left tells the planners that one of them has given its shards away.
func (n *Notifier) Left() { n.send(LeftSubject, &wirev1.Control{}) }

// Control orders an executor to stop a hand-over; every executor where its name is empty.
func (n *Notifier) Control(executor string, run uuid.UUID, dispatch int64, reason string) {
	subject := controlAll
	if executor != "" {
		subject = controlSubject(executor)
	}
	n.send(subject, &wirev1.Control{RunId: run[:], Dispatch: dispatch, Reason: reason})
}

func (n *Notifier) send(subject string, m proto.Message) { n.sendFor(subject, "", m) }

func (n *Notifier) sendFor(subject, reply string, m proto.Message) {
	b, err := proto.Marshal(m)
	if err != nil {
		n.log.Error("cannot encode a notice", "subject", subject, "error", err)
		return
	}
	if err := n.nc.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: b}); err != nil {
		n.log.Debug("notice not sent", "subject", subject, "error", err)
	}
}

// OnWake calls f for each wake of a shard.
func OnWake(nc *nats.Conn, shard int32, f func(*wirev1.Wake)) (*nats.Subscription, error) {
	return listen(nc, wakeSubject(shard), f)
}

// Each makes a listener of a function that does not look at what is recorded.
func Each(f func()) func(*wirev1.Recorded, func()) { return func(*wirev1.Recorded, func()) { f() } }

// OnRecorded calls f for each Recorded. With answer it tells who asked, of a run that was cancelled, that its message will not be published any more: it is in RUNS,
// was, or never will be; and of one that is to wait, that no executor gets it from now on.
func OnRecorded(nc *nats.Conn, f func(r *wirev1.Recorded, answer func())) (*nats.Subscription, error) {
	sub, err := nc.Subscribe(RecordedSubject, func(m *nats.Msg) {
		r := new(wirev1.Recorded)
		if proto.Unmarshal(m.Data, r) == nil {
			f(r, func() {
				if m.Reply != "" {
					_ = m.Respond(nil) // who asked waits for a time, too
				}
			})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", RecordedSubject, err)
	}
	return sub, nil
}

// OnHeartbeat calls f for each heartbeat of an executor.
func OnHeartbeat(nc *nats.Conn, f func(*wirev1.Heartbeat)) (*nats.Subscription, error) {
	return listen(nc, heartbeatPattern, f)
}

// OnRollCall calls f when a heartbeat is asked for.
func OnRollCall(nc *nats.Conn, f func()) (*nats.Subscription, error) {
	return listen(nc, RollCallSubject, func(*wirev1.Control) { f() })
}

// OnLeft calls f when a planner has given its shards away.
func OnLeft(nc *nats.Conn, f func()) (*nats.Subscription, error) {
	return listen(nc, LeftSubject, func(*wirev1.Control) { f() })
}

// OnControl calls f for each order to this executor, or to all.
func OnControl(nc *nats.Conn, executor string, f func(*wirev1.Control)) ([]*nats.Subscription, error) {
	own, err := listen(nc, controlSubject(executor), f)
	if err != nil {
		return nil, err
	}
	all, err := listen(nc, controlAll, f)
	if err != nil {
		_ = own.Unsubscribe() // the connection is failing anyway
		return nil, err
	}
	return []*nats.Subscription{own, all}, nil
}

// listen decodes; what cannot be read is passed over, because nothing depends on it.
func listen[M any, P interface {
	*M
	proto.Message
}](nc *nats.Conn, subject string, f func(P)) (*nats.Subscription, error) {
	sub, err := nc.Subscribe(subject, func(m *nats.Msg) {
		v := P(new(M))
		if proto.Unmarshal(m.Data, v) == nil {
			f(v)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	return sub, nil
}
