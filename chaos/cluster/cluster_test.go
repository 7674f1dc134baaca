package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waterclock-io/waterclock/chaos/build"
	"github.com/waterclock-io/waterclock/chaos/fault"
	"github.com/waterclock-io/waterclock/chaos/process"
	"github.com/waterclock-io/waterclock/internal/apitest"
	"github.com/waterclock-io/waterclock/internal/pgtest"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/proto/waterclock/v1/waterclockv1connect"
)

// newOptions builds what a cluster is made of.
func newOptions(t *testing.T) Options {
	t.Helper()
	bin := t.TempDir()
	o := Options{
		PostgresBin: pgtest.Require(t), Waterclock: filepath.Join(bin, "waterclock"), NATSServer: filepath.Join(bin, "nats-server"),
		Child: []string{"/bin/sh"}, Dir: t.TempDir(),
	}
	err := together(
		func() error { return build.Waterclock(t.Context(), o.Waterclock, build.TrueClock()) },
		func() error { return build.NATSServer(t.Context(), o.NATSServer, build.TrueClock()) },
	)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// client speaks to one API with the key of a namespace.
type client struct {
	jobs waterclockv1connect.JobServiceClient
	runs waterclockv1connect.RunServiceClient
}

func newClient(url, key string) client {
	with := apitest.WithKey(key)
	return client{waterclockv1connect.NewJobServiceClient(http.DefaultClient, url, with), waterclockv1connect.NewRunServiceClient(http.DefaultClient, url, with)}
}

// submit submits a job that is due now, once under its key.
func (c client) submit(ctx context.Context, key, queue string) (job, run string, err error) {
	input, err := structpb.NewValue(map[string]any{"argv": []any{"/bin/sh", "-c", "exit 0"}})
	if err != nil {
		return "", "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	res, err := c.jobs.SubmitJob(ctx, connect.NewRequest(&waterclockv1.SubmitJobRequest{IdempotencyKey: key, Spec: &waterclockv1.JobSpec{
		Kind: "exec", Queue: queue, Input: &waterclockv1.JobSpec_Json{Json: input},
		Schedule: &waterclockv1.Schedule{Kind: &waterclockv1.Schedule_Once{Once: &waterclockv1.Once{At: timestamppb.Now()}}},
	}}))
	if err != nil {
		return "", "", err
	}
	return res.Msg.GetJob().GetJobId(), res.Msg.GetRun().GetRunId(), nil
}

// ends waits for the end of a run.
func (c client) ends(ctx context.Context, job, run string) (state waterclockv1.RunState, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	stream, err := c.runs.WatchRun(ctx, connect.NewRequest(&waterclockv1.WatchRunRequest{JobId: job, RunId: run}))
	if err != nil {
		return state, err
	}
	for stream.Receive() {
		state = stream.Msg().GetRun().GetState()
	}
	return state, errors.Join(stream.Err(), stream.Close())
}

// work submits jobs on one API and sees them end on the other.
func work(t *testing.T, c *Cluster, name string) {
	t.Helper()
	apis := c.APIs()
	for i, at := range []struct{ namespace, queue string }{{"default", ""}, {"default", OwnQueue}, {"alpha", ""}, {"beta", ""}} {
		key := c.Keys()[at.namespace]
		in, out := newClient(apis[i%2], key), newClient(apis[(i+1)%2], key)
		job, run, err := in.submit(t.Context(), fmt.Sprintf("%s-%d", name, i), at.queue)
		if err != nil {
			t.Fatalf("%s: submit in %+v: %v", name, at, err)
		}
		if state, err := out.ends(t.Context(), job, run); err != nil || state != waterclockv1.RunState_RUN_STATE_SUCCEEDED {
			t.Fatalf("%s: the run in %+v ended as %s: %v", name, at, state, err)
		}
	}
}

