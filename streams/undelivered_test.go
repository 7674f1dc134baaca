package streams

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waterclock-io/waterclock/internal/check"
)

// meddled is a JetStream in which something happens right before a message is deleted, or right after one is looked for.
type meddled struct {
	jetstream.JetStream
	deletes, looked func()
}

func (m meddled) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	s, err := m.JetStream.Stream(ctx, name)
	return meddledStream{s, m}, err //nolint:wrapcheck // as it was
}

type meddledStream struct {
	jetstream.Stream
	by meddled
}

func (s meddledStream) DeleteMsg(ctx context.Context, seq uint64) error {
	s.by.deletes()
	return s.Stream.DeleteMsg(ctx, seq) //nolint:wrapcheck // as it was
}

func (s meddledStream) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	defer s.by.looked()
	return s.Stream.GetLastMsgForSubject(ctx, subject) //nolint:wrapcheck // as it was
}

func TestDeleteUndelivered(t *testing.T) {
	t.Parallel()
	deliver := func(r *rig, runs Runs) {
		info, err := findConsumer(t.Context(), r.js, runs.Name, laneA)
		check.OK(t, err)
		c, err := r.js.Consumer(t.Context(), runs.Name, info.Name)
		check.OK(t, err)
		_, err = c.Next(jetstream.FetchMaxWait(check.Patience))
		check.OK(t, err)
	}
	lose := func(r *rig, runs Runs) {
		info, err := findConsumer(t.Context(), r.js, runs.Name, laneA)
		check.OK(t, err)
		check.OK(t, r.js.DeleteConsumer(t.Context(), runs.Name, info.Name))
	}
	nothing := func(*rig, Runs) {}
	for name, c := range map[string]struct {
		absent        bool
		before, midst func(*rig, Runs)
		want          Fate
	}{
		"not there":                    {true, nothing, nothing, Absent},
		"not delivered":                {false, nothing, nothing, TakenOut},
		"delivered":                    {false, deliver, nothing, Delivered},
		"delivered in the same moment": {false, nothing, deliver, Doubtful},
		"its consumer is gone":         {false, lose, nothing, Doubtful},
		"its consumer goes":            {false, nothing, lose, Doubtful},
		"its consumer was made anew": {false, func(r *rig, runs Runs) {
			lose(r, runs)
			check.OK(t, EnsureConsumer(t.Context(), r.js, runs, laneA, time.Minute))
		}, nothing, Doubtful},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			runs := r.ensure()
			check.OK(t, EnsureConsumer(t.Context(), r.js, runs, laneA, time.Minute))
			tm := out(time.Now())
			if !c.absent {
				r.put(&tm)
			}
			c.before(r, runs)
			got, err := DeleteUndelivered(t.Context(), meddled{r.js, func() { c.midst(r, runs) }, func() {}}, runs, tm)
			check.OK(t, err)
			if got != c.want {
				t.Errorf("its fate is %d, want %d", got, c.want)
			}
			if there := r.stored(&tm); there != (c.want == Delivered) {
				t.Errorf("it is there: %v", there)
			}
		})
	}
}

// In a cluster the consumer may be led by another server than the stream, which is asked whether it keeps up.
func TestDeleteUndeliveredInACluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	runs := c.ensure()
	s, err := c.js.Stream(t.Context(), runs.Name)
	check.OK(t, err)
	leader := s.CachedInfo().Cluster.Leader
	here, elsewhere := 0, 0
	for n := 0; n < 50 && (here == 0 || elsewhere == 0); n++ {
		lane := laneA
		lane.Queue = "q" + strconv.Itoa(n)
		check.OK(t, EnsureConsumer(t.Context(), c.js, runs, lane, time.Minute))
		tm := out(time.Now())
		tm.Queue = lane.Queue
		_, err := c.js.Publish(t.Context(), RunSubject(lane, tm.RunID, tm.Dispatch), []byte("a run"))
		check.OK(t, err)
		got, err := DeleteUndelivered(t.Context(), c.js, runs, tm)
		check.OK(t, err)
		if got != TakenOut {
			t.Errorf("lane %s: its fate is %d", lane, got)
		}
		info, err := findConsumer(t.Context(), c.js, runs.Name, lane)
		check.OK(t, err)
		if info.Cluster.Leader == leader {
			here++
		} else {
			elsewhere++
		}
	}
	if here == 0 || elsewhere == 0 {
		t.Errorf("%d consumers are led by the leader of the stream, %d by another", here, elsewhere)
	}
}

func TestKeepsUp(t *testing.T) {
	t.Parallel()
	replicas := []*jetstream.PeerInfo{
		{Name: "up", Current: true}, {Name: "behind", Current: true, Lag: 1}, {Name: "catching up"}, {Name: "away", Current: true, Offline: true},
	}
	for name, want := range map[string]bool{"up": true, "behind": false, "catching up": false, "away": false, "unknown": false} {
		if got := keepsUp(&jetstream.ClusterInfo{Leader: "leader", Replicas: replicas}, name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
