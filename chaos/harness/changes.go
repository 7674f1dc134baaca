package harness

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/job/schedule"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

// change asks for a change and remembers it where it was acknowledged, or may have been made all the same. The call may fill in what the answer says.
func (c *client) change(ctx context.Context, k *known, ch *checker.Change, call func(ctx context.Context) error) bool {
	c.mu.Lock()
	k.changed++
	c.mu.Unlock()
	got := c.insistent(ctx, string(ch.Kind), call)
	ch.Requested, ch.Answered = got.requested, got.answered
	c.log.Info("asked", "what", ch.Kind, "job", k.ID, "run", ch.RunID, "acknowledged", got.ok, "unsure", got.unsure, "requested", ch.Requested, "schedule", ch.Schedule)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case got.ok:
		k.Changes = append(k.Changes, *ch)
	case got.unsure:
		k.Unsure = append(k.Unsure, *ch)
	}
	return got.ok
}

func (c *client) cancel(ctx context.Context, k *known) {
	if k.run == "" || (k.Schedule.Kind != schedule.Once && time.Now().Before(k.Schedule.Anchor)) {
		return
	}
	run := k.run
	c.mu.Lock()
	changed := len(k.Changes) > 0
	c.mu.Unlock()
	if k.Schedule.Kind != schedule.Once || changed { // the one that goes on, or comes next
		res, err := c.runs.GetRun(ctx, connect.NewRequest(&waterclockv1.GetRunRequest{JobId: k.ID}))
		if err != nil {
			return
		}
		run = res.Msg.GetRun().GetRunId()
	}
	c.change(ctx, k, &checker.Change{Kind: checker.Cancel, RunID: run}, func(ctx context.Context) error {
		_, err := c.runs.CancelRun(ctx, connect.NewRequest(&waterclockv1.CancelRunRequest{JobId: k.ID, RunId: run}))
		return err
	})
}

func (c *client) pause(ctx context.Context, k *known) {
	k.paused = c.change(ctx, k, &checker.Change{Kind: checker.Pause}, func(ctx context.Context) error {
		_, err := c.jobs.PauseJob(ctx, connect.NewRequest(&waterclockv1.PauseJobRequest{JobId: k.ID}))
		return err
	})
	k.resume = time.Now().Add(c.maker.between(200*time.Millisecond, 6*time.Second))
}

func (c *client) resume(ctx context.Context, k *known) {
	k.paused = false
	c.change(ctx, k, &checker.Change{Kind: checker.Resume}, func(ctx context.Context) error {
		_, err := c.jobs.ResumeJob(ctx, connect.NewRequest(&waterclockv1.ResumeJobRequest{JobId: k.ID}))
		return err
	})
}

func (c *client) delete(ctx context.Context, k *known) {
	k.over = true
	c.change(ctx, k, &checker.Change{Kind: checker.Delete}, func(ctx context.Context) error {
		_, err := c.jobs.DeleteJob(ctx, connect.NewRequest(&waterclockv1.DeleteJobRequest{JobId: k.ID}))
		return err
	})
}

// trigger asks for a run beside the schedule. The id of the request makes the second try find what the first has made.
func (c *client) trigger(ctx context.Context, k *known) {
	c.triggers++
	request := fmt.Sprintf("%s-trigger-%d", c.name, c.triggers)
	ch := checker.Change{Kind: checker.Trigger}
	c.change(ctx, k, &ch, func(ctx context.Context) error {
		res, err := c.jobs.TriggerJob(ctx, connect.NewRequest(&waterclockv1.TriggerJobRequest{JobId: k.ID, RequestId: request}))
		if err == nil {
			ch.RunID = res.Msg.GetRun().GetRunId()
		}
		return err
	})
}

// update moves a one-time job that has not begun, or changes the period of a series.
func (c *client) update(ctx context.Context, k *known) {
	now := time.Now()
	s := schedule.Schedule{Kind: schedule.Once, At: now.Add(c.maker.between(500*time.Millisecond, 5*time.Second)).UTC().Truncate(time.Microsecond)}
	if k.Schedule.Kind != schedule.Once {
		s = c.maker.every(c.maker.between(time.Second, 3*time.Second).Truncate(time.Millisecond), now.Add(c.maker.between(0, 2*time.Second)),
			c.maker.between(5*time.Second, 20*time.Second))
	}
	tried := int64(0)
	c.change(ctx, k, &checker.Change{Kind: checker.Update, Schedule: s}, func(ctx context.Context) error {
		res, err := c.jobs.GetJob(ctx, connect.NewRequest(&waterclockv1.GetJobRequest{JobId: k.ID}))
		if err != nil {
			return err
		}
		version := res.Msg.GetJob().GetVersion()
		if tried != 0 && version != tried {
			return nil // nobody else changes it: the try that was not answered did
		}
		tried = version
		_, err = c.jobs.UpdateJob(ctx, connect.NewRequest(&waterclockv1.UpdateJobRequest{
			JobId: k.ID, Version: version, Spec: &waterclockv1.JobSpec{Kind: "exec", Schedule: protoSchedule(s)},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"schedule"}},
		}))
		return err
	})
}