// load keeps the first API busy, so that its failpoints are reached, until its result is called.
func load(t *testing.T, c *Cluster) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n, api := 0, newClient(c.APIs()[0], c.Keys()["default"]); ctx.Err() == nil; n++ {
			_, _, _ = api.submit(ctx, fmt.Sprintf("load-%d", n), "") // refused while something is away
			_ = fault.Wait(ctx, 50*time.Millisecond)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// chosen is one of the faults of a kind, by its place among them, and how it is to end.
type chosen struct {
	place int
	err   error
}

// bring brings one fault of each kind, all at once.
func bring(t *testing.T, c *Cluster, kinds map[string]chosen) {
	t.Helper()
	var all sync.WaitGroup
	places := map[string]int{}
	for i, f := range c.Faults() {
		want, ok := kinds[f.Kind]
		place := places[f.Kind]
		places[f.Kind]++
		if !ok || place != want.place {
			continue
		}
		delete(kinds, f.Kind)
		all.Go(func() {
			from := time.Now()
			if err := f.Bring(t.Context(), rand.New(rand.NewPCG(uint64(i), 1))); !errors.Is(err, want.err) { //nolint:gosec // small
				t.Errorf("%s: %v, want %v", f.Kind, err, want.err)
			}
			t.Logf("%s took %s, turns included", f.Kind, time.Since(from).Round(time.Millisecond))
		})
	}
	all.Wait()
	if len(kinds) > 0 {
		t.Errorf("not offered: %v", kinds)
	}
}

func TestClusterWorksAndComesThroughFaultsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	began := time.Now()
	o := newOptions(t)
	t.Logf("built %s after the start of the test", time.Since(began).Round(time.Millisecond))
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	stop := func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Error("stop:", err)
		}
	}
	t.Cleanup(stop) // again, as a rule
	t.Logf("up %s after the start of the test", time.Since(began).Round(time.Millisecond))
	work(t, c, "before")
	t.Logf("worked %s after the start of the test", time.Since(began).Round(time.Millisecond))

	// One fault of each group, on different processes: several at once, as those that hit the same thing wait for each other.
	end := load(t, c)
	bring(t, c, map[string]chosen{
		"kill -9 nats node": {0, nil}, "sql restarted": {0, nil}, "stop recorder": {1, nil}, "cut link to nats": {2, nil},
		"clock skew": {6, fault.ErrNotLanded}, // these binaries have a true clock
	})
	bring(t, c, map[string]chosen{"kill -9 recorder": {0, nil}, "consumer deleted": {0, nil}, "failpoint submit.prepared": {0, nil}, "terminate and restart": {0, nil}})
	end()
	work(t, c, "after")
	t.Logf("worked again %s after the start of the test", time.Since(began).Round(time.Millisecond))

	// It ends as well where a fault is left behind.
	if err := c.Process("executor-3").Stop(); err != nil {
		t.Error(err)
	}
	for _, l := range c.members[0].links() {
		l.Cut()
	}
	stop()
	t.Logf("stopped %s after the start of the test", time.Since(began).Round(time.Millisecond))
	for _, p := range c.Processes() {
		if p.Running() {
			t.Errorf("%s runs after the end", p.Name())
		}
	}
	if left, err := process.Find("environ", process.Mark(o.Dir)); len(left) > 0 || err != nil {
		t.Errorf("processes are left: %v, %v", left, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if _, gone := os.Stat(c.sql.folder.path); err != nil || strings.Contains(string(mounts), c.sql.folder.path) || !errors.Is(gone, fs.ErrNotExist) {
		t.Errorf("the folder of PostgreSQL is left: %v, %v", gone, err)
	}
	for _, log := range c.LogFiles() {
		if info, err := os.Stat(log); err != nil || info.Size() == 0 {
			t.Errorf("log %s: %v", log, err)
		}
	}
}

func TestStartThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	o := Options{PostgresBin: pgtest.Require(t), Waterclock: "/bin/false", NATSServer: "/bin/false", Dir: t.TempDir()}
	_, err := Start(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "nats-1") || !strings.Contains(err.Error(), "waterclock migrate up") {
		t.Errorf("start without binaries: %v", err)
	}
	if left, err := process.Find("environ", process.Mark(o.Dir)); len(left) > 0 || err != nil {
		t.Errorf("processes are left: %v, %v", left, err)
	}
}
