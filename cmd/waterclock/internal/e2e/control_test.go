package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waterclock-io/waterclock/internal/check"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/streams"
)

func every(d time.Duration) *waterclockv1.Schedule {
	return &waterclockv1.Schedule{Kind: &waterclockv1.Schedule_Every{Every: &waterclockv1.Every{Period: durationpb.New(d)}}}
}

func command(argv ...any) *waterclockv1.JobSpec {
	v, err := structpb.NewValue(map[string]any{"argv": argv})
	if err != nil {
		panic(err) // of constants
	}
	return &waterclockv1.JobSpec{Kind: "exec", Input: &waterclockv1.JobSpec_Json{Json: v}}
}

// What a user does to jobs and runs takes effect, on a real dev with real commands.
func TestControl(t *testing.T) {
	p := start(t, "dev", "--ephemeral", "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0")

	t.Run("cancel stops the command and all it started", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "pids")
		id := submitMany(t, p.jobs(), []*waterclockv1.JobSpec{command("sh", "-c", "setsid sleep 300 & echo $! >"+file+"; echo $$ >>"+file+"; wait")})[0]
		waitLines(t, file, 2, 10*time.Second)
		if _, err := p.runs().CancelRun(t.Context(), connect.NewRequest(&waterclockv1.CancelRunRequest{JobId: id})); err != nil {
			t.Fatal(err)
		}
		run := outcomes(t, p.jobs(), []string{id}, 20*time.Second)[id]
		if run.State != waterclockv1.RunState_RUN_STATE_CANCELLED {
			t.Errorf("run is %s", run.State)
		}
		b, err := os.ReadFile(file)
		check.OK(t, err)
		for _, word := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(word)
			check.OK(t, err)
			gone(t, pid)
		}
	})

	t.Run("nothing starts while a job is paused", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "notes")
		s := command("sh", "-c", "echo x >>"+file)
		s.Schedule = every(time.Second)
		id := submitMany(t, p.jobs(), []*waterclockv1.JobSpec{s})[0]
		waitLines(t, file, 2, 10*time.Second)
		if _, err := p.jobs().PauseJob(t.Context(), connect.NewRequest(&waterclockv1.PauseJobRequest{JobId: id, Note: "test"})); err != nil {
			t.Fatal(err)
		}
		settled := len(runsOf(t, p, id)) // what ran as the pause was answered may still be recorded
		pausedAt := time.Now()
		<-time.After(2500 * time.Millisecond)
		if n := len(runsOf(t, p, id)); n > settled+1 {
			t.Errorf("%d runs at the pause, %d after %s of it", settled, n, time.Since(pausedAt))
		}
		if _, err := p.jobs().ResumeJob(t.Context(), connect.NewRequest(&waterclockv1.ResumeJobRequest{JobId: id})); err != nil {
			t.Fatal(err)
		}
		before := lines(t, file)
		waitLines(t, file, before+2, 10*time.Second)
		skipped := 0
		for _, r := range runsOf(t, p, id) {
			if r.State == waterclockv1.RunState_RUN_STATE_SKIPPED && r.Outcome.GetReason() == "paused" {
				skipped++
			}
		}
		if skipped == 0 {
			t.Error("no occurrence is recorded as skipped by the pause")
		}
		if _, err := p.jobs().DeleteJob(t.Context(), connect.NewRequest(&waterclockv1.DeleteJobRequest{JobId: id})); err != nil {
			t.Fatal(err)
		}
		at := lines(t, file)
		<-time.After(2 * time.Second)
		if n := lines(t, file); n > at+1 {
			t.Errorf("%d runs started after the delete", n-at)
		}
	})

	t.Run("an update changes what has not started", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "notes")
		s := command("sh", "-c", "echo old >>"+file)
		s.Schedule = &waterclockv1.Schedule{Kind: &waterclockv1.Schedule_Once{Once: &waterclockv1.Once{Delay: durationpb.New(time.Hour)}}}
		id := submitMany(t, p.jobs(), []*waterclockv1.JobSpec{s})[0]
		now := command("sh", "-c", "echo new >>"+file)
		now.Schedule = &waterclockv1.Schedule{Kind: &waterclockv1.Schedule_Once{Once: &waterclockv1.Once{}}}
		res, err := p.jobs().UpdateJob(t.Context(), connect.NewRequest(&waterclockv1.UpdateJobRequest{JobId: id, Version: 1, Spec: now}))
		if err != nil || res.Msg.Job.Version != 2 {
			t.Fatalf("update: %v", err)
		}
		_, err = p.jobs().UpdateJob(t.Context(), connect.NewRequest(&waterclockv1.UpdateJobRequest{JobId: id, Version: 1, Spec: now}))
		if connect.CodeOf(err) != connect.CodeAborted {
			t.Errorf("an update of an old version: %v", err)
		}
		checkFinal(t, p, outcomes(t, p.jobs(), []string{id}, 10*time.Second))
		b, err := os.ReadFile(file)
		if err != nil || string(b) != "new\n" {
			t.Errorf("it wrote %q, %v", b, err)
		}
	})

	t.Run("a start in the past runs now", func(t *testing.T) {
		t.Parallel()
		res, err := p.jobs().SubmitJob(t.Context(), connect.NewRequest(&waterclockv1.SubmitJobRequest{Spec: func() *waterclockv1.JobSpec {
			s := command("true")
			s.TotalDeadline = durationpb.New(time.Minute)
			s.Schedule = &waterclockv1.Schedule{Kind: &waterclockv1.Schedule_Once{Once: &waterclockv1.Once{At: timestamppb.New(time.Unix(1000, 0))}}}
			return s
		}()}))
		if err != nil || len(res.Msg.Job.Warnings) == 0 {
			t.Fatalf("no warning: %v, %v", res, err)
		}
		id := res.Msg.Job.JobId
		checkFinal(t, p, outcomes(t, p.jobs(), []string{id}, 10*time.Second))
	})

	t.Run("an attempt that takes too long is stopped and tried again", func(t *testing.T) {
		t.Parallel()
		s := command("sleep", "60")
		s.AttemptTimeout = durationpb.New(300 * time.Millisecond)
		s.Retry = &waterclockv1.RetryPolicy{MaxAttempts: 2, InitialBackoff: durationpb.New(50 * time.Millisecond)}
		id := submitMany(t, p.jobs(), []*waterclockv1.JobSpec{s})[0]
		run := outcomes(t, p.jobs(), []string{id}, 30*time.Second)[id]
		if run.State != waterclockv1.RunState_RUN_STATE_FAILED || run.Outcome.GetReason() != "timeout" || run.Attempt != 2 {
			t.Errorf("run is %s by %q at attempt %d", run.State, run.Outcome.GetReason(), run.Attempt)
		}
	})
}

