package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/waterclock-io/waterclock/chaos/checker"
)

// webGroup is the first number of a call in place of a process group; no process has one as high.
const webGroup = 1 << 30

// webhook is the service that jobs of the kind http call. It writes the lines that a command would, and does what a careful service does: a hand-over that is
// older than one it has seen is refused, as nobody else can refuse it: an executor that was stopped in the midst of sending sends the rest when it goes on.
type webhook struct {
	url    string
	server *http.Server
	out    *os.File
	done   chan error

	mu      sync.Mutex
	highest map[string]int64 // dispatch by run
	calls   int
}

func newWebhook(file string) (*webhook, error) {
	out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("file of the webhook: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for the webhook: %w", err), out.Close())
	}
	w := &webhook{url: "http://" + l.Addr().String(), out: out, done: make(chan error, 1), highest: map[string]int64{}}
	w.server = &http.Server{Handler: http.HandlerFunc(w.serve), ReadHeaderTimeout: 10 * time.Second}
	go func() { w.done <- w.server.Serve(l) }()
	return w, nil
}

// close ends what is still being served.
func (w *webhook) close() error {
	err := w.server.Close()
	if serve := <-w.done; !errors.Is(serve, http.ErrServerClosed) {
		err = errors.Join(err, serve)
	}
	return errors.Join(err, w.out.Close())
}

// webURL asks for a call of which the first attempts fail with 500, or take so long that they time out.
func webURL(base string, number int, w work) string {
	q := url.Values{"number": {strconv.Itoa(number)}, "work": {w.long.String()}, "fails": {strconv.Itoa(w.fails)}, "slow": {strconv.Itoa(w.slow)}}
	return base + "/?" + q.Encode()
}

// slowCall is how long a call takes that is to time out: longer than its limit, and shorter than any lease, so that not even a stopped executor, which cannot
// hang up, leaves it behind for another to overlap with.
const (
	slowCall  = 1800 * time.Millisecond
	slowLimit = 800 * time.Millisecond
)

func (w *webhook) serve(res http.ResponseWriter, req *http.Request) {
	l, long, fails, slow, err := readCall(req)
	if err != nil {
		http.Error(res, err.Error(), http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	older := l.Dispatch < w.highest[l.RunID]
	if !older {
		w.highest[l.RunID] = l.Dispatch
		l.Group = webGroup + w.calls
		w.calls++
	}
	w.mu.Unlock()
	if older {
		http.Error(res, "a later hand-over was here", http.StatusConflict)
		return
	}
	if int(l.Attempt) <= slow {
		long = slowCall
	}
	switch err := w.work(req.Context(), l, long); {
	case err != nil:
		http.Error(res, err.Error(), http.StatusInternalServerError) // to whom it still concerns
	case int(l.Attempt) <= fails:
		http.Error(res, "fails as it was told to", http.StatusInternalServerError)
	}
}

func readCall(req *http.Request) (l checker.Line, long time.Duration, fails, slow int, err error) {
	q := req.URL.Query()
	number, errNumber := strconv.Atoi(q.Get("number"))
	attempt, errAttempt := strconv.ParseInt(req.Header.Get("Waterclock-Attempt"), 10, 32)
	dispatch, errDispatch := strconv.ParseInt(req.Header.Get("Waterclock-Dispatch"), 10, 64)
	long, errLong := time.ParseDuration(q.Get("work"))
	fails, errFails := strconv.Atoi(q.Get("fails"))
	slow, errSlow := strconv.Atoi(q.Get("slow"))
	l = checker.Line{RunID: req.Header.Get("Waterclock-Run-Id"), Attempt: int32(attempt), Dispatch: dispatch, Number: number}
	if l.RunID == "" {
		err = errors.New("header Waterclock-Run-Id is missing")
	}
	return l, long, fails, slow, errors.Join(err, errNumber, errAttempt, errDispatch, errLong, errFails, errSlow)
}

// work writes the lines of a call, the last one only if the caller is there to the end.
func (w *webhook) work(ctx context.Context, l checker.Line, long time.Duration) error {
	call := &worker{out: w.out, line: l}
	if err := call.begin(ctx, long); err != nil {
		return err
	}
	return call.write(checker.End)
}
