package streams

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waterclock-io/waterclock/internal/check"
)

// Taking back costs one question to open a stream, however many runs it is done for; a stream that is made anew is found.
func TestReuse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	js := Reuse(r.js)
	take := func(runs Runs) {
		t.Helper()
		opened := make(chan string, 100)
		r.subscribe(r.nc, "$JS.API.STREAM.INFO."+runs.Name, func(m *nats.Msg) { opened <- m.Subject })
		check.OK(t, r.nc.Flush())
		for range 3 {
			tm := out(time.Now())
			r.put(&tm)
			seq, found, err := FindRun(t.Context(), js, runs, RunSubject(laneA, tm.RunID, tm.Dispatch))
			if err != nil || !found {
				t.Fatalf("found: %v, %v", found, err)
			}
			check.OK(t, DeleteRun(t.Context(), js, runs, seq))
		}
		check.Receive(t, "the stream is opened", opened)
		check.OK(t, r.nc.Flush())
		if len(opened) != 0 {
			t.Errorf("%s was opened %d times more", runs.Name, len(opened))
		}
	}
	old := r.ensure()
	take(old)
	check.OK(t, r.js.DeleteStream(t.Context(), old.Name))
	if _, _, err := FindRun(t.Context(), js, old, "run.x"); !Gone(err) {
		t.Errorf("a look into a stream that is gone: %v", err)
	}
	take(r.ensure())
}