// A run that waits in the stream for a slot when its job is paused does not start when the slot is free.
func TestPauseTakesBackWhatWaitsForASlot(t *testing.T) {
	t.Parallel()
	p := start(t, "dev", "--ephemeral", "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--executor.slots", "1")
	dir := t.TempDir()
	begun, late := filepath.Join(dir, "begun"), filepath.Join(dir, "late")
	first := submitMany(t, p.jobs(), []*waterclockv1.JobSpec{command("sh", "-c", "echo x >"+begun+"; sleep 2")})
	waitLines(t, begun, 1, 10*time.Second)
	second := submitMany(t, p.jobs(), []*waterclockv1.JobSpec{command("sh", "-c", "echo x >"+late)})
	stateIs(t, p, second[0], waterclockv1.RunState_RUN_STATE_QUEUED)
	if _, err := p.jobs().PauseJob(t.Context(), connect.NewRequest(&waterclockv1.PauseJobRequest{JobId: second[0]})); err != nil {
		t.Fatal(err)
	}
	outcomes(t, p.jobs(), first, 20*time.Second)
	third := submitMany(t, p.jobs(), []*waterclockv1.JobSpec{command("true")})
	outcomes(t, p.jobs(), third, 20*time.Second) // the slot is free and takes what there is
	if _, err := os.Stat(late); err == nil {
		t.Error("the run started while its job was paused")
	}
	stateIs(t, p, second[0], waterclockv1.RunState_RUN_STATE_WAITING)
	if _, err := p.jobs().ResumeJob(t.Context(), connect.NewRequest(&waterclockv1.ResumeJobRequest{JobId: second[0]})); err != nil {
		t.Fatal(err)
	}
	checkFinal(t, p, outcomes(t, p.jobs(), second, 20*time.Second))
}

