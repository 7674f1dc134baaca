package serve

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
	"github.com/waterclock-io/waterclock/proto/waterclock/v1/waterclockv1connect"
)

// runDemo submits real jobs to a running dev, and says how to watch them.
func runDemo(ctx context.Context, w io.Writer, n *Node) error {
	url := "http://" + n.HTTPAddr()
	client := waterclockv1connect.NewJobServiceClient(http.DefaultClient, url)
	at := timestamppb.New(time.Now().Add(8 * time.Second).Truncate(time.Second))
	once := func(o *waterclockv1.Once) *waterclockv1.Schedule {
		return &waterclockv1.Schedule{Kind: &waterclockv1.Schedule_Once{Once: o}}
	}
	specs := []*waterclockv1.JobSpec{
		demoSpec("exec", map[string]any{"argv": []any{"date", "-u"}}, once(&waterclockv1.Once{Delay: durationpb.New(5 * time.Second)})),
		demoSpec("exec", map[string]any{"argv": []any{"echo", "a minute has passed"}}, &waterclockv1.Schedule{
			Kind: &waterclockv1.Schedule_Cron{Cron: &waterclockv1.Cron{Spec: "* * * * *", Zone: "UTC"}},
		}),
		demoSpec("http", map[string]any{"method": "GET", "url": url + "/healthz"}, nil),
	}
	for _, p := range []waterclockv1.Priority{
		waterclockv1.Priority_PRIORITY_LOW, waterclockv1.Priority_PRIORITY_NORMAL, waterclockv1.Priority_PRIORITY_HIGH, waterclockv1.Priority_PRIORITY_CRITICAL,
	} {
		s := demoSpec("exec", map[string]any{"argv": []any{"echo", "priority " + p.String()}}, once(&waterclockv1.Once{At: at}))
		s.Priority = p
		specs = append(specs, s)
	}
	fmt.Fprintf(w, "\nThe demo:\n\n") // nobody to tell
	for _, s := range specs {
		res, err := client.SubmitJob(ctx, connect.NewRequest(&waterclockv1.SubmitJobRequest{Spec: s}))
		if err != nil {
			return fmt.Errorf("submit a demo job: %w", err)
		}
		fmt.Fprintf(w, "  %-5s %s  due %s\n", s.Kind, res.Msg.Job.JobId, res.Msg.Run.GetDueTime().AsTime().Format(time.TimeOnly)) // as above
	}
	fmt.Fprintf(w, "\nWatch one with `waterclock run watch ID`, read what it wrote with `waterclock run logs ID`, and see all with `waterclock job list`.\n") // as above
	return nil
}

func demoSpec(kind string, payload map[string]any, s *waterclockv1.Schedule) *waterclockv1.JobSpec {
	v, err := structpb.NewValue(payload)
	if err != nil {
		panic(err) // of constants
	}
	return &waterclockv1.JobSpec{Kind: kind, Input: &waterclockv1.JobSpec_Json{Json: v}, Schedule: s}
}
