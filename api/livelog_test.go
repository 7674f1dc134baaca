package api_test

import (
	"testing"

	"connectrpc.com/connect"

	"github.com/waterclock-io/waterclock/internal/check"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	wirev1 "github.com/waterclock-io/waterclock/proto/waterclock/wire/v1"
)

func TestLiveLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.add(&waterclockv1.JobSpec{Kind: "exec"}).GetJob().GetJobId()
	row := w.hand(id)
	read := func(follow bool) (text string, err error) {
		s, err := w.runs("acme").ReadRunLog(t.Context(), connect.NewRequest(&waterclockv1.ReadRunLogRequest{JobId: id, Follow: follow}))
		check.OK(t, err)
		for s.Receive() {
			text += string(s.Msg().GetData())
		}
		return text, s.Err()
	}
	set := func(m ...*wirev1.Live) {
		w.ear.mu.Lock()
		defer w.ear.mu.Unlock()
		w.ear.logs[row.RunID] = m
	}
	piece := func(text string) *wirev1.Live { return &wirev1.Live{Attempt: 1, Stream: 1, Data: []byte(text)} }
	set(piece("a"), &wirev1.Live{Attempt: 1, Fraction: 0.5}, piece("b"))
	if got, err := read(false); got != "ab" || err != nil {
		t.Errorf("what there is so far: %q %v", got, err)
	}
	set(piece("a"), piece("b"), piece("c"), &wirev1.Live{Attempt: 1, End: true})
	if got, err := read(true); got != "abc" || err != nil {
		t.Errorf("followed to the end: %q %v", got, err)
	}
	s, err := w.runs("acme").ReadRunLog(t.Context(), connect.NewRequest(&waterclockv1.ReadRunLogRequest{JobId: id, Attempt: 7}))
	check.OK(t, err)
	if s.Receive() || violation(s.Err()).GetField() != "attempt" {
		t.Errorf("an attempt that was never made: %v", s.Err())
	}
}