// A run that waits in the stream for a slot is cancelled, or its job deleted or paused, while NATS is away: that is acknowledged only when NATS is back and the run
// taken out, and then the run does not start when the slot is free.
func TestTakenBackWhileNATSIsAway(t *testing.T) {
	t.Parallel()
	folder, log := t.TempDir(), newLog(t)
	broker, err := streams.StartEmbedded(streams.EmbeddedOptions{Dir: folder, Listen: "127.0.0.1:0", Logger: log})
	check.OK(t, err)
	addr := broker.Addr()
	p := start(t, "server", "--data", t.TempDir(), "--nats", "nats://"+addr, "--http", "127.0.0.1:0", "--executor.slots", "1", "--lease.ack_wait", "2m",
		"--executor.kinds.exec.enabled", "--executor.kinds.exec.allow", "/bin/sh,/usr/bin/sh")
	dir := t.TempDir()
	begun, release, late := filepath.Join(dir, "begun"), filepath.Join(dir, "release"), filepath.Join(dir, "late")
	hold := command("sh", "-c", "echo x >"+begun+"; until [ -e "+release+" ]; do sleep 0.05; done")
	first := submitMany(t, p.jobs(), []*waterclockv1.JobSpec{hold})
	waitLines(t, begun, 1, 20*time.Second)
	lateOne := command("sh", "-c", "echo x >>"+late)
	waiting := submitMany(t, p.jobs(), []*waterclockv1.JobSpec{lateOne, lateOne, lateOne})
	cancelled, paused := waiting[:2], waiting[2]
	calls := []func() error{
		func() error {
			_, err := p.runs().CancelRun(t.Context(), connect.NewRequest(&waterclockv1.CancelRunRequest{JobId: waiting[0]}))
			return err
		},
		func() error {
			_, err := p.jobs().DeleteJob(t.Context(), connect.NewRequest(&waterclockv1.DeleteJobRequest{JobId: waiting[1]}))
			return err
		},
		func() error {
			_, err := p.jobs().PauseJob(t.Context(), connect.NewRequest(&waterclockv1.PauseJobRequest{JobId: paused}))
			return err
		},
	}
	for _, id := range waiting {
		stateIs(t, p, id, waterclockv1.RunState_RUN_STATE_QUEUED)
	}

	broker.Stop()
	errs := make(chan error, len(calls))
	for _, call := range calls {
		go func() { errs <- call() }()
	}
	for range calls {
		if err := check.Receive(t, "an answer while NATS is away", errs); connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "may still begin") {
			t.Errorf("while NATS is away: %v", err)
		}
	}
	for _, id := range cancelled {
		stateIs(t, p, id, waterclockv1.RunState_RUN_STATE_CANCELLED)
	}
	stateIs(t, p, paused, waterclockv1.RunState_RUN_STATE_QUEUED)
	broker, err = streams.StartEmbedded(streams.EmbeddedOptions{Dir: folder, Listen: addr, Logger: log})
	check.OK(t, err)
	t.Cleanup(broker.Stop)
	for i, call := range calls {
		check.Await(t, "call "+strconv.Itoa(i)+" is acknowledged", func() bool { return call() == nil })
	}

	write(t, release, "")
	outcomes(t, p.jobs(), first, 30*time.Second)
	outcomes(t, p.jobs(), submitMany(t, p.jobs(), []*waterclockv1.JobSpec{command("sh", "-c", "true")}), 30*time.Second) // the slot is free and takes what there is
	if _, err := os.Stat(late); err == nil {
		t.Error("a run started that had been taken back")
	}
	stateIs(t, p, paused, waterclockv1.RunState_RUN_STATE_WAITING)
	_, err = p.jobs().ResumeJob(t.Context(), connect.NewRequest(&waterclockv1.ResumeJobRequest{JobId: paused}))
	check.OK(t, err)
	outcomes(t, p.jobs(), []string{paused}, 30*time.Second)
	waitLines(t, late, 1, 20*time.Second)
}

// stateIs waits until the run of a job is in a state.
func stateIs(t testing.TB, p *process, id string, want waterclockv1.RunState) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last waterclockv1.RunState
	for range 1500 {
		res, err := p.jobs().GetJob(t.Context(), connect.NewRequest(&waterclockv1.GetJobRequest{JobId: id}))
		check.OK(t, err)
		if last = res.Msg.Run.GetState(); last == want {
			return
		}
		<-tick.C
	}
	t.Fatalf("run of job %s is %s, want %s", id, last, want)
}

func runsOf(t testing.TB, p *process, id string) []*waterclockv1.Run {
	t.Helper()
	res, err := p.runs().ListRuns(t.Context(), connect.NewRequest(&waterclockv1.ListRunsRequest{JobId: id, PageSize: 100}))
	check.OK(t, err)
	var ended []*waterclockv1.Run
	for _, r := range res.Msg.Runs {
		if r.State >= waterclockv1.RunState_RUN_STATE_SUCCEEDED {
			ended = append(ended, r)
		}
	}
	return ended
}

func lines(t testing.TB, file string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	check.OK(t, err)
	return strings.Count(string(b), "\n")
}

// gone waits until a process is no more.
func gone(t testing.TB, pid int) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 500 {
		if syscall.Kill(pid, 0) != nil {
			return
		}
		<-tick.C
	}
	t.Errorf("process %d lives on", pid)
}
