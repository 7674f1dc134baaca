// Package natssubmit takes jobs from clients that speak NATS and not HTTP.
//
// Those who want an answer send a request to submit.<namespace>. Those who only publish do so to enqueue.<namespace>, whose messages are kept in a stream
// until the job is stored; what is invalid goes to a dead-letter subject with its reason. Both go through package submit, so that the same rules hold as
// over HTTP. Who may publish to which namespace is the business of the NATS server's permissions. Package cmd starts it; topology is that of streams.
package natssubmit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/api/rpcerr"
	"github.com/waterclock-io/waterclock/api/submit"
	"github.com/waterclock-io/waterclock/internal/failpoint"
	"github.com/waterclock-io/waterclock/job"
	"github.com/waterclock-io/waterclock/job/fielderr"
)

// Submitter stores jobs; *submit.Service is one.
type Submitter interface {
	Submit(ctx context.Context, reqs []submit.Request) []submit.Result
}

// Config is what a Server needs.
type Config struct {
	Conn   *nats.Conn
	JS     jetstream.JetStream
	Submit Submitter
	Errors *rpcerr.Table
	// RequestSubjects is the pattern of requests, such as "submit.*"; the last token is the namespace.
	RequestSubjects string
	// Stream holds what was published to "enqueue.<namespace>"; it must exist, with work-queue retention.
	Stream string
	// DeadSubject is where a message goes that cannot be taken, such as "dead.submit.<namespace>"; the namespace is empty where it is not one.
	DeadSubject func(namespace string) string
	// ReplyPrefixes are the beginnings that a reply subject may have, "_INBOX." and "_R_." where empty. An answer goes to no other subject: a requester
	// could else make the server publish for it where it may not publish itself.
	ReplyPrefixes []string
	Log           *slog.Logger
}

const (
	queueGroup = "waterclock-submit"
	durable    = "submit"
	// maxRequests bounds the requests that are worked on at once; more wait in the client, up to the pending limits, and then are dropped by it.
	maxRequests     = 512
	pendingMessages = 8192
	pendingBytes    = 64 << 20
	requestTimeout  = 15 * time.Second
	// maxBody is the size of what is looked at at all: a job with the largest payload as escaped text, and room.
	maxBody = 4 << 20
)

// Server takes submits. Start and Stop may be called more than once; a stopped server cannot be started again.
type Server struct {
	cfg   Config
	slots chan struct{}

	mu      sync.Mutex
	cancel  context.CancelCauseFunc
	sub     *nats.Subscription
	working sync.WaitGroup
}

// flushWithin is how long NATS may take to confirm the subscription before Start goes on without.
const flushWithin = 5 * time.Second

var errStopping = errors.New("server is stopping")

// New returns a Server that does nothing yet.
func New(cfg Config) *Server {
	if len(cfg.ReplyPrefixes) == 0 {
		cfg.ReplyPrefixes = []string{"_INBOX.", "_R_."}
	}
	return &Server{cfg: cfg, slots: make(chan struct{}, maxRequests)}
}

// Start begins to take submits, and returns once requests are answered; where NATS is away just then they are when it is back. It works until Stop.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		return nil
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	sub, err := s.cfg.Conn.QueueSubscribe(s.cfg.RequestSubjects, queueGroup, func(m *nats.Msg) { s.onRequest(ctx, m) })
	if err != nil {
		cancel(err)
		return fmt.Errorf("subscribe to %s: %w", s.cfg.RequestSubjects, err)
	}
	if err := sub.SetPendingLimits(pendingMessages, pendingBytes); err != nil {
		cancel(err)
		return errors.Join(fmt.Errorf("subscribe to %s: %w", s.cfg.RequestSubjects, err), sub.Unsubscribe())
	}
	if err := s.cfg.Conn.FlushTimeout(flushWithin); err != nil { // "closed" is also what it says where the connection is only lost
		s.cfg.Log.Warn("requests are answered when NATS is back", "error", err)
	}
	s.sub, s.cancel = sub, cancel
	s.working.Go(func() { s.consume(ctx) })
	return nil
}

// Stop takes nothing more and waits for what is under way.
func (s *Server) Stop() {
	s.mu.Lock()
	cancel, sub := s.cancel, s.sub
	if cancel == nil {
		s.cancel = func(error) {} // never to be started
	}
	s.mu.Unlock()
	if sub != nil {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
			s.cfg.Log.Warn("cannot unsubscribe from submits", "error", err)
		}
	}
	if cancel != nil {
		cancel(errStopping)
	}
	s.working.Wait()
}

// onRequest answers one request. It holds the subscription up when too many are under way.
func (s *Server) onRequest(ctx context.Context, m *nats.Msg) {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	s.working.Go(func() {
		defer func() { <-s.slots }()
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		s.answer(ctx, m)
	})
}

func (s *Server) answer(ctx context.Context, m *nats.Msg) {
	r, asJSON, err := request(m.Subject, m.Header, m.Data)
	var res submit.Result
	if err == nil {
		res = s.cfg.Submit.Submit(ctx, []submit.Request{r})[0]
		err = res.Err
	}
	if err != nil && s.cfg.Errors.Unexpected(err) {
		s.cfg.Log.Error("submit failed", "subject", m.Subject, "error", err)
	}
	if m.Reply == "" {
		// Nobody is told, so it must at least be found. Without a stream there is no sequence.
		if err != nil {
			if err := s.deadLetter(ctx, refused{subject: m.Subject, namespace: r.Namespace, body: m.Data, err: err}); err != nil {
				s.cfg.Log.Error("submit without reply subject is lost", "subject", m.Subject, "error", err)
			}
		}
		return
	}
	if !s.mayReply(m.Reply) {
		s.cfg.Log.Warn("request with a reply subject that is no inbox", "subject", m.Subject, "reply", m.Reply)
		return
	}
	failpoint.Here(failpoint.SubmitReplying)
	out, err := reply(s.cfg.Errors, &res, err, asJSON)
	if err == nil {
		out.Subject = m.Reply
		err = s.cfg.Conn.PublishMsg(out)
	}
	if err != nil {
		s.cfg.Log.Warn("answer to a submit not sent", "subject", m.Subject, "error", err)
	}
}

func (s *Server) mayReply(subject string) bool {
	for _, p := range s.cfg.ReplyPrefixes {
		if strings.HasPrefix(subject, p) {
			return true
		}
	}
	return false
}

var token = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// namespaceOf returns the last token of a subject, if it can be a namespace.
func namespaceOf(subject string) (string, error) {
	ns := subject[strings.LastIndexByte(subject, '.')+1:]
	if ns == job.SharedNamespace || !token.MatchString(ns) {
		return "", &fielderr.FieldError{Field: "subject", Given: subject, Reason: "names no namespace", Allowed: "letters, digits, _ and -, at most 64, after the last dot"}
	}
	return ns, nil
}
